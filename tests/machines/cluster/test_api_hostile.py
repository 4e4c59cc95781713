"""An API server, or what stands before it, that drips, lies or breaks off: lost, and in time."""

import json
import socket
import struct
from collections.abc import Callable

import pytest
from rude_server import CLOSED, Conduct, RudeServer, certified, kubeconfig, status
from websockets_by_hand import frame

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.machines.cluster.api import Api, LostError, RefusedError, time, wait_for
from lab.machines.cluster.pod_exec import ExecResult

kubernetes = pytest.importorskip("kubernetes")
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
PODS = "/api/v1/pods"
SHORT, LONG = 0.5, 60.0


@pytest.fixture
def servers():
    rude_servers: list[RudeServer] = []
    yield rude_servers
    for rude_server in rude_servers:
        rude_server.end()


@pytest.fixture
def meet(servers, tmp_path):
    apis: list[Api] = []

    def make(conduct: Conduct) -> Api:
        servers.append(RudeServer(conduct))
        apis.append(Api(kubeconfig(tmp_path / f"{len(servers)}.conf", servers[-1].address)))
        return apis[-1]

    yield make
    for api in apis:
        api.close()


def said(body: bytes) -> Conduct:
    answer = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    return lambda connection: connection.sendall(answer)


DRIPS = {
    "head": (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    "body": (OK + b"Content-Length: 1000000\r\n\r\n{", b" "),
    "chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "lines": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n\n\r\n"),
}


@pytest.mark.parametrize("drip", DRIPS)
@pytest.mark.parametrize("how", ["ask", "watch"])
def test_an_answer_that_drips_is_lost_when_its_time_is_over(servers, meet, drip, how):
    api = meet(lambda connection: servers[0].drip(connection, *DRIPS[drip]))
    asks: dict[str, Callable[[], object]] = {
        "ask": lambda: api.ask("GET", PODS, Deadline(SHORT)),
        "watch": lambda: list(api.watch(PODS, "1", Deadline(SHORT))),
    }
    with pytest.raises(LostError, match=r"no answer in time|over before it was asked"):
        asks[how]()


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{}", b'{"metadata": {"resourceVersion": "1"}, "items": [null]}', b"[" * 100_000],
    ids=["list", "empty", "null", "deep"],
)
def test_an_answer_that_is_no_list_is_lost(meet, body):
    with pytest.raises(LostError, match="the answer is not a list"):
        meet(said(body)).listing(PODS, Deadline(LONG))


def test_a_server_that_is_not_well_is_asked_again_and_one_that_refuses_is_not(meet, monkeypatch):
    monkeypatch.setattr("lab.machines.cluster.api._AGAIN_SECONDS", 0.0)
    answers = ["500 Not Well", "", "200 OK", "403 Forbidden", "200 OK"]

    def conduct(connection) -> None:
        if line := answers.pop(0):
            head = f"HTTP/1.1 {line}\r\nConnection: close\r\nContent-Length: 2\r\n\r\n"
            connection.sendall(head.encode() + b"{}")

    api, deadline = meet(conduct), Deadline(LONG)

    def ask() -> object:
        return api.patiently("asking", lambda: api.ask("GET", PODS, deadline), deadline)

    assert ask() == {}
    with pytest.raises(RefusedError, match="403"):
        ask()
    assert answers == ["200 OK"]


SERVICE = {"kind": "Service", "metadata": {"name": "to-a", "labels": {"run": "1"}}}
EXISTING = f"200 {json.dumps(SERVICE)}"
REFUSED, ABSENT = '422 {"message": "port is already allocated"}', "404 {}"


def create(meet, answers: list[str], *, retry: bool = False) -> None:
    """Create a Service on a server with these answers; "" is one that is lost."""

    def conduct(connection) -> None:
        if answer := answers.pop(0):
            code, _, body = answer.partition(" ")
            head = f"HTTP/1.1 {code} -\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall((head + body).encode())

    meet(conduct).create_or_replace("/api/v1/services", SERVICE, Deadline(LONG), retry=retry)
    assert not answers


@pytest.mark.parametrize(
    ("answers", "retry"),
    [
        (["", REFUSED, EXISTING], False),
        (["", REFUSED, ABSENT, "201 {}"], False),
        ([REFUSED, ABSENT, "201 {}"], True),
    ],
    ids=["it exists", "it does not exist yet", "an earlier call's does not exist yet"],
)
def test_a_service_whose_first_answer_was_lost_holds_its_own_node_port(
    meet, monkeypatch, answers, retry
):
    monkeypatch.setattr("lab.machines.cluster.api._AGAIN_SECONDS", 0.0)
    create(meet, answers, retry=retry)


def test_a_service_whose_node_port_another_holds_is_refused_at_once(meet):
    with pytest.raises(RefusedError, match="already allocated"):
        create(meet, [REFUSED, ABSENT])


def test_a_user_s_own_request_needs_no_deadline(meet):
    """The fixture ``kube`` hands the client out."""
    api = meet(said(b'{"kind": "NodeList", "items": []}'))
    assert kubernetes.client.CoreV1Api(api.client).list_node().items == []


def test_an_event_of_nothing_is_lost(meet):
    body = b'{"type": "ADDED", "object": {}}\n'
    with pytest.raises(LostError, match="ADDED"):
        list(meet(said(body)).watch(PODS, "1", Deadline(LONG)))


