"""Every status of a probe, with real packets between namespaces."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from prober_world import (
    DNS_RECORDS,
    NODE_OUTSIDE,
    UNREACHABLE,
    A,
    B,
    C,
    World,
    a_probe,
)

from lab._deadline import Deadline
from lab.providers.netns import namespaces, prober
from lab.providers.provider import Outcome, ProbeSettings

RESOLVER = f"nameserver {C}\nsearch default.svc.cluster.local svc.cluster.local\noptions ndots:5\n"


SLOW = """
import socket, time
listener = socket.create_server(("0.0.0.0", 8060), backlog=4096)
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    time.sleep(0.002)
    connection.recv(65536)
    who = b"X-Endpoint: slow\\r\\nX-Client: 1.2.3.4:5\\r\\n"
    connection.sendall(b"HTTP/1.1 200 OK\\r\\n" + who + b"Content-Length: 0\\r\\n\\r\\n")
    connection.close()
"""


@pytest.fixture(scope="module")
def world(new_lab):
    world = World(new_lab("world"))
    try:
        world.build()
        served = {"tcp": [8080, 8081], "udp": [8080, 8081]}
        world.respond(
            "responder",
            [
                {
                    "namespace": name,
                    "name": name,
                    **served,
                    "dns": DNS_RECORDS if name == "c" else None,
                }
                for name in ("a", "b", "c", "node", "client")
            ],
        )
        world.run(f"printf '{RESOLVER}' | tee /run/resolv/a > /run/resolv/b")
        yield world
    finally:
        world.end()


def test_udp_is_answered_from_the_address_that_was_asked(world):
    outcome = world.ask("a", NODE_OUTSIDE, protocol="udp", size="large")
    assert (outcome.status, outcome.backends) == ("ok", ("node",))


def test_a_full_queue_of_one_source_does_not_hold_up_the_others(world):
    world.run("ip netns exec a tc qdisc add dev eth0 root bfifo limit 1")
    try:
        began = time.monotonic()
        stuck = [a_probe("a", B, key=key, protocol="udp") for key in range(20)]
        silent = [a_probe("b", C, key=key, port=8081) for key in range(20, 120)]
        outcomes = world.probe([*stuck, *silent], in_flight=32)
    finally:
        world.run("ip netns exec a tc qdisc delete dev eth0 root")
    assert {outcome.status for outcome in outcomes.values()} == {"timeout"}
    assert time.monotonic() - began < 20  # one after another they take 50 s


@pytest.mark.parametrize(
    ("source", "address", "port", "sizes", "status", "says"),
    [
        ("a", C, 8081, ("small", "large"), "timeout", "no reply in"),
        ("a", B, 8090, ("small", "large"), "refused", ""),
        ("lone", B, 8080, ("small",), "no-route", ""),
        ("a", UNREACHABLE, 8080, ("small",), "no-route", "no route to host"),
    ],
    ids=["dropped", "no listener", "source without a route", "router without a route"],
)
def test_a_lost_or_refused_probe_has_its_reason(  # noqa: PLR0913, PLR0917  the columns of the table
    world, source, address, port, sizes, status, says
):
    cases = [(protocol, size) for protocol in ("tcp", "udp") for size in sizes]
    probes = [
        a_probe(source, address, key=key, port=port, protocol=protocol, size=size)
        for key, (protocol, size) in enumerate(cases)
    ]
    for key, outcome in world.probe(probes).items():
        assert outcome.status == status, cases[key]
        assert says in outcome.detail, cases[key]


def test_a_probe_dropped_by_its_own_source_is_a_timeout_like_any_other_loss(world):
    outcome = world.ask("a", B, port=8082, protocol="udp")
    assert outcome.status == "timeout"
    assert "packet filter" in outcome.detail


def test_a_black_hole_passes_small_probes_and_swallows_large_ones(world):
    world.run("ip -n node link set vc mtu 1000")
    try:
        cases = [(protocol, size) for protocol in ("tcp", "udp") for size in ("small", "large")]
        outcomes = world.probe(
            [
                a_probe("a", C, key=key, protocol=protocol, size=size)
                for key, (protocol, size) in enumerate(cases)
            ]
        )
    finally:
        world.run("ip -n node link set vc mtu 1500")
    statuses = {case: outcomes[key].status for key, case in enumerate(cases)}
    assert statuses == {
        ("tcp", "small"): "ok",
        ("tcp", "large"): "timeout",
        ("udp", "small"): "ok",
        ("udp", "large"): "timeout",
    }
    assert outcomes[3].detail.startswith("1500 bytes with DF: no reply")


def test_a_path_that_reports_its_mtu_is_named_and_passes_once_fixed(world):
    world.run("ip -n node link set br0 mtu 1000")
    try:
        narrow = world.ask("client", B, protocol="udp", size="large")
    finally:
        world.run("ip -n node link set br0 mtu 1500")
    assert narrow.status == "wrong"
    assert narrow.detail == (
        "1500 bytes with DF: too long, the path's MTU is 1000; 3000 bytes in fragments: echoed"
    )
    assert world.ask("client", B, protocol="udp", size="large").status == "ok"


def test_a_datagram_longer_than_the_own_link_is_wrong_and_names_the_mtu(world):
    outcome = world.ask("a", B, protocol="udp", size="large", mtu=2000)
    assert outcome.status == "wrong"
    assert "2000 bytes with DF: too long, the path's MTU is 1500" in outcome.detail


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize(
    ("name", "status", "answer"),
    [
        ("svc", "ok", "10.96.0.7"),
        ("svc.default", "ok", "10.96.0.7"),
        ("SVC.default.svc.cluster.local", "ok", "10.96.0.7"),
        ("else.where.", "ok", "10.9.9.9"),
        ("nobody", "no-such-name", None),
        ("svc.", "no-such-name", None),
    ],
)
def test_names_are_resolved_as_the_resolver_file_specifies(world, protocol, name, status, answer):
    # The address of the probe is not the server's: the file is the truth.
    outcome = world.ask("a", A, port=53, protocol=protocol, name=name)
    assert (outcome.status, outcome.answer) == (status, answer)
    assert outcome.latency_ms > 0


def test_a_source_that_cannot_send_is_an_error_and_the_others_are_probed(world):
    world.run(f"echo 'nameserver {A}' > /run/resolv/client")
    name = {"port": 53, "protocol": "udp", "name": "svc"}
    probes = [a_probe("client", A, key=0, **name), a_probe("c", C, key=1, **name)]
    probes += [a_probe("gone", B, key=2), a_probe("a", B, key=3)]
    outcomes = world.probe(probes)
    assert [outcomes[key].status for key in range(4)] == ["refused", "error", "error", "ok"]
    assert outcomes[0].detail.startswith(f"asking {A} for 'svc.', ")
    assert "/run/resolv/c" in outcomes[1].detail
    assert "cannot enter the namespace of 'gone'" in outcomes[2].detail


def test_what_cannot_be_sent_at_all_is_an_error(world):
    assert world.ask("a", B, port=70_000).status == "error"
    assert world.ask("a", B, protocol="udp", size="large", mtu=40).status == "error"
    assert world.ask("a", "nonsense").status == "error"


def test_few_descriptors_slow_the_prober_and_change_nothing(world):
    def probe_with_few() -> list[str]:
        free = len(list(Path("/proc/self/fd").iterdir())) + 8
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
        probes = [a_probe(source, B, key=key) for key, source in enumerate("ac" * 50)]
        outcomes = prober.probe(namespaces.enter, probes, ProbeSettings(0.5, 64), lambda _: None)
        return [outcomes[key].status for key in range(100)]

    assert world.call(probe_with_few, list[str]) == ["ok"] * 100


def test_a_responder_killed_in_mid_run_leaves_an_outcome_for_every_key(world):
    world.respond("second", [{"namespace": "b", "name": "b2", "tcp": [8085], "udp": []}])

    def probe_and_kill() -> dict[int, str]:
        victim = int(Path("/run/second.pid").read_text(encoding="ascii"))
        killed = []
        told = [0]

        def report(fresh: Sequence[Outcome]) -> None:
            told.append(told[-1] + len(fresh))
            if told[-1] >= 100 and not killed:
                killed.append(os.kill(victim, signal.SIGKILL))

        probes = [a_probe("a", B, port=8085, key=key) for key in range(5000)]
        outcomes = prober.probe(namespaces.enter, probes, ProbeSettings(0.5, 64), report)
        assert told[-1] == len(probes)
        return {key: outcome.status for key, outcome in outcomes.items()}

    statuses = world.call(probe_and_kill, dict[int, str])
    assert sorted(statuses) == list(range(5000))
    assert {"ok", "refused"} <= set(statuses.values())
    assert set(statuses.values()) <= {"ok", "refused", "wrong", "timeout"}


def test_a_slow_target_is_not_flooded_into_timeouts(world):
    world.serve("slow", "b", SLOW)
    probes = [a_probe("a", B, port=8060, key=key) for key in range(500)]
    try:
        outcomes = world.probe(probes, timeout=0.5, in_flight=16)
    finally:
        world.stop("slow")
    assert {outcome.status for outcome in outcomes.values()} == {"ok"}


def test_time_in_which_the_machine_stood_still_does_not_count(world):
    world.serve("slow", "b", SLOW)

    def probe_with_gaps() -> set[str]:
        gaps: list[float] = []
        prober.monotonic = lambda: time.monotonic() + sum(gaps)  # type: ignore[attr-defined]

        ended: list[Outcome] = []

        def report(fresh: Sequence[Outcome]) -> None:
            ended.extend(fresh)
            if len(ended) < 400 and len(gaps) < 2:
                gaps.append(0.7)

        probes = [a_probe("a", B, port=8060, key=key) for key in range(400)]
        outcomes = prober.probe(namespaces.enter, probes, ProbeSettings(0.5, 16), report)
        assert len(gaps) == 2
        return {outcome.status for outcome in outcomes.values()}

    try:
        assert world.call(probe_with_gaps, set[str]) == {"ok"}
    finally:
        world.stop("slow")


def test_an_answer_that_has_come_is_taken_before_its_probe_is_given_up(world, monkeypatch):
    monkeypatch.setattr(prober, "_GAP_SECONDS", 1000.0)  # a gap shall count as time here
    world.respond("third", [{"namespace": "b", "name": "b3", "tcp": [], "udp": [8086]}])

    def asking() -> list[bool]:
        """Whether each socket that asks the responder has an answer that is not read."""
        rows = Path("/proc/thread-self/net/udp").read_text(encoding="ascii").splitlines()[1:]
        fields = [row.split() for row in rows]
        return [
            not field[4].endswith(":00000000") for field in fields if field[2].endswith(":1F96")
        ]

    def probe_and_stall() -> set[str]:
        server = int(Path("/run/third.pid").read_text(encoding="ascii"))
        os.kill(server, signal.SIGSTOP)
        gap: list[float] = []
        prober.monotonic = lambda: time.monotonic() + sum(gap)

        def report(_fresh: Sequence[Outcome]) -> None:
            if not gap and len(asking()) == 600:  # more than one look at epoll shows
                os.kill(server, signal.SIGCONT)
                Deadline(30).wait("all answers", lambda: all(asking()))
                gap.append(61.0)

        probes = [a_probe("a", B, port=8086, key=key, protocol="udp") for key in range(600)]
        outcomes = prober.probe(namespaces.enter, probes, ProbeSettings(60.0, 600), report)
        assert gap
        return {outcome.status for outcome in outcomes.values()}

    try:
        assert world.call(probe_and_stall, set[str]) == {"ok"}
    finally:
        world.stop("third")


def test_thousands_of_probes_of_every_kind_are_all_right(world):
    addresses = {"a": A, "b": B, "c": C}
    probes = []
    asked = []
    for _ in range(80):
        for source in addresses:
            for target, address in addresses.items():
                for protocol in ("tcp", "udp"):
                    for size in ("small", "large"):
                        facts = {"protocol": protocol, "size": size}
                        asked.append(target)
                        probes.append(a_probe(source, address, key=len(probes), **facts))
    outcomes = world.probe(probes, timeout=2.0, in_flight=256)
    wrong = [
        (probes[key], outcome)
        for key, outcome in outcomes.items()
        if (outcome.status, outcome.backends) != ("ok", (asked[key],))
        or outcome.source_seen != addresses[probes[key].source]
    ]
    assert len(outcomes) == 2880
    assert wrong == []


def test_a_probe_leaves_no_descriptor_behind(world):
    def descriptors_before_and_after() -> tuple[int, int]:
        directory = Path("/proc/self/fd")
        before = len(list(directory.iterdir()))
        kinds = [
            a_probe("a", B, key=1),
            a_probe("a", C, port=8081, key=2),
            a_probe("a", B, port=8090, key=3, protocol="udp"),
            a_probe("gone", B, key=4),
            a_probe("a", C, port=53, key=5, protocol="tcp", name="svc"),
        ]
        prober.probe(namespaces.enter, kinds, ProbeSettings(0.2, 8), lambda _: None)
        return before, len(list(directory.iterdir()))

    before, after = world.call(descriptors_before_and_after, tuple[int, int])
    assert after == before
