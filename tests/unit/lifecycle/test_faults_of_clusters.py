"""Faults of a cluster are put into what its pods have, and healed by their names and places."""

from __future__ import annotations

import json
import shlex
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, cast
from uuid import uuid4

import pytest
from processes import run_program

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError, UsageError
from lab.explain.faults.registry import FaultChange, FaultCommand
from lab.lifecycle.compilation import compile_scenario
from lab.lifecycle.explain import ExplainQuestion, explain_cell
from lab.lifecycle.faults import (
    FaultRequest,
    find_possible_faults,
    from_nodes,
    heal,
    present,
    put_in,
)
from lab.lifecycle.open_lab import OpenLab
from lab.providers.provider import CLUSTER, MACHINES, LabHandle, Liveness, Outcome, Provider
from lab.shells.shell import Completed
from lab.state import store
from lab.state.rows import LabRow
from lab.state.store import MIGRATIONS, Store
from lab.topology.intent import Intent


@dataclass
class Cluster:
    """A provider whose machines remember their commands, and whose pods are Kubernetes' own."""

    real: Intent
    lost: bool = False
    state: Literal["running", "suspended", "broken"] = "running"
    reachable: bool = False
    ready_again: bool = False

    name = "libvirt"
    abilities = frozenset({MACHINES, CLUSTER})

    def __post_init__(self) -> None:
        self.done: list[tuple[str, str]] = []
        self.asked: list[str] = []
        self.says = ""

    def liveness(self, *_: object) -> Liveness:
        liveness = Liveness(self.state, "", reachable=self.reachable)
        if self.ready_again and self.done[-1][1].count("containerd"):
            self.state = "running"  # seen from the next look on
        return liveness

    def cluster(self, *_: object) -> Cluster:
        return self

    def realised(self, intent: Intent) -> Intent:
        return intent

    @contextmanager
    def probed(self, **_: bool) -> Iterator[Intent]:
        if self.lost:
            raise BrokenError("asking the API server", "connection refused")
        yield self.real

    def machine(self, _lab: object, intent: Intent, name: str) -> Machine:
        assert name in {machine.name for machine in intent.machines}, "commands are for machines"
        return Machine(name, self.done, self.says)

    def probe(self, _lab: object, _intent: Intent, probes: Sequence[Any], *_: object) -> Any:
        self.asked += [probe.address for probe in probes]
        return {probe.key: Outcome(probe.key, "error", "", None, (), None, 0.0) for probe in probes}

    def deviations(self, *_: object) -> dict[str, tuple[()]]:
        return {}

    def observe(self, _lab: object, intent: Intent, asked: Any, _deadline: object) -> Any:
        assert intent is self.real
        return dict.fromkeys(asked, LabError("looking", "nobody looks"))

    def logs(self, *_: object) -> Iterator[Any]:
        return iter(())


@dataclass
class Machine:
    name: str
    done: list[tuple[str, str]]
    says: str = ""

    def run(self, command: Sequence[str], _deadline: Deadline) -> Completed:
        self.done.append((self.name, command[-1]))
        return Completed(1, "", self.says) if self.says else Completed(0, "", "")


@pytest.fixture(scope="module")
def drawn():
    return compile_scenario("overlay", pods="kubernetes")


@pytest.fixture(scope="module")
def real(drawn):
    """Every pod has another port and another address than was planned."""
    machines = tuple(
        replace(
            machine,
            pods=tuple(
                replace(pod, port=f"veth{pod.name}", address=f"10.244.9.{number}/32")
                for number, pod in enumerate(machine.pods, 10)
            ),
        )
        for machine in drawn.intent.machines
    )
    return replace(drawn.intent, machines=machines)


@pytest.fixture
def there(drawn, real, tmp_path):
    store = Store(tmp_path / "state")
    store.put_lab(LabRow("it", "overlay", "", "", "libvirt", "token", "up", 1.0, 2.0, "d"))
    store.lab_directory("it").mkdir(parents=True)
    yield OpenLab(
        name="it",
        plan=drawn.plan,
        intent=drawn.intent,
        limits=drawn.limits,
        provider=cast(Provider, Cluster(real)),
        handle=LabHandle("it", store.lab_directory("it"), "token"),
        again="lab up it",
        banner="",
        scenario_text="",
        options={},
        store=store,
    )
    store.close()


def cluster(opened: OpenLab) -> Cluster:
    return cast(Cluster, opened.provider)


LINK_DOWN = FaultRequest("pod-link-down", "worker1", "worker1-p1")
ASKED = ExplainQuestion("worker1-p1", "worker2-p1", "tcp", "small")


def test_possible_faults_are_listed_for_the_machines_that_run(there, real):
    pods = real.machine("worker2").pods
    kept = replace(real.machine("worker2"), pods=pods[:1])
    machines = tuple(kept if machine.name == "worker2" else machine for machine in real.machines)
    cluster(there).real = replace(real, machines=machines)
    found = find_possible_faults(there, print)
    peers = {site.node: site.peers for site in found["duplicate-pod-address"]}["worker1"]
    assert [name for name in peers if name.startswith("worker2")] == ["worker2-p1"]
    assert [site.node for site in found["wrong-vni"]] == ["master", "worker1", "worker2"]


