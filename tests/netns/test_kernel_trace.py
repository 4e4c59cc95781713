"""The kernel asked in real namespaces: it names the rule that dropped, and keeps no table."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from netns_running import Running

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.explain.kernel import read_kernel_reports, trace_table
from lab.matrix.cells import make_matrix
from lab.matrix.run import make_probe
from lab.plan.planner import make_plan
from lab.providers.capture import TracedFlow
from lab.providers.netns import capture, isolation
from lab.providers.provider import ProbeSettings
from lab.scenario.loader import find, load
from lab.topology import registry as topologies

PLAN = make_plan(load(find("overlay")))
MADE = {"kube-proxy", "host-limits"}
"""Tables that the lab has there; the second is of the emulated Windows node."""
PLACES = ("worker1-p1", "worker1", "win1", "win1-p1")


@pytest.fixture(scope="module")
def lab(bring_up):
    return bring_up(topologies.intent(PLAN), name="overlay")


@contextmanager
def dropping(running: Running, place: str, rule: str) -> Iterator[None]:
    running.shell(place, f"nft 'table inet mine {{ chain c {{ {rule} }}; }}'")
    try:
        yield
    finally:
        running.shell(place, "nft delete table inet mine")


def traced(
    running: Running, during: Callable[[], None] | None = None, trouble: str = ""
) -> tuple[str, ...]:
    matrix = make_matrix(PLAN, running.intent)
    cell = matrix.find("pod-pod/worker1-p1/win1-p1/tcp-small")
    assert cell is not None

    def ask() -> None:
        settings = ProbeSettings(0.5, 1)
        running.provider.probe(
            running.lab, running.intent, [make_probe(0, cell)], settings, lambda _: None
        )

    flow = TracedFlow("tcp", {}, trace_table("tcp", [cell.target.address]))
    answers = running.provider.trace_kernel(
        running.lab, running.intent, dict.fromkeys(PLACES, ()), flow, during or ask, Deadline(30)
    )
    assert [(report.place, report.trouble) for report in answers] == [
        (place, trouble) for place in PLACES
    ]
    return tuple(word.sentence for word in read_kernel_reports(answers))


def tables(running: Running) -> set[str]:
    listed = "".join(running.shell(place, "nft list tables") for place in PLACES)
    return {line.split()[2] for line in listed.splitlines()}


@pytest.mark.parametrize(
    ("place", "rule", "said"),
    [
        (
            "worker1",
            "type filter hook forward priority 5; tcp dport 8080 counter drop;",
            "chain c dropped it: rule 'tcp dport 8080 counter packets",
        ),
        (
            "win1-p1",
            "type filter hook input priority 5; policy drop;",
            "chain c dropped it by its policy",
        ),
        (
            "win1",  # where it comes in a tunnel
            "type filter hook input priority 5; udp dport 4789 drop;",
            "chain c dropped it: rule 'udp dport 4789 drop'",
        ),
    ],
)
def test_the_rule_that_drops_a_probe_is_named(lab, place, rule, said):
    with dropping(lab, place, rule):
        words = traced(lab)
    assert [word for word in words if said in word and word.startswith(f"{place}: table inet mine")]
    assert tables(lab) == MADE


def test_the_kernel_reports_no_drop_for_a_working_probe(lab):
    assert not [one for one in traced(lab) if "dropped" in one]


@pytest.fixture
def without(tmp_path, monkeypatch):
    """Trace on a machine that has all programs but one."""

    def remove(missing: str) -> None:
        for program in {"setpriv", "nft", "tc", "ip"} - {missing}:
            path = shutil.which(program, path=isolation.search_path())
            assert path is not None
            (tmp_path / program).symlink_to(path)
        monkeypatch.setattr(isolation, "search_path", lambda: str(tmp_path))

    return remove


def test_without_tc_the_rule_that_drops_is_still_named(lab, without):
    without("tc")
    with dropping(lab, "worker1", "type filter hook forward priority 5; tcp dport 8080 drop;"):
        words = traced(lab, trouble="there is no 'tc'")
    assert [word for word in words if "chain c dropped it: rule 'tcp dport 8080 drop'" in word]


def test_without_nft_the_counters_are_still_read(lab, without):
    without("nft")
    forwarding = "/proc/sys/net/ipv4/conf/cni0/forwarding"
    lab.shell("worker1", f"echo 0 > {forwarding}")
    try:
        words = traced(lab, trouble="there is no 'nft'")
    finally:
        lab.shell("worker1", f"echo 1 > {forwarding}")
    assert [word for word in words if word.startswith("worker1: ") and "forwarding is off" in word]


def test_a_table_is_gone_with_a_process_that_is_killed(lab):
    """The child that holds all of them is killed while packets are traced."""
    seen: list[set[str]] = []

    def during() -> None:
        seen.append(tables(lab))
        children = f"/proc/self/task/{threading.get_native_id()}/children"
        with open(children, encoding="ascii") as listed:  # noqa: PTH123  of /proc
            for child in listed.read().split():
                os.kill(int(child), signal.SIGKILL)

    with pytest.raises(BrokenError):
        traced(lab, during)
    assert seen == [{*MADE, "hybridlab-trace"}]
    Deadline(10).wait("the tables to go", lambda: tables(lab), until=lambda now: now == MADE)


def test_counters_that_cannot_be_read_are_said_and_not_taken_for_none(monkeypatch):
    monkeypatch.setattr(capture, "_QUEUES", ("sh", "-c", "echo no memory >&2; exit 2"))
    with Path(os.devnull).open(encoding="ascii") as stop:  # readable at once
        places = {"here": ()}
        (said,) = capture.trace_kernel(lambda _: None, places, "", lambda _: None, stop.fileno())
    assert said.trouble.endswith("no memory")
