"""Faults in kube-proxy's own rules: real nftables, in namespaces where nobody else's are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab.explain.faults import services
from lab.explain.faults.registry import FaultChange
from lab.lifecycle.faults import script
from lab.topology.footprint import POD_RULES, POD_TABLE

CASES = Path(__file__).parents[1] / "cases" / "netns"
ALONE = ("unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork")
SERVICES = services.without_services("worker1", "service-rules-missing")
STALE = services.stale_backend(
    "worker1", "service-backend-stale", "to-worker1-p1", "10.244.1.3", "10.244.1.254"
)
MASQUERADE = services.without_masquerading("worker1")
OWN = f"add table ip {POD_TABLE}; add chain ip {POD_TABLE} postrouting; "
OWN += f"flush chain ip {POD_TABLE} postrouting; add rule ip {POD_TABLE} postrouting counter"
NOTHING = "kube-proxy has nothing of it here"
WITHOUT_A_CHAIN = "nft delete chain ip kube-proxy service-4-hybridlab-probe/other/tcp/tcp"


def listed_after(*steps: str) -> list[str]:
    """What the rules are at first, and after each of the steps, none of which may fail."""
    show = "echo =; nft list ruleset"
    begin = f"mount -t tmpfs none /run; nft -f {CASES / 'kube-proxy.nft'}; nft '{OWN}'"
    lines = [begin, show, *(line for step in steps for line in (f"( {step}\n)", show))]
    done = subprocess.run(
        [*ALONE, "sh", "-ec", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("=\n")[1:]


def done(change: FaultChange) -> str:
    return script([command.line for command in change.do])


def undone(change: FaultChange) -> str:
    return script([command.line for command in change.undo]).replace(POD_RULES, "/run/pods.nft")


@pytest.mark.parametrize(
    ("change", "gone"),
    [
        (SERVICES, ": goto service-1"),
        (SERVICES, ": goto external-"),
        (STALE, "0 : 10.244.1.3 . 8080"),
        (STALE, "udp dnat to 10.244.1.3:8080"),
        (MASQUERADE, "counter"),
    ],
    ids=["addresses", "node ports", "numgen", "endpoint", "masquerade"],
)
def test_it_is_put_back_however_often_it_was_done(change, gone):
    rules = f"echo '{OWN}' > /run/pods.nft"
    first, nothing, once, twice, back, again = listed_after(
        f"{rules}; {undone(change)}",
        done(change),
        done(change),
        undone(change),
        undone(change),
    )
    assert first == nothing == back == again
    assert gone in first
    assert gone not in once
    assert once == twice


def test_a_stale_backend_is_one_service_s_alone():
    first, stale = listed_after(done(STALE))
    assert first.count("10.244.1.31") == stale.count("10.244.1.31") > 0
    other = (
        "chain service-4-hybridlab-probe/other/tcp/tcp {\n\t\tmeta l4proto tcp dnat to 10.244.1.3"
    )
    assert other in first
    assert other in stale
    assert "10.244.1.254 . 8080" in stale


def test_rules_that_no_longer_fit_are_left_for_kube_proxy_to_make_anew():
    """Here nobody starts it again; nothing fails, and nothing is kept."""
    emptied = 'test -z "$(ls /run)"'
    *_, after = listed_after(done(SERVICES), WITHOUT_A_CHAIN, undone(SERVICES), emptied)
    assert ": goto service-1" not in after


def test_a_service_missing_from_kube_proxy_is_reported():
    change = services.stale_backend(
        "worker1", "service-backend-stale", "none", "10.0.0.1", "10.0.0.2"
    )
    listed_after(
        f"if ({done(change)}\n) 2> /run/said; then exit 1; fi; grep -q '{NOTHING}' /run/said"
    )