def test_possible_faults_of_a_sleeping_lab_are_those_of_its_plan(there):
    cluster(there).state, said = "suspended", []
    assert find_possible_faults(there, said.append)["pod-link-down"]
    assert "is not running" in said[0]


def test_a_fault_in_a_pod_is_done_on_its_node_with_the_address_that_is_there(there, real):
    put_in(there, FaultRequest("duplicate-pod-address", "worker1", "worker2-p1"), print)
    ((place, script),) = cluster(there).done
    taken = next(pod.address for pod in real.machine("worker2").pods if pod.name == "worker2-p1")
    assert place == "worker1"
    assert f"ip address replace {taken} dev eth0" in script
    assert "HYBRIDLAB_POD=worker1-p1" in script


def test_a_fault_of_the_port_that_a_pod_has_got_is_healed_also_without_the_api(there):
    put_in(there, LINK_DOWN, print)
    ((place, script),) = cluster(there).done
    assert place == "worker1"
    assert "ip link set dev vethworker1-p1 down" in script
    cluster(there).lost = True
    (removed,) = heal(there, print).removed
    assert removed.name == "pod-link-down"
    assert "ip link set dev vethworker1-p1 up" in cluster(there).done[-1][1]
    assert present(there) == ()


def from_older_lab(opened: OpenLab, name: str, node: str, peer: str) -> None:
    """Have the journal as an older lab wrote it: with the command that takes the fault out."""
    journal = sqlite3.connect(opened.store.path, isolation_level=None)
    journal.executescript(
        "BEGIN; DROP TABLE faults; DROP INDEX runs_of_lab; ALTER TABLE runs DROP COLUMN number;"
        "CREATE INDEX runs_of_lab ON runs (lab, id);"
        f"{MIGRATIONS[1]}; PRAGMA user_version = 2; COMMIT;"
    )
    undo = json.dumps([["worker1", "touch /owned"]])
    journal.execute(
        "INSERT INTO faults VALUES ('it', 1, 'token', ?, ?, ?, 'done', 5.0, ?)",
        (name, node, peer, undo),
    )
    journal.close()
    store.ensure(opened.store._connection, opened.store.path)


def test_no_command_out_of_the_journal_is_run(there):
    from_older_lab(there, "pod-link-down", "worker1", "worker1-p1")
    (removed,) = heal(there, print).removed
    assert removed.name == "pod-link-down"
    ((place, script),) = cluster(there).done
    assert place == "worker1"
    assert "ip link set dev vethworker1-p1 up" in script
    assert "touch" not in script
    assert present(there) == ()


def test_a_fault_of_an_older_lab_waits_for_the_pods_addresses_from_the_api(there):
    from_older_lab(there, "pod-link-down", "worker1", "worker1-p1")
    cluster(there).lost = True
    with pytest.raises(BrokenError, match="asking the API server"):
        heal(there, print)
    assert cluster(there).done == []
    assert present(there), "it is in still"


@pytest.mark.parametrize(
    ("name", "node", "peer"),
    [
        ("no-such-fault", "worker1", ""),
        ("pod-link-down", "worker1; touch /owned", "worker1-p1"),
        ("pod-link-down", "worker1-p1", "worker1-p1"),
        ("pod-link-down", "worker1", "worker2-p1"),
        ("pod-link-down", "worker1", "$(touch /owned)"),
        ("route-missing", "worker1", "worker1"),
        ("gateway-dead", "worker1", "worker2"),
    ],
)
def test_what_can_be_no_fault_of_the_lab_is_refused_with_the_way_out(there, name, node, peer):
    from_older_lab(there, name, node, peer)
    with pytest.raises(BrokenError, match="this lab cannot have such a fault") as raised:
        heal(there, print)
    assert raised.value.hint == "'lab down it', then 'lab up it'"
    assert cluster(there).done == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"port": "vethworker1-p1"', '"port": "x; touch /owned"'),
        ('"port": "vethworker1-p1"', '"port": 7'),
        ('"name": "worker1-p1"', '"name": "$(touch /owned)"'),
        ('"address": "10.244.9.', '"address": "$(id)'),
        ('"pods"', '"pod"'),
        ("{", ""),
    ],
)
def test_what_pods_had_is_names_and_addresses_and_nothing_else(there, before, after):
    put_in(there, LINK_DOWN, print)
    done = list(cluster(there).done)
    with there.store.change("spoiling the journal"):
        connection = there.store._connection
        (text,) = connection.execute("SELECT observed FROM faults").fetchone()
        assert before in text
        connection.execute("UPDATE faults SET observed = ?", (text.replace(before, after),))
    with pytest.raises(BrokenError, match="this lab cannot have such a fault"):
        heal(there, print)
    assert cluster(there).done == done


class WaitsError(Exception):
    """Another command is waited for."""