def test_a_server_that_ends_each_watch_at_once_is_not_asked_as_fast_as_it_answers(
    meet, monkeypatch
):
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    lists = 0

    def missing(_objects: object) -> str:
        nonlocal lists
        lists += 1
        return "" if lists == 4 else "something"

    api = meet(said(b'{"metadata": {"resourceVersion": "1"}, "items": []}'))
    wait_for(api, PODS, missing, "waiting", Deadline(LONG))
    assert set(pauses) == {0.25}
    assert len(pauses) >= lists - 1  # an answer that is cut off is a pause more


def run(api: Api, seconds: float = LONG) -> ExecResult:
    return api.execute("n", "p", "c", ["curl", "--data", "a b&c"], Deadline(seconds), b"in")


def test_a_command_and_its_arguments_are_passed_unchanged(servers, meet):
    def conduct(connection) -> None:
        connection.sendall(frame(b"\x01out") + frame(b"\x02err") + status(status="Success"))
        connection.sendall(CLOSED)
        servers[0].over.wait(LONG)

    assert run(meet(conduct)) == ExecResult(0, "out", "err")
    line = servers[0].asked[0].split(b"\r\n")[0].decode()
    assert line.startswith("GET /api/v1/namespaces/n/pods/p/exec?container=c&command=curl&")
    assert "&command=--data&command=a%20b%26c&stdin=true&stdout=true" in line


@pytest.mark.parametrize(
    "why",
    [
        "Internal error occurred: error dialing backend: dial tcp 10.9.0.1:10250: i/o timeout",
        "Internal error occurred: unable to upgrade connection: empty server response",
    ],
)
def test_a_command_whose_kubelet_is_not_reached_is_lost(servers, meet, why):
    def conduct(connection) -> None:
        connection.sendall(status(status="Failure", message=why) + CLOSED)
        servers[0].over.wait(LONG)

    with pytest.raises(LostError, match=why.lower()):
        run(meet(conduct))


NO_CODE = {"status": "Failure", "message": "no such file"}
CODE = {"status": "Failure", "details": {"causes": [{"message": "7"}]}}


@pytest.mark.parametrize(
    ("last", "result"),
    [
        (status(**CODE), ExecResult(7, "part", "")),
        (status(**NO_CODE), ExecResult(126, "part", "no such file")),
    ],
)
def test_a_failing_command_is_reported_with_its_exit_code(servers, meet, last, result):
    def conduct(connection) -> None:
        connection.sendall(frame(b"\x01part") + last + CLOSED)
        servers[0].over.wait(LONG)

    assert run(meet(conduct)) == result


@pytest.mark.parametrize(
    "last",
    [CLOSED, b"", frame(b"\x03[{") + CLOSED, frame(b"\x03" + b"[" * 60_000) + CLOSED],
    ids=["closed", "cut", "no status", "deep"],
)
def test_a_command_without_a_reported_end_is_lost(servers, meet, last):
    def conduct(connection) -> None:
        connection.sendall(frame(b"\x01part") + last)
        connection.shutdown(1)
        connection.recv(65_536)

    with pytest.raises(LostError, match=r"running 'curl' in pod 'p'"):
        run(meet(conduct))
    assert servers[0].talks(Deadline(LONG)) == 0


def test_the_connection_of_a_command_whose_server_resets_it_is_closed(servers, meet):
    def conduct(connection) -> None:
        connection.sendall(frame(b"\x01part"))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with pytest.raises(LostError, match=r"running .curl. in pod .p."):
        run(meet(conduct))
    assert servers[0].talks(Deadline(LONG)) == 0


def flood(_server: RudeServer, connection: socket.socket) -> None:
    while True:
        connection.sendall(frame(b"\x01" + b"y\n" * 10_000))


def pour(_server: RudeServer, connection: socket.socket) -> None:
    """One message without end."""
    connection.sendall(b"\x82\x7f" + (1 << 40).to_bytes(8, "big"))
    while True:
        connection.sendall(b"y\n" * 10_000)


def drip(server: RudeServer, connection: socket.socket) -> None:
    server.drip(connection, b"HTTP/1.1 101 Switching Protocols\r\nX: ", b"a")


def fall_silent(_server: RudeServer, connection: socket.socket) -> None:
    while connection.recv(65_536):
        pass


GIVEN_UP = [(flood, True), (pour, True), (fall_silent, True), (drip, False), (fall_silent, False)]


@pytest.mark.parametrize(
    ("conduct", "switches"),
    GIVEN_UP,
    ids=["flood", "pour", "silent", "handshake drips", "handshake silent"],
)
@pytest.mark.parametrize("bare", [True, False], ids=["bare", "tls"])
def test_the_connection_of_a_command_that_is_given_up_is_closed(
    servers, tmp_path, conduct, switches, bare
):
    tls, ca = (None, None) if bare else certified(tmp_path)
    servers.append(RudeServer(lambda line: conduct(servers[0], line), tls, switches=switches))
    api = Api(kubeconfig(tmp_path / "config", servers[0].address, ca))
    assert api.server == servers[0].address  # the client is there before the time runs
    with pytest.raises(DeadlineError, match="not done within"):
        run(api, SHORT)
    assert servers[0].talks(Deadline(LONG)) == 0


def test_no_proxy_of_the_environment_is_asked_for_the_labs_own_network(servers, meet, monkeypatch):
    def conduct(connection) -> None:
        if b"Upgrade" in servers[0].asked[-1]:
            connection.sendall(status(status="Success") + CLOSED)
            servers[0].over.wait(LONG)
        else:
            said(b"{}")(connection)

    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://192.0.2.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    api = meet(conduct)
    assert api.ask("GET", PODS, Deadline(LONG)) == {}
    assert run(api).code == 0
