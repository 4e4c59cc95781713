"""Every status of a probe, with real packets between namespaces."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prober_world import (
    DNS_RECORDS,
    NODE_OUTSIDE,
    SERVICE,
    UNREACHABLE,
    A,
    B,
    C,
    World,
    a_probe,
    enter,
)

from lab.providers.netns import prober
from lab.providers.provider import ProbeSettings

RESOLVER = f"nameserver {C}\nsearch default.svc.cluster.local svc.cluster.local\noptions ndots:5\n"

BROKEN = """
import socket, threading
def tcp(port, answer):
    listener = socket.create_server(("0.0.0.0", port))
    def serve():
        while True:
            connection, _ = listener.accept()
            data = b""
            while b"\\r\\n\\r\\n" not in data: data += connection.recv(65536)
            head, _, body = data.partition(b"\\r\\n\\r\\n")
            while b"POST" in head and len(body) < 65536: body += connection.recv(65536)
            connection.sendall(answer(body))
            connection.close()
    threading.Thread(target=serve).start()
def udp(port, answer):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("0.0.0.0", port))
    def serve():
        while True:
            data, client = sock.recvfrom(65536)
            sock.sendto(answer(data), client)
    threading.Thread(target=serve).start()
WHO = b"\\r\\nX-Endpoint: e\\r\\nX-Client: 1.2.3.4:5\\r\\nContent-Length: %d\\r\\n\\r\\n"
HEAD = b"HTTP/1.1 200 OK" + WHO
def flip(data): return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
def echo(data): return b"HLR1 " + data[5:21] + b" e 1.2.3.4:5\\n" + data[34:]
tcp(8070, lambda body: b"SSH-2.0-OpenSSH_9.6\\r\\n")
tcp(8071, lambda body: HEAD % len(body) + flip(body))
tcp(8072, lambda body: HEAD % 100 + b"short")
tcp(8073, lambda body: b"HTTP/1.1 502 Bad Gateway" + WHO % 0)
udp(8070, lambda data: b"what?")
udp(8071, lambda data: flip(echo(data)))
udp(8072, lambda data: echo(data)[:-8])
print("ready", flush=True)
"""

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
def world() -> Iterator[World]:
    world = World()
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


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_an_answered_probe_is_ok_and_says_who_answered_and_what_source_was_seen(
    world: World, protocol: str, size: str
) -> None:
    outcome = world.ask("a", B, protocol=protocol, size=size)
    assert (outcome.status, outcome.detail) == ("ok", "")
    assert (outcome.backends, outcome.source_seen) == (("b",), A)
    assert outcome.latency_ms > 0


def test_a_masqueraded_source_is_seen_as_the_node(world: World) -> None:
    assert world.ask("client", B).source_seen == "10.1.0.1"
    assert world.ask("client", B, protocol="udp").source_seen == "10.1.0.1"


def test_udp_is_answered_from_the_address_that_was_asked(world: World) -> None:
    outcome = world.ask("a", NODE_OUTSIDE, protocol="udp", size="large")
    assert (outcome.status, outcome.backends) == ("ok", ("node",))


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_dropped_probe_times_out(world: World, protocol: str, size: str) -> None:
    outcome = world.ask("a", C, port=8081, protocol=protocol, size=size)
    assert outcome.status == "timeout"
    assert "no reply in" in outcome.detail


def test_a_probe_dropped_by_its_own_source_is_a_timeout_like_any_other_loss(world: World) -> None:
    outcome = world.ask("a", B, port=8082, protocol="udp")
    assert outcome.status == "timeout"
    assert "packet filter" in outcome.detail


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_port_without_a_listener_refuses(world: World, protocol: str, size: str) -> None:
    assert world.ask("a", B, port=8090, protocol=protocol, size=size).status == "refused"


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_source_without_a_route_has_no_route(world: World, protocol: str) -> None:
    assert world.ask("lone", B, protocol=protocol).status == "no-route"


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_router_without_a_route_means_no_route(world: World, protocol: str) -> None:
    outcome = world.ask("a", UNREACHABLE, protocol=protocol)
    assert (outcome.status, "no route to host" in outcome.detail) == ("no-route", True)


def test_answers_that_are_not_what_was_asked_are_wrong(world: World) -> None:
    world.serve("broken", "b", BROKEN)
    asked = {
        "no HTTP answer": {"port": 8070},
        "damaged from byte 65527": {"port": 8071, "size": "large"},
        "the connection ended after": {"port": 8072},
        "status 502 from 'e'": {"port": 8073},
        "5 bytes that answer no datagram": {"port": 8070, "protocol": "udp"},
        "damaged from byte 55": {"port": 8071, "protocol": "udp"},
        "56 bytes came back of 64": {"port": 8072, "protocol": "udp"},
        "1500 bytes with DF: damaged from byte 1463; 3000 bytes in fragments: damaged": {
            "port": 8071,
            "protocol": "udp",
            "size": "large",
        },
    }
    try:
        for detail, facts in asked.items():
            outcome = world.ask("a", B, **facts)
            assert outcome.status == "wrong"
            assert detail in outcome.detail
    finally:
        world.stop("broken")


def test_a_connection_reset_in_the_middle_is_wrong(world: World) -> None:
    source = """
