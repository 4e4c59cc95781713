"""The responder: its configuration, its sockets and its connections."""

import gc
import json
import os
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from lab._deadline import Deadline
from lab.providers.netns import dns, isolation, protocol, responder, socket_server


def test_a_configuration_is_read_entry_by_entry():
    text = json.dumps(
        [
            {"namespace": "n", "name": "p", "tcp": [8080], "udp": [8080, 9], "dns": None},
            {"namespace": "/x/y", "name": "d", "tcp": [], "udp": [], "dns": {"a.": ["1.2.3.4"]}},
            {"namespace": "m", "name": "m", "tcp": [1], "udp": [], "health": {"32000": ["web", 2]}},
        ]
    )
    pod, dns, node = responder.read_config(text)
    assert (pod.namespace, pod.name, pod.tcp, pod.udp) == ("n", "p", (8080,), (8080, 9))
    assert [one.sockets() for one in (pod, dns, node)] == [3, 2, 2]
    assert (dns.dns, node.health) == ({"a.": ["1.2.3.4"]}, {"32000": ["web", 2]})


@pytest.mark.parametrize("text", ["", "{}x", '[{"namespace": "n"}]'])
def test_a_broken_configuration_is_refused(text):
    with pytest.raises((ValueError, KeyError)):
        responder.read_config(text)


def test_the_limit_of_open_files_is_raised_and_never_lowered():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
        isolation.raise_descriptors(200)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (256, limits[1])
        isolation.raise_descriptors(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (300, limits[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_limit_that_may_not_be_raised_is_raised_as_far_as_it_goes(monkeypatch):
    asked: list[tuple[int, int]] = []

    def refuse_beyond_hard(_which: int, limits: tuple[int, int]) -> None:
        asked.append(limits)
        if limits[1] > 1000:
            raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1000))
    monkeypatch.setattr(resource, "setrlimit", refuse_beyond_hard)
    isolation.raise_descriptors(5000)
    assert asked == [(5000, 5000), (1000, 1000)]


GET = protocol.get_request("127.0.0.1", 80)


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def server():
    with socket_server.SocketServer() as server:
        yield server


@pytest.fixture
def connect(server, stack):
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    listener.setblocking(False)
    server.add_stream(listener, responder.http_responder(b"pod"))
    return lambda: stack.enter_context(socket.create_connection(listener.getsockname()))


def said(server: socket_server.SocketServer, client: socket.socket) -> bytes:
    """All that the client hears until the server closes the connection."""
    client.setblocking(False)
    heard = bytearray()

    def hear() -> bool:
        server.turn(0.01)
        try:
            data = client.recv(1 << 20)
        except BlockingIOError:
            return False
        heard.extend(data)
        return not data

    Deadline(10.0).wait("hearing the server out", hear, every=0.0)
    return bytes(heard)


def answer(server: socket_server.SocketServer, client: socket.socket) -> protocol.Reply:
    reply = protocol.read_reply(said(server, client))
    assert reply is not None
    return reply


def turn_until(server: socket_server.SocketServer, met: Callable[[], bool]) -> None:
    def look() -> bool:
        server.turn(0.01)
        return met()

    Deadline(10.0).wait("turning the server", look, every=0.0)


def test_a_request_in_one_piece_is_answered_with_the_client_it_came_from(server, connect):
    client = connect()
    client.sendall(GET)
    reply = answer(server, client)
    host, port = client.getsockname()
    assert (reply.status, reply.endpoint, reply.client) == (200, "pod", f"{host}:{port}")
    assert not server._connections


def test_a_request_byte_by_byte_is_answered(server, connect):
    client = connect()
    for at in range(len(GET)):
        client.sendall(GET[at : at + 1])
        server.turn(0.05)
    assert answer(server, client).status == 200


def test_the_largest_body_comes_back_and_a_larger_one_is_refused(server, connect):
    body = os.urandom(protocol.BODY_LIMIT)
    client = connect()
    client.setblocking(False)
    request = protocol.echo_request("127.0.0.1", 80, body)
    sent = 0

    def send() -> bool:
        nonlocal sent
        try:
            sent += client.send(request[sent:])
        except BlockingIOError:
            return False
        return sent == len(request)

    turn_until(server, send)
    assert answer(server, client).body == body
    larger = connect()
    larger.sendall(protocol.echo_request("127.0.0.1", 80, body + b"x")[:500])
    larger.shutdown(socket.SHUT_WR)
    assert answer(server, larger).status == 413


def test_a_refusal_is_heard_by_a_client_that_is_still_sending(server, connect):
    garbage = connect()
    garbage.sendall(b"\x16\x03\x01\x02\n")
    garbage.shutdown(socket.SHUT_WR)
    assert answer(server, garbage).status == 400
    client = connect()
    client.sendall(b"POST /echo HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n" + bytes(50_000))
    server.turn(1.0)
    client.sendall(bytes(50_000))
    client.shutdown(socket.SHUT_WR)
    assert answer(server, client).status == 413


def test_a_waiting_client_gets_one_100_continue(server, connect):
    client = connect()
    head = b"POST /echo HTTP/1.1\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
    client.sendall(head)
    server.turn(1.0)
    assert client.recv(100) == protocol.CONTINUE
    client.sendall(b"bo")
    server.turn(1.0)
    client.sendall(b"dy")
    assert answer(server, client).body == b"body"


def test_a_silent_client_is_dropped_when_its_time_is_up(server, connect, monkeypatch):
    monkeypatch.setattr(socket_server, "CONNECTION_SECONDS", 0.0)
    monkeypatch.setattr(socket_server, "_SWEEP_SECONDS", 0.0)
    assert said(server, connect()) == b""
    assert not server._connections


def test_a_reset_in_the_middle_leaves_nothing_behind(server, connect):
    client = connect()
    client.sendall(GET[:10])
    server.turn(1.0)
    assert len(server._connections) == 1
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    turn_until(server, lambda: not server._connections)
    assert (server._held, len(server._handlers)) == (0, 1)


def test_the_oldest_slow_client_gives_way_at_the_limit(server, connect, monkeypatch):
    monkeypatch.setattr(socket_server, "CONNECTIONS_LIMIT", 3)
    clients = [connect() for _ in range(5)]
    for client in clients:
        client.sendall(GET[:10])
        server.turn(1.0)
    assert len(server._connections) == 3
    assert said(server, clients[0]) == b""
    clients[4].sendall(GET[10:])
    assert answer(server, clients[4]).status == 200


def test_a_round_serves_all_clients_of_a_socket_then_the_pulse(server, stack, tmp_path, connect):
    def new(family: int) -> socket.socket:
        return stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))

    echo, pulses = new(socket.AF_INET), new(socket.AF_UNIX)
    echo.bind(("127.0.0.1", 0))
    echo.setblocking(False)
    server.add_datagrams(echo, responder.echo_responder(b"pod"))
    pulses.bind(str(tmp_path / "socket"))
    pulses.setblocking(False)
    server.add_listener(pulses, lambda: responder.answer_pulse(pulses))
    streams = [connect() for _ in range(5)]
    for client in streams:
        client.sendall(GET)
    clients = [new(socket.AF_INET) for _ in range(5)]
    for client in clients:
        client.sendto(protocol.datagram(1, b"x" * 40, fragments=False), echo.getsockname())
    pulse = new(socket.AF_UNIX)
    pulse.bind("")
    pulse.connect(pulses.getsockname())
    pulse.send(b"pulse")
    server.turn(5.0)
    heard = [client.recv(100, socket.MSG_DONTWAIT) for client in (*streams, *clients, pulse)]
    assert all(heard)
    assert heard[-1] == b"pulse"


