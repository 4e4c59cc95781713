"""One curl that asks everything a Windows pod has to ask, and what its output means."""

import json
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.machines.agents.exec_probes import (
    DIRECTORY,
    END_MARK,
    ONE_ADDRESS,
    ExecProber,
    ask_command,
    collect_command,
    in_order,
    plan_transfers,
    read_addresses,
    read_bodies,
    read_outcome,
    read_transfers,
)
from lab.machines.cluster.pod_exec import ExecResult
from lab.providers.provider import LARGE_TCP_BYTES, PROBE_PORT, Outcome, Probe, ProbeSettings

SETTINGS = ProbeSettings(1.5, 64)


def probe(**facts: Any) -> Probe:
    usual = {"key": 7, "source": "win1-p1", "protocol": "tcp", "size": "small"}
    usual |= {"address": "10.0.0.2", "port": 80, "mtu": 1450, "dialect": "netexec"}
    return Probe(**(usual | facts))


def ended(name: str, **facts: Any) -> str:
    usual: dict[str, object] = {"exitcode": 0, "http_code": 200, "size_download": 9}
    usual |= {"time_total": 0.0125, "remote_ip": "10.0.0.2", "errormsg": ""}
    return "\t".join(map(str, (f"{DIRECTORY}/{name}", *(usual | facts).values())))


def told(probe: Probe, lines: list[str], bodies: dict[str, str], errors: str = "") -> Outcome:
    printed = "".join(
        f"{body}\n{END_MARK}file://{DIRECTORY}/{name}\n" for name, body in bodies.items()
    )
    read = read_transfers("noise\n" + "\n".join(lines))
    transfers, addresses = plan_transfers(probe, SETTINGS), read_addresses(errors)
    return read_outcome(probe, transfers, read, read_bodies(printed), addresses)


GOOD = {"7-hostname": "worker1-p1", "7-clientip": "10.244.3.4:4242"}


def test_small_tcp_is_two_requests_and_both_answers():
    outcome = told(probe(), [ended("7-hostname"), ended("7-clientip")], GOOD)
    assert (outcome.status, outcome.backends, outcome.source_seen) == (
        "ok",
        ("worker1-p1",),
        "10.244.3.4",
    )
    assert outcome.latency_ms == pytest.approx(12.5)


@pytest.mark.parametrize(
    ("lines", "detail"),
    [
        (("7-hostname", "7-clientip"), "clientip: the answer could not be read from the pod"),
        (("7-hostname",), "clientip: curl did not report it"),
    ],
)
def test_what_was_not_collected_or_reported_is_a_probe_error(lines, detail):
    outcome = told(probe(), [ended(line) for line in lines], {"7-hostname": "worker1-p1"})
    assert (outcome.status, outcome.detail) == ("error", detail)


def test_large_tcp_is_judged_by_its_length():
    lines = [ended("7-hostname"), ended("7-clientip")]
    large = probe(size="large")
    assert told(large, [ended("7-body", size_download=65_536), *lines], GOOD).status == "ok"
    short = told(large, [ended("7-body", size_download=65_000), *lines], GOOD)
    assert (short.status, short.detail) == ("wrong", "body: echo of 65000 bytes for 65536")


@pytest.mark.parametrize(
    ("code", "message", "status"),
    [
        (28, "Connection timed out after 1500 milliseconds", "timeout"),
        (7, "Failed to connect to 10.0.0.2 port 80: Connection refused", "refused"),
        (7, "Failed to connect to 10.0.0.2 port 80: No route to host", "no-route"),
        (7, "Failed to connect to 10.0.0.2 port 80: Network is unreachable", "no-route"),
        (7, "Couldn't connect to server", "refused"),
        (52, "Empty reply from server", "wrong"),
        (56, "Recv failure: Connection reset by peer", "wrong"),
        (2, "Failed initialization", "error"),
    ],
)
def test_exit_code_of_curl_is_what_came_of_it(code, message, status):
    lines = [ended("7-hostname", exitcode=code, http_code=0, errormsg=message)]
    outcome = told(probe(), lines, {})
    assert (outcome.status, outcome.detail) == (status, f"hostname: {message}")


def dialled(responses: list[str] | None = None, errors: list[str] | None = None) -> str:
    return json.dumps(
        ({"responses": responses} if responses else {}) | ({"errors": errors} if errors else {})
    )


def udp(probe: Probe, **bodies: str) -> Outcome:
    names = {f"7-{part}": body for part, body in bodies.items()}
    return told(probe, [ended(name) for name in names], names)


