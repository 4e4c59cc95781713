"""Logs of virtual machines: through the shell of each, and of those alone that are asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.cluster.cluster import ClusterNode
from lab.facts.evidence import RECENTLY
from lab.providers.libvirt.guests import LibvirtGuests
from lab.providers.libvirt.placement import LibvirtLayout
from lab.providers.machines.kubernetes import MachinesCluster
from lab.providers.provider import LabHandle
from lab.remote.shell import Completed

SWAP = "E1121 1 run.go:72] failed to run Kubelet: running with swap on is not supported"
LAB = LabHandle("lab", Path("/nowhere"), "token")
LAYOUT = LibvirtLayout({"worker1": "here", "worker2": "here", "client": "here"}, {"here": True}, {})


class Shell:
    """A machine whose kubelet has said one thing; or one that does not answer."""

    def __init__(self, *, answers: bool = True) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        del deadline, stdin
        self.asked.append(command[-1])
        if not self.answers:
            raise BrokenError("running 'sh' on 'worker1'", "connection refused")
        return Completed(0, SWAP if "--unit=kubelet" in command[-1] else "", "")

    def close(self) -> None:
        pass


def guests(**shells: Shell) -> LibvirtGuests:
    made = LibvirtGuests(LAB, LAYOUT, {})
    made._shells.update(shells)  # type: ignore[arg-type]  # as much of one as is used
    return made


def test_machines_that_are_asked_show_their_logs_and_no_other_is_spoken_to() -> None:
    shells = {name: Shell() for name in LAYOUT.machines}
    pieces = list(guests(**shells).logs(("worker2",), Deadline(60)))
    assert {one.path: one.content for one in pieces}["worker2/kubelet.log"] == SWAP.encode()
    assert all(one.is_log and one.path.startswith("worker2/") for one in pieces)
    assert shells["worker1"].asked == shells["client"].asked == []


def test_recent_logs_are_the_journal_s_last_minutes() -> None:
    shells = {name: Shell() for name in LAYOUT.machines}
    list(guests(**shells).logs(("worker1",), Deadline(60)))
    list(guests(**shells).logs(("worker2",), Deadline(60), RECENTLY))
    whole, recent = (
        [line for line in shells[name].asked if line.startswith("journalctl")]
        for name in ("worker1", "worker2")
    )
    assert len(whole) == len(recent) > 2
    assert not any("--since" in line for line in whole)
    assert all(" --since=-15min " in line for line in recent)


def test_a_machine_that_does_not_answer_is_a_piece_that_is_no_log() -> None:
    shells = {name: Shell(answers=name != "worker1") for name in LAYOUT.machines}
    pieces = list(guests(**shells).logs(("worker1", "worker2"), Deadline(60)))
    missing = [one for one in pieces if not one.is_log]
    assert [one.path for one in missing] == ["worker1/kubelet.log.missing"]
    assert b"connection refused" in missing[0].content
    assert "worker2/kubelet.log" in {one.path for one in pieces}


def test_of_a_cluster_its_nodes_are_asked_and_what_stands_beside_them() -> None:
    nodes = tuple(
        ClusterNode(name, "linux", "worker", "10.0.0.1", None, "1.36.3")
        for name in ("worker1", "worker2")
    )
    bundled = SimpleNamespace(cluster=SimpleNamespace(nodes=nodes))
    shells = {name: Shell() for name in LAYOUT.machines}
    there = guests(**shells)
    made = MachinesCluster(LAB, None, bundled, lambda: there)  # type: ignore[arg-type]  # the same
    pieces = dict(made.logs(there, ("worker1", "client"), Deadline(60)))
    assert pieces["worker1/kubelet.log"] == SWAP.encode()
    assert pieces["client/kubelet.log"] == SWAP.encode()
    assert {path.partition("/")[0] for path in pieces} == {"worker1", "client"}
    for name in ("worker1", "client"):
        assert any(" --since=-15min " in line for line in shells[name].asked)
