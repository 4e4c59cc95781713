"""A node that never gets Ready, in a sentence."""

from __future__ import annotations

from lab.cluster.observers.diagnosis import diagnose
from lab.cluster.observers.facts import NodeFacts, Unit

NOT_READY = {
    "type": "Ready",
    "status": "False",
    "reason": "KubeletNotReady",
    "message": "container runtime network not ready: NetworkReady=false "
    "reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized",
}
PLAIN = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "silent"}
FLAG = (
    'E0318 10:11:12.131415    4912 run.go:72] "command failed" err="failed to parse kubelet flag: '
    'unknown flag: --network-plugin"'
)
CIDR = (
    "E0101 00:00:00.000000       1 main.go:359] Error registering network: failed to acquire "
    'lease: node "win1" pod cidr not assigned'
)


def test_a_condition_alone_is_told_with_what_it_is_known_to_mean() -> None:
    found = diagnose("worker1", [NOT_READY], [], [])
    assert str(found).startswith(
        "node 'worker1': Ready is False (KubeletNotReady, container runtime network not ready"
    )
    assert [one.id for one in found.known] == ["cni-not-initialized"]
    assert "conf_dir" in found.hint


def test_what_stops_kubelet_comes_before_what_follows_from_it() -> None:
    found = diagnose("win1", [NOT_READY], ["something", FLAG], [], others=[CIDR])
    assert [one.id for one in found.known] == [
        "kubelet-flag-dockershim",
        "cni-not-initialized",
        "pod-cidr-empty",
    ]
    assert "--network-plugin" in found.cause
    assert FLAG in found.lines


def test_a_node_that_never_registered_is_told_so() -> None:
    found = diagnose("win1", [], [FLAG], [])
    assert "it has not registered" in str(found)
    assert found.hint.startswith("take the flag out")


def test_where_nothing_is_known_the_last_complaints_are_shown() -> None:
    log = [
        "I0101 00:00:00.000000 1 a.go:1] fine",
        "E0101 00:00:01.000000 1 b.go:1] the moon is in the wrong place",
        "I0101 00:00:02.000000 1 c.go:1] fine again",
    ]
    found = diagnose("worker1", [PLAIN], log, [])
    assert found.known == ()
    assert found.hint == ""
    assert found.lines == (log[1],)
    assert str(found).endswith(f"\n  {log[1]}")


def test_a_complaint_is_known_in_a_journals_line_too() -> None:
    line = "Nov 21 20:35:16 worker1 kubelet[812]: E1121 20:35:16.353316 812 x.go:1] broken"
    found = diagnose("worker1", [PLAIN], [line, "Nov 21 worker1 systemd[1]: Started"], [])
    assert found.lines == (line,)


def test_of_a_log_without_complaints_the_last_lines_are_shown() -> None:
    log = [f"I0101 line {number}" for number in range(9)]
    assert diagnose("worker1", [PLAIN], log, []).lines == tuple(log[-5:])


def test_containerds_errors_are_shown_where_kubelet_says_nothing() -> None:
    log = ['time="2026-01-01" level=info msg="x"', 'time="2026-01-01" level=error msg="y"']
    assert diagnose("worker1", [PLAIN], [], log).lines == (log[1],)


def test_programs_that_do_not_run_are_told_and_their_logs_read() -> None:
    units = (
        Unit("containerd", "active"),
        Unit("kubelet", "activating, restarted 5 times"),
        Unit("flanneld", "Stopped", (CIDR,)),
    )
    found = diagnose("win1", [PLAIN], [], [], NodeFacts("windows", "20348.587", units=units))
    assert found.down == ("kubelet (activating, restarted 5 times)", "flanneld (Stopped)")
    assert "not running: kubelet" in str(found)
    assert [one.id for one in found.known] == ["pod-cidr-empty"]


def test_a_node_under_pressure_is_told_so() -> None:
    disk = {"type": "DiskPressure", "status": "True", "reason": "KubeletHasDiskPressure"}
    fine = {"type": "MemoryPressure", "status": "False"}
    found = diagnose("win1", [disk, fine, PLAIN], [], [])
    assert "DiskPressure is True (KubeletHasDiskPressure)" in found.condition
    assert "MemoryPressure" not in found.condition