import socket, struct
listener = socket.create_server(("0.0.0.0", 8075))
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    connection.recv(10)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
"""
    world.serve("resetting", "b", source)
    try:
        outcome = world.ask("a", B, port=8075)
    finally:
        world.stop("resetting")
    assert (outcome.status, outcome.detail) == ("wrong", "answer: connection reset by peer")


def test_a_black_hole_passes_small_probes_and_swallows_large_ones(world: World) -> None:
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


def test_a_path_that_says_its_mtu_is_named_and_passes_as_soon_as_it_is_mended(
    world: World,
) -> None:
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


def test_a_datagram_longer_than_the_own_link_is_wrong_and_names_the_mtu(world: World) -> None:
    outcome = world.ask("a", B, protocol="udp", size="large", mtu=2000)
    assert outcome.status == "wrong"
    assert "2000 bytes with DF: too long, the path's MTU is 1500" in outcome.detail


def test_every_backend_of_a_service_is_found(world: World) -> None:
    outcome = world.ask("client", SERVICE, port=80, tries=64)
    assert (outcome.status, sorted(outcome.backends)) == ("ok", ["a", "b", "c"])
    assert outcome.detail == ""


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
def test_names_are_asked_as_the_resolver_file_says(
    world: World, protocol: str, name: str, status: str, answer: str | None
) -> None:
    # The address of the probe is not the server's: the file is the truth.
    outcome = world.ask("a", A, port=53, protocol=protocol, name=name)
    assert (outcome.status, outcome.answer) == (status, answer)
    assert outcome.latency_ms > 0


def test_a_name_server_that_is_not_there_refuses(world: World) -> None:
    world.run(f"echo 'nameserver {A}' > /run/resolv/client")
    outcome = world.ask("client", A, port=53, protocol="udp", name="svc")
    assert outcome.status == "refused"
    assert outcome.detail.startswith(f"asking {A} for 'svc.', ")


def test_a_source_without_a_resolver_file_is_an_error(world: World) -> None:
    outcome = world.ask("c", C, port=53, protocol="udp", name="svc")
    assert outcome.status == "error"
    assert "/run/resolv/c" in outcome.detail


def test_a_source_that_is_not_there_is_an_error_and_the_others_are_probed(world: World) -> None:
    outcomes = world.probe([a_probe("gone", B, key=1), a_probe("a", B, key=2)])
    assert (outcomes[1].status, outcomes[2].status) == ("error", "ok")
    assert "cannot enter the namespace of 'gone'" in outcomes[1].detail


def test_what_cannot_be_sent_at_all_is_an_error(world: World) -> None:
    assert world.ask("a", B, port=70_000).status == "error"
    assert world.ask("a", B, protocol="udp", size="large", mtu=40).status == "error"
    assert world.ask("a", "nonsense").status == "error"


def test_few_descriptors_slow_the_prober_and_change_nothing(world: World) -> None:
    def probe_with_few() -> list[str]:
        free = len(list(Path("/proc/self/fd").iterdir())) + 8
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
        probes = [a_probe(source, B, key=key) for key, source in enumerate("ac" * 50)]
        outcomes = prober.probe(enter, probes, ProbeSettings(0.5, 64), lambda _: None)
        return [outcomes[key].status for key in range(100)]

    assert world.call(probe_with_few) == ["ok"] * 100


def test_no_descriptors_at_all_are_an_error(world: World) -> None:
    def probe_with_none() -> list[str]:
        free = max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
        held = []
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            os.close(held.pop())  # for epoll itself
        outcomes = prober.probe(
            enter, [a_probe("a", B, key=key) for key in range(3)], ProbeSettings(0.5, 4), int
        )
        return [outcomes[key].status for key in range(3)]

    assert world.call(probe_with_none) == ["error"] * 3


def test_a_responder_killed_in_mid_run_leaves_an_outcome_for_every_key(world: World) -> None:
    world.respond("second", [{"namespace": "b", "name": "b2", "tcp": [8085], "udp": []}])

    def probe_and_kill() -> dict[int, str]:
        victim = int(Path("/run/second.pid").read_text(encoding="ascii"))
        killed = []

        def progress(ended: int) -> None:
            if ended >= 100 and not killed:
                killed.append(os.kill(victim, signal.SIGKILL))

        probes = [a_probe("a", B, port=8085, key=key) for key in range(5000)]
        outcomes = prober.probe(enter, probes, ProbeSettings(0.5, 64), progress)
        return {key: outcome.status for key, outcome in outcomes.items()}

    statuses = world.call(probe_and_kill)
    assert sorted(statuses) == list(range(5000))
    assert {"ok", "refused"} <= set(statuses.values())
    assert set(statuses.values()) <= {"ok", "refused", "wrong", "timeout"}


def test_a_slow_target_is_not_flooded_into_timeouts(world: World) -> None:
    world.serve("slow", "b", SLOW)
    probes = [a_probe("a", B, port=8060, key=key) for key in range(500)]
    try:
        outcomes = world.probe(probes, timeout=0.5, in_flight=16)
    finally:
        world.stop("slow")
    assert {outcome.status for outcome in outcomes.values()} == {"ok"}


def test_time_in_which_the_machine_stood_still_does_not_count(world: World) -> None:
    world.serve("slow", "b", SLOW)

    def probe_and_stall() -> set[str]:
        server = int(Path("/run/slow.pid").read_text(encoding="ascii"))
        stalled = []

        def progress(ended: int) -> None:
            if ended < 400 and len(stalled) < 2:  # prober and server stop together
                os.kill(server, signal.SIGSTOP)
                time.sleep(0.7)
                stalled.append(os.kill(server, signal.SIGCONT))

        probes = [a_probe("a", B, port=8060, key=key) for key in range(400)]
        outcomes = prober.probe(enter, probes, ProbeSettings(0.5, 16), progress)
        assert stalled
        return {outcome.status for outcome in outcomes.values()}

    try:
        assert world.call(probe_and_stall) == {"ok"}
    finally:
        world.stop("slow")


def test_an_answer_that_has_come_is_taken_before_its_probe_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prober, "_GAP_SECONDS", 60.0)  # a stall shall count as time here
    world.respond("third", [{"namespace": "b", "name": "b3", "tcp": [], "udp": [8086]}])

    def probe_and_stall() -> set[str]:
        server = int(Path("/run/third.pid").read_text(encoding="ascii"))
        calls = []

        def progress(ended: int) -> None:
            calls.append(ended)
            if len(calls) == 1:
                os.kill(server, signal.SIGSTOP)
            elif len(calls) == 3:  # by now all 600 wait, more than one look at epoll shows
                os.kill(server, signal.SIGCONT)
                time.sleep(2.5)

        probes = [a_probe("a", B, port=8086, key=key, protocol="udp") for key in range(600)]
        outcomes = prober.probe(enter, probes, ProbeSettings(2.0, 600), progress)
        assert len(calls) > 3
        assert max(calls[:3]) < 300
        return {outcome.status for outcome in outcomes.values()}

    try:
        assert world.call(probe_and_stall) == {"ok"}
    finally:
        world.stop("third")


def test_progress_counts_up_to_all_probes(world: World) -> None:
    def probe() -> list[int]:
        told: list[int] = []
        probes = [a_probe("a", B, key=key) for key in range(300)]
        prober.probe(enter, probes, ProbeSettings(0.5, 32), told.append)
        return told

    told = world.call(probe)
    assert told == sorted(told)
    assert told[-1] == 300


def test_thousands_of_probes_of_every_kind_are_all_right(world: World) -> None:
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


def test_a_probe_leaves_no_descriptor_behind(world: World) -> None:
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
        prober.probe(enter, kinds, ProbeSettings(0.2, 8), lambda _: None)
        return before, len(list(directory.iterdir()))

    before, after = world.call(descriptors_before_and_after)
    assert after == before
