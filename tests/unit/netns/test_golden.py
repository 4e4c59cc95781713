"""Operations and rules as text, against files: read the difference, then mend one of the two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from netns_intents import cluster

from lab.providers.netns.commands import script
from lab.providers.netns.services import ruleset
from lab.providers.netns.windows import realise
from lab.topology.intent import (
    Backend,
    Drop,
    Intent,
    MachineIntent,
    Service,
    Translation,
)

CASES = Path(__file__).parents[2] / "cases" / "netns"
ONE, TWO = Backend("pod-1", "10.1.0.2", 8080), Backend("pod-2", "10.1.1.2", 8080)
NODE = replace(cluster("overlay", linux=1, windows=0, pods=0).machines[0], translation=None)


def _node(*services: Service, local: str | None = "10.1.0.0/24") -> MachineIntent:
    return replace(NODE, translation=Translation(local, ("10.1.0.0/16",), services))


def _drops(*drops: Drop) -> MachineIntent:
    return replace(NODE, drops=drops)


RULES: dict[str, Callable[[], MachineIntent]] = {
    "one-backend": lambda: _node(Service("web", "10.96.0.7", 80, 30007, (ONE,))),
    "several-backends": lambda: _node(Service("web", "10.96.0.7", 80, None, (ONE, TWO))),
    "no-backends": lambda: _node(Service("web", "10.96.0.7", 80, 30007, ())),
    "node-without-pods": lambda: _node(Service("web", "10.96.0.7", 80, 30007, (ONE,)), local=None),
    "no-services": _node,
    "drops": lambda: _drops(
        Drop("WIN-NODEPORT-SELF", ("10.9.0.5/32", "10.1.0.1/32"), (30000, 32767)),
        Drop("WIN-OVERLAY-NODE-POD", ("10.1.0.0/17", "10.1.128.0/17"), None, ("10.1.3.0/24",)),
    ),
    "windows-node": lambda: realise(cluster("overlay", linux=1, windows=1, pods=1)).machines[1],
    "nothing": lambda: NODE,
}
SCRIPTS: dict[str, Callable[[], Intent]] = {
    "overlay": lambda: cluster("overlay", linux=1, windows=1, pods=1, services=False),
    "host-gateway": lambda: cluster("host-gateway", linux=1, windows=1, pods=1, services=False),
}


@pytest.mark.parametrize("case", RULES)
def test_rules_of_a_machine(case: str) -> None:
    assert ruleset(RULES[case]()) == (CASES / "rules" / f"{case}.nft").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", SCRIPTS)
def test_operations_of_a_lab(case: str) -> None:
    assert script(SCRIPTS[case]()) == (CASES / "scripts" / f"{case}.sh").read_text(encoding="utf-8")


def test_every_file_is_a_case() -> None:
    assert {path.stem for path in (CASES / "rules").iterdir()} == set(RULES)
    assert {path.stem for path in (CASES / "scripts").iterdir()} == set(SCRIPTS)