def test_a_round_passes_on_all_answers_of_another_server(server, stack):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    stack.enter_context(ours)
    stack.enter_context(theirs)
    ours.setblocking(False)
    forwarder, passed = dns.Forwarder(ours), []
    server.add_listener(ours, forwarder.hear)
    for number in range(5):
        forwarder.ask(dns.with_id(bytes(12), number), passed.append)
        theirs.send(theirs.recv(100))
    server.turn(5.0)
    assert [dns.message_id(answer) for answer in passed] == [0, 1, 2, 3, 4]


def test_unfinished_requests_are_bounded_in_bytes(server, connect, monkeypatch):
    monkeypatch.setattr(socket_server, "BYTES_LIMIT", 100)
    clients = [connect() for _ in range(5)]
    for client in clients:
        client.sendall(b"GET /" + b"x" * 60)
        server.turn(1.0)
    assert server._held <= 3 * 65


@contextmanager
def few_descriptors(more: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + more, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_without_descriptors_slow_clients_give_way_to_the_next(server, connect):
    slow = [connect() for _ in range(4)]
    quick = connect()
    quick.sendall(GET)
    for client in slow:
        client.sendall(GET[:10])
    gc.collect()
    with few_descriptors(2):
        assert answer(server, quick).status == 200


def test_out_of_descriptors_altogether_the_server_waits_and_goes_on(server, connect, capfd):
    client = connect()
    client.sendall(GET)
    held = []
    with few_descriptors(1):
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            server.turn(1.0)
            server.turn(1.0)
    for descriptor in held:
        os.close(descriptor)
    assert answer(server, client).status == 200
    assert capfd.readouterr().err == "responder: accept: Too many open files\n"


def test_a_defect_in_one_answer_is_reported_and_the_others_are_served(
    server, stack, connect, capfd
):
    def broken(_data: bytearray, _client: bytes, _answered: bool) -> socket_server.ResponderAnswer:
        raise KeyError("odd")

    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    server.add_stream(listener, broken)
    for _ in range(2):
        unlucky = stack.enter_context(socket.create_connection(listener.getsockname()))
        unlucky.sendall(GET)
        assert said(server, unlucky) == b""
    client = connect()
    client.sendall(GET)
    assert answer(server, client).status == 200
    assert capfd.readouterr().err == "responder: KeyError: 'odd'\n"


def test_thousands_of_connections_leave_no_memory_and_no_descriptor_behind(server, connect):
    for _ in range(2000):
        with connect() as client:
            client.sendall(GET)
            server.turn(1.0)
    assert (len(server._handlers), len(server._connections), server._held) == (1, 0, 0)


def test_a_stream_is_answered_with_its_rate_and_not_kept(server, connect, monkeypatch):
    monkeypatch.setattr(protocol, "WARM_UP_SECONDS", 0.01)
    monkeypatch.setattr(protocol, "MEASURED_SECONDS", 0.05)
    client = connect()
    client.setblocking(False)
    client.send(protocol.stream_request("127.0.0.1", 8080))
    heard = bytearray()

    def answered() -> bool:
        with suppress(BlockingIOError):
            client.send(bytes(65_536))
        with suppress(BlockingIOError):
            heard.extend(client.recv(65_536))
        return protocol.read_reply(heard) is not None

    turn_until(server, answered)
    reply = protocol.read_reply(heard)
    assert reply is not None
    assert protocol.read_throughput(reply) > 0
    assert server._held < 1_000  # the request alone