def test_udp_is_dialled_by_the_pods_own_netexec():
    one = probe(protocol="udp")
    transfers = plan_transfers(one, SETTINGS)
    assert {urlsplit(each.url).netloc for each in transfers} == {"127.0.0.1:8080"}
    outcome = udp(one, hostname=dialled(["worker1-p1"]), clientip=dialled(["10.244.3.4:99"]))
    assert (outcome.status, outcome.backends, outcome.source_seen) == (
        "ok",
        ("worker1-p1",),
        "10.244.3.4",
    )


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("reading from udp connection failed. err:'read udp 10.0.0.1: i/o timeout'", "timeout"),
        ("read udp 10.0.0.1:5: wsarecv: An existing connection was forcibly closed", "refused"),
        ("read udp 10.0.0.1:5: recvfrom: connection refused", "refused"),
        ("write udp 10.0.0.1:5->10.0.0.2:80: wsasend: Access denied.", "timeout"),
        ("write udp 10.0.0.1:5->10.0.0.2:80: sendto: operation not permitted", "timeout"),
        (
            "wsasendto: A socket operation was attempted to an unreachable host",
            "no-route",
        ),
        ("something else", "wrong"),
    ],
)
def test_error_of_the_dialler_is_what_came_of_it(error, status):
    assert udp(probe(protocol="udp"), hostname=dialled(errors=[error])).status == status


def test_large_udp_never_exceeds_what_netexec_reads():
    for each in plan_transfers(probe(protocol="udp", size="large", mtu=8950), SETTINGS):
        request = parse_qs(urlsplit(each.url).query)["request"][0]
        assert len(request) <= 2048


def test_damaged_large_datagram_is_wrong():
    one = probe(protocol="udp", size="large")
    texts = {each.part: each.expected for each in plan_transfers(one, SETTINGS)}
    good = {"hostname": dialled(["w"]), "clientip": dialled(["1.2.3.4:5"])}
    whole, fragments = dialled([texts["whole"]]), dialled([texts["fragments"]])
    assert udp(one, **good, whole=whole, fragments=fragments).status == "ok"
    cut = dialled([texts["fragments"][:-1]])
    assert udp(one, **good, whole=whole, fragments=cut).status == "wrong"


def test_many_tries_are_dialled_and_collect_every_backend():
    one = probe(tries=64)
    assert all("tries=64" in each.url for each in plan_transfers(one, SETTINGS))
    outcome = udp(
        one,
        hostname=dialled(["a", "b", "a"]),
        clientip=dialled(["10.0.0.1:1", "10.0.0.9:2"]),
    )
    assert (outcome.backends, outcome.source_seen, outcome.other_sources) == (
        ("a", "b"),
        "10.0.0.1",
        ("10.0.0.9",),
    )


def test_name_is_looked_up_by_the_system():
    one = probe(name="to-a.hybridlab-probe", protocol="udp")
    assert told(one, [ended("7-name", remote_ip="10.96.0.7")], {}).answer == "10.96.0.7"
    message = "Could not resolve host: x"
    gone = told(one, [ended("7-name", exitcode=6, errormsg=message, remote_ip="")], {})
    assert gone.status == "no-such-name"


def test_name_of_a_node_is_looked_up_by_connecting_to_a_port_that_is_open_there():
    looked_up = probe(name="api.lab.", name_port=PROBE_PORT)
    (transfer,) = plan_transfers(looked_up, SETTINGS)
    assert transfer.url.startswith(f"http://api.lab.:{PROBE_PORT}/")
    connected = [ended("7-name", exitcode=52, http_code=0, remote_ip="10.0.0.253")]
    assert told(looked_up, connected, {}).answer == "10.0.0.253"
    closed = [ended("7-name", exitcode=7, http_code=0, remote_ip="", errormsg="")]
    assert told(looked_up, closed, {}).status == "refused"


def test_responder_of_the_lab_is_understood_too():
    one = probe(dialect="lab", port=8080)
    text = json.dumps({"endpoint": "worker1", "client": "10.244.3.4:5"})
    assert told(one, [ended("7-hostname")], {"7-hostname": text}).backends == ("worker1",)
    datagrams = probe(dialect="lab", protocol="udp", port=8080)
    head = f"HLR1 0000000000000000 worker1 10.244.3.4:5\n{'x' * 50}"
    assert udp(datagrams, hostname=dialled([head])).source_seen == "10.244.3.4"
    assert udp(datagrams, hostname=dialled(["nonsense"])).status == "wrong"


def sections(*probes: Probe) -> list[str]:
    transfers = {each.key: plan_transfers(each, SETTINGS) for each in probes}
    return ask_command(in_order(probes, transfers), 64)[1].split("next\n")


def test_configuration_has_options_once_and_an_address_and_a_file_for_each_transfer():
    probes = [probe(key=key, size="large") for key in range(3)]
    answers, bodies = sections(*probes)
    assert (answers.count("url = "), bodies.count("url = ")) == (6, 3)
    for section in (answers, bodies):
        assert section.count("url = ") == section.count("output = ")
        assert section.count("max-time = 1.5\n") == section.count("write-out") == 1
    assert "data = " not in answers
    (body,) = (line for line in bodies.splitlines() if line.startswith("data = "))
    assert len(body) == len('data = "msg="') + LARGE_TCP_BYTES
    every = [each for probe in probes for each in plan_transfers(probe, SETTINGS)]
    _, printed = collect_command(every)
    assert printed.count("url = ") == 6, "echoes over TCP stay where they are"


