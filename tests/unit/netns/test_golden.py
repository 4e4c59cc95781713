"""Operations and rules as text, against files: read the difference, then mend one of the two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from golden_files import check_golden
from netns_intents import cluster

from lab.providers.netns.script import script
from lab.providers.netns.services import ruleset
from lab.providers.netns.windows import realise
from lab.scenario.terms import PROTOCOLS, ServicePort
from lab.topology.intent import Backend, Drop, Intent, MachineIntent, ProxiedService, Translation

CASES = Path(__file__).parents[2] / "cases" / "netns"
NODE = replace(cluster("overlay", linux=1, windows=0, pods=0).machines[0], translation=None)
ONE, TWO = Backend("pod-1", "10.1.0.2", NODE.name), Backend("pod-2", "10.1.1.2", "another")


def _web(node_port: int | None, *backends: Backend) -> ProxiedService:
    port = ServicePort("", PROTOCOLS, 80, 8080, node_port)
    return ProxiedService("web", "10.96.0.7", (port,), backends)


def _node(*services: ProxiedService, local: str | None = "10.1.0.0/24") -> MachineIntent:
    return replace(NODE, translation=Translation(local, ("10.1.0.0/16",), services))


def _sticky(**more: object) -> ProxiedService:
    return replace(_web(30007, ONE, TWO), affinity=10800, **more)  # type: ignore[arg-type]


def _shop() -> ProxiedService:
    ports = (
        ServicePort("web", PROTOCOLS, 80, 8080, 30080),
        ServicePort("admin", ("tcp",), 8443, 8081, None),
        ServicePort("log", ("udp",), 514, 8080, None),
    )
    return ProxiedService("shop", "10.96.0.8", ports, (ONE,))


def _like_windows(*services: ProxiedService) -> MachineIntent:
    """With what kube-proxy on Windows does not do."""
    machine = _node(*services)
    assert machine.translation
    other = replace(machine.translation, refuses=False, short_circuits=False)
    return replace(machine, translation=other)


def _drops(*drops: Drop) -> MachineIntent:
    return replace(NODE, drops=drops)


RULES: dict[str, Callable[[], MachineIntent]] = {
    "one-backend": lambda: _node(_web(30007, ONE)),
    "several-backends": lambda: _node(_web(None, ONE, TWO)),
    "no-backends": lambda: _node(_web(30007)),
    "node-without-pods": lambda: _node(_web(30007, ONE), local=None),
    "no-services": _node,
    "affinity": lambda: _node(_sticky()),
    "affinity-with-local-backends": lambda: _node(_sticky(inside="local", outside="local")),
    "local-backend": lambda: _node(replace(_web(30007, ONE, TWO), inside="local", outside="local")),
    "no-local-backend": lambda: _node(replace(_web(30007, TWO), inside="local", outside="local")),
    "several-ports": lambda: _node(_shop()),
    "nothing-refused": lambda: _like_windows(
        _web(30007), replace(_web(30008, TWO), name="far", address="10.96.0.9", outside="local")
    ),
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


LIKE = {
    **dict.fromkeys(
        (
            *("no-backends", "several-backends", "one-backend", "node-without-pods"),
            *("local-backend", "no-local-backend", "nothing-refused", "several-ports"),
            *("windows-node", "affinity"),
        ),
        "no-services",
    ),
    "affinity-with-local-backends": "affinity",
}
"""Cases that are kept as their difference from another."""


@pytest.mark.parametrize("case", RULES)
def test_rules_of_a_machine(case):
    like = ruleset(RULES[LIKE[case]]()) if case in LIKE else None
    check_golden(CASES / "rules" / f"{case}.nft", ruleset(RULES[case]()), like)


def test_operations_of_a_lab():
    host_gateway = script(SCRIPTS["host-gateway"]())
    check_golden(CASES / "scripts" / "host-gateway.sh", host_gateway)
    check_golden(CASES / "scripts" / "overlay.sh", script(SCRIPTS["overlay"]()), host_gateway)


def test_every_file_is_a_case():
    names = {f"{case}.nft.diff" if case in LIKE else f"{case}.nft" for case in RULES}
    assert {path.name for path in (CASES / "rules").iterdir()} == names