@pytest.mark.parametrize("healed", [False, True])
def test_while_a_fault_is_put_in_or_taken_out_other_commands_that_do_so_wait(
    there, monkeypatch, *, healed
):
    if healed:
        put_in(there, LINK_DOWN, print)
    told: list[str] = []

    def tell(words):
        told.append(words)
        raise WaitsError

    def meanwhile(_lab, _intent, name):
        with pytest.raises(WaitsError):
            heal(there, tell)
        with pytest.raises(WaitsError):
            put_in(there, replace(LINK_DOWN, peer="worker1-p2"), tell)
        with there.in_use("lab test it", tell):
            assert there.handle.directory.is_dir(), "a test goes on"
        return Machine(name, cluster(there).done)

    monkeypatch.setattr(cluster(there), "machine", meanwhile)
    if healed:
        heal(there, print)
    else:
        put_in(there, LINK_DOWN, print)
    by = "lab heal it" if healed else "lab fault it pod-link-down"
    assert len(told) == 2
    assert all(words.startswith(f"waiting for '{by}'") for words in told)
    assert [row.state for row in present(there)] == ([] if healed else ["done"])
    assert {path.name for path in there.handle.directory.iterdir()} == {"lock"}


def test_only_the_beginning_of_a_failed_commands_output_is_shown(there):
    put_in(there, FaultRequest("service-rules-missing", "worker1"), print)
    cluster(there).says = f"/dev/stdin:1:1: Error: no such chain\n{'^' * 5000}\n@1"
    with pytest.raises(BrokenError) as raised:
        heal(there, print)
    told = str(raised.value)
    assert "' failed on 'worker1': /dev/stdin:1:1: Error: no such chain" in told
    assert len(told) < 1000
    assert present(there), "it is in still"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("wrong-vni worker1", "wrong-vni --node worker1"),
        ("packet-loss worker1 5%", "packet-loss 5% --node worker1"),
        ("route-missing worker1 worker2", "route-missing --node worker1 --peer worker2"),
    ],
)
def test_a_machine_after_a_fault_is_answered_with_the_option_for_it(there, name, hint):
    with pytest.raises(UsageError, match="'worker1' is a machine, not a value") as raised:
        put_in(there, FaultRequest(name), print)
    assert raised.value.hint == f"'lab fault {there.name} {hint}'"
    assert present(there) == ()


def test_without_its_api_nothing_is_broken_and_nothing_written_down(there):
    cluster(there).lost = True
    with pytest.raises(BrokenError, match="connection refused"):
        put_in(there, LINK_DOWN, print)
    assert cluster(there).done == []
    assert present(there) == ()


@pytest.mark.room
def test_a_path_is_explained_with_the_addresses_that_are_there(there, real):
    shown: list[str] = []
    explanation = explain_cell(there, ASKED, print, shown.append)
    assert [text.partition(" ")[0] for text in shown[:2]] == ["sending", "looking"]
    address = next(pod.address for pod in real.machine("worker2").pods if pod.name == "worker2-p1")
    assert set(cluster(there).asked) == {address.partition("/")[0]}
    assert explanation.verdict == "probe-error"


def renamed(intent: Intent, pod: str, name: str) -> Intent:
    machines = tuple(
        replace(
            machine,
            pods=tuple(replace(one, name=name) if one.name == pod else one for one in machine.pods),
        )
        for machine in intent.machines
    )
    return replace(intent, machines=machines)


def test_a_fault_of_a_missing_pod_fails_and_its_undo_does_nothing(drawn):
    own = f"gone-{uuid4()}"  # no process of a cluster beside this test has it
    line = FaultCommand(own, "echo 'it is' done")
    moved = from_nodes(FaultChange((line,), (line,)), renamed(drawn.intent, "worker1-p1", own))
    (broken,), (removed,) = moved.do, moved.undo
    assert (broken.place, removed.place) == ("worker1", "worker1")
    codes = [
        run_program(["sh", "-ec", command.line], check=False).returncode
        for command in (broken, removed)
    ]
    assert codes == [1, 0]
    assert shlex.quote(line.line) in broken.line


@pytest.mark.room
def test_what_a_broken_cluster_lacks_is_explained_and_healed_all_the_same(there):
    put_in(there, FaultRequest("containerd-stopped", "worker1"), print)
    cluster(there).state, cluster(there).reachable = "broken", True
    put_in(there, FaultRequest("kube-proxy-stopped", "worker2"), print)
    assert explain_cell(there, ASKED, print).verdict == "probe-error"
    cluster(there).ready_again = True
    assert [row.name for row in heal(there, print).removed] == [
        "kube-proxy-stopped",
        "containerd-stopped",
    ]
    assert present(there) == ()


@pytest.mark.room
def test_machines_that_do_not_answer_are_not_asked(there):
    cluster(there).state = "broken"
    for ask in (
        lambda: put_in(there, FaultRequest("containerd-stopped", "worker1"), print),
        lambda: explain_cell(there, ASKED, print),
        lambda: heal(there, print),
    ):
        with pytest.raises(BrokenError, match="the lab is broken"):
            ask()