def test_probes_that_nobody_answers_begin_first_and_are_not_counted():
    silent = [probe(key=key, unanswered=True, address="10.0.0.9") for key in range(4)]
    first, second = sections(*[probe(key=9)], *silent)[0].split("10.0.0.2", 1)
    assert (first.count("10.0.0.9"), second.count("10.0.0.9")) == (8, 0)

    class Exec:
        commands: ClassVar[list[list[str]]] = []

        def execute(self, *arguments: Any) -> ExecResult:
            self.commands.append(arguments[3])
            return ExecResult(0, "", "")

    ExecProber(Exec(), "win1").probe(silent, SETTINGS, lambda _: None, Deadline(9))
    (asked,) = (command for command in Exec.commands if "--parallel" in command)
    assert asked[asked.index("--parallel-max") + 1] == str(SETTINGS.in_flight + 8)


def test_a_dialled_datagram_is_waited_for_as_long_as_any_other():
    (first, _) = plan_transfers(probe(protocol="udp", dialect="netexec"), ProbeSettings(1.0, 9))
    assert first.seconds == pytest.approx(1.0 + 2.0 + 0.1)


@pytest.mark.parametrize(
    "output", ["7-hostname", "/7-hostname\t0\t200", "/7-hostname\t0\t200\tmany\t1\t\t", "\t" * 5]
)
def test_damaged_output_is_passed_over(output):
    assert read_transfers(output) == {}


RESOLVED = """\
* Host by-name.probe.svc.lab.:80 was resolved.\r
* IPv6: (none)\r
* IPv4: 10.244.3.4, 10.244.1.10, 10.244.1.9\r
*   Trying 10.244.3.4:80...\r
* Host other:80 was resolved.
* IPv4: (none)
"""


def test_all_addresses_of_a_name_are_those_that_a_verbose_curl_names():
    every = probe(name="by-name.probe.svc.lab.", every=True)
    refused = [ended("7-name", exitcode=7, http_code=0, remote_ip="")]
    addresses = "10.244.1.9, 10.244.1.10, 10.244.3.4"
    assert told(every, refused, {}, RESOLVED).answer == addresses
    older = told(every, refused, {}, "*   Trying 10.244.3.4:80...\n")
    assert (older.status, older.detail) == ("error", f"name: {ONE_ADDRESS}")
    gone = [ended("7-name", exitcode=6, errormsg="Could not resolve host: x.invalid", remote_ip="")]
    outcome = told(every, gone, {})
    assert (outcome.status, outcome.detail) == (
        "no-such-name",
        "name: no address of by-name.probe.svc.lab.",
    )


def test_curl_is_verbose_where_all_addresses_of_a_name_are_asked_for():
    class Pod:
        def __init__(self) -> None:
            self.commands: list[list[str]] = []

        def execute(self, _: str, __: str, ___: str, command: list[str], *____: object):
            self.commands.append(command)
            return ExecResult(0, ended("7-name"), RESOLVED)

    for every in (True, False):
        pod = Pod()
        asked = probe(name="by-name.probe.svc.lab.", every=every)
        outcomes = ExecProber(pod, "win1").probe(  # type: ignore[arg-type]
            [asked], SETTINGS, lambda _: None, Deadline(5)
        )
        assert ("--verbose" in pod.commands[0]) is every
        assert outcomes[7].status == "ok"


@pytest.mark.parametrize(
    ("exitcode", "told_again", "status", "answer"),
    [
        (28, RESOLVED, "ok", "10.244.1.9, 10.244.1.10, 10.244.3.4"),
        (7, RESOLVED, "ok", "10.244.1.9, 10.244.1.10, 10.244.3.4"),
        (28, "", "timeout", None),
        (6, None, "no-such-name", None),
    ],
)
def test_a_name_is_resolved_though_nothing_answers_at_its_address(
    exitcode, told_again, status, answer
):
    class Pod:
        def __init__(self) -> None:
            self.verbose: list[bool] = []

        def execute(self, _: str, __: str, ___: str, command: list[str], *____: object):
            self.verbose.append("--verbose" in command)
            line = ended("7-name", exitcode=exitcode, http_code=0, remote_ip="", errormsg="no")
            return ExecResult(0, line, told_again if self.verbose[-1] else "")

    pod = Pod()
    outcomes = ExecProber(pod, "node").probe(  # type: ignore[arg-type]
        [probe(name="by-name.probe.svc.lab.")], SETTINGS, lambda _: None, Deadline(5)
    )
    assert (outcomes[7].status, outcomes[7].answer) == (status, answer)
    assert pod.verbose == ([False] if told_again is None else [False, True])


def test_a_pod_that_runs_no_command_answers_no_probe():
    class Silent:
        def execute(self, *_: object) -> ExecResult:
            raise BrokenError("running curl", "the pod is gone")

    outcomes = ExecProber(Silent(), "win1").probe(  # type: ignore[arg-type]
        [probe()], SETTINGS, lambda _: None, Deadline(5)
    )
    assert outcomes[7].detail == "cannot probe: running curl: the pod is gone"
