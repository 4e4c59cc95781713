"""Probes from a node without an agent: commands executed in its pods through the API server.

A pod of a Windows node, or of an existing cluster, runs one ``curl`` for all of its probes. The
agnhost image contains curl, and every pod runs netexec. curl itself sends TCP requests; for what
curl cannot send (UDP, or 64 tries) it asks the pod's own netexec (``/dial``), which opens a new
socket per request. So every answer expected from a target is one curl transfer:

- each body goes to its own file, and a second curl prints them one after another: on one output,
  the bodies of parallel transfers would mix;
- a large TCP probe is an echo of 64 KiB; only its length is checked;
- netexec's dialler cannot set DF, and reads 2,048 bytes;
- the system resolves names and chooses between UDP and TCP; curl tells a name's address only once
  it has connected there, and with ``--verbose`` all of them. Names whose address does not answer
  (a pod's own Service, where hairpins fail) are asked for again in that way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from itertools import chain, groupby
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlencode

from lab._deadline import Deadline
from lab._errors import LabError
from lab.machines.agents.fleet import as_ended
from lab.machines.cluster.probe_manifests import host_pod_name
from lab.providers.netns.dialects import BUFFER_BYTES, FILLING
from lab.providers.netns.protocol import IP_UDP_BYTES
from lab.providers.provider import (
    LARGE_TCP_BYTES,
    PROBE_PORT,
    Outcome,
    Probe,
    ProbeSettings,
    ProbeStatus,
)
from lab.topology.observed import NAMESPACE

if TYPE_CHECKING:
    from lab.machines.cluster.api import Api  # imports the kubernetes client
    from lab.machines.cluster.pod_exec import ExecResult

Part = Literal["hostname", "clientip", "whole", "fragments", "body", "name"]

DIRECTORY = "/tmp/hybridlab-probe"  # noqa: S108  inside our own pod
"""Created in the pod by the first write; a HostProcess pod writes to the node's disk."""
_DIALLERS_START = 2.0
"""Seconds until netexec's dialler has sent its request. It waits 5 s for an answer; curl does not
wait for it longer than for any other.
"""
_PARALLEL_LIMIT = 300
"""curl's own limit."""
_TEXT = FILLING.hex()
_ECHO = "echo "


@dataclass(frozen=True, slots=True)
class Transfer:
    """One curl transfer."""

    key: int
    part: Part
    url: str
    seconds: float
    dialled: bool
    """True if netexec's dialler asks the target; the answer is then JSON."""
    expected: str = ""

    @property
    def file(self) -> str:
        """The file for its body."""
        return f"{DIRECTORY}/{self.name}"

    @property
    def name(self) -> str:
        """Its name in curl's output."""
        return f"{self.key}-{self.part}"


def plan_transfers(
    probe: Probe, settings: ProbeSettings, own_port: int = PROBE_PORT
) -> tuple[Transfer, ...]:
    """The transfers for one probe. ``own_port``: that of netexec in the source's own pod."""
    if probe.name is not None:
        url = f"http://{probe.name}:{probe.name_port}/hostname"
        return (Transfer(probe.key, "name", url, settings.timeout, dialled=False),)
    if probe.dialect == "lab":
        return tuple(_lab_transfers(probe, settings, own_port))
    return tuple(_netexec_transfers(probe, settings, own_port))


def _lab_transfers(probe: Probe, settings: ProbeSettings, own_port: int) -> Iterator[Transfer]:
    """The lab's responder gives everything in one answer."""
    url = f"http://{probe.address}:{probe.port}/"
    if probe.protocol == "tcp":
        if probe.size == "large":
            yield Transfer(probe.key, "body", f"{url}echo", settings.timeout, dialled=False)
        yield Transfer(probe.key, "hostname", url, settings.timeout, dialled=False)
        return
    # The responder echoes a foreign datagram behind a header that names endpoint and client.
    yield _dial(probe, settings, own_port, "hostname", "x" * 100, 1)
    if probe.size == "large":
        whole, fragments = datagram_sizes(probe.mtu)
        yield _dial(probe, settings, own_port, "whole", _TEXT[:whole], 1)
        yield _dial(probe, settings, own_port, "fragments", _TEXT[:fragments], 1)


def _netexec_transfers(probe: Probe, settings: ProbeSettings, own_port: int) -> Iterator[Transfer]:
    if probe.protocol == "tcp" and probe.tries == 1:
        url = f"http://{probe.address}:{probe.port}"
        if probe.size == "large":
            yield Transfer(probe.key, "body", f"{url}/echo", settings.timeout, dialled=False)
        yield Transfer(probe.key, "hostname", f"{url}/hostname", settings.timeout, dialled=False)
        yield Transfer(probe.key, "clientip", f"{url}/clientip", settings.timeout, dialled=False)
        return
    yield _dial(probe, settings, own_port, "hostname", "hostname", probe.tries)
    yield _dial(probe, settings, own_port, "clientip", "clientip", probe.tries)
    if probe.protocol == "udp" and probe.size == "large":
        whole, fragments = datagram_sizes(probe.mtu)
        yield _dial(probe, settings, own_port, "whole", _ECHO + _TEXT[: whole - len(_ECHO)], 1)
        yield _dial(
            probe, settings, own_port, "fragments", _ECHO + _TEXT[: fragments - len(_ECHO)], 1
        )


def datagram_sizes(mtu: int) -> tuple[int, int]:
    """Bytes of a datagram at the path MTU, and of a fragmented one; limited by netexec."""
    return min(mtu - IP_UDP_BYTES, BUFFER_BYTES), BUFFER_BYTES


def _dial(  # noqa: PLR0913, PLR0917  one request to the dialler
    probe: Probe, settings: ProbeSettings, own_port: int, part: Part, request: str, tries: int
) -> Transfer:
    query = {
        "host": probe.address,
        "port": probe.port,
        "protocol": "udp" if probe.protocol == "udp" else "http",
        "request": request,
        "tries": tries,
    }
    expected = request.removeprefix(_ECHO) if part in {"whole", "fragments"} else ""
    seconds = settings.timeout + _DIALLERS_START + 0.1 * tries
    url = f"http://127.0.0.1:{own_port}/dial?{urlencode(query)}"
    return Transfer(probe.key, part, url, seconds, dialled=True, expected=expected)


def in_order(
    probes: Sequence[Probe], transfers: Mapping[int, Sequence[Transfer]]
) -> list[Transfer]:
    """The transfers of all probes: those that get no answer first, then by curl's options.

    The former only wait: begun last, each would hold the others' end up.
    """
    waiting = {probe.key for probe in probes if probe.unanswered}
    every = chain.from_iterable(transfers.values())
    return sorted(every, key=lambda each: (each.key not in waiting, *_options(each)))


def ask_command(
    transfers: Sequence[Transfer], at_once: int, *, verbose: bool = False
) -> tuple[list[str], str]:
    """Command and standard input of the one curl that runs all transfers in parallel.

    ``at_once``: how many are in flight. ``verbose``: whether it says all addresses of names.
    """
    limit = str(max(1, min(at_once, _PARALLEL_LIMIT)))
    command = ["curl", "--silent", "--parallel", "--parallel-immediate"]
    command += ["--parallel-max", limit, *(["--verbose"] if verbose else []), "--config", "-"]
    return command, "next\n".join(
        _section(is_body, seconds, list(own))
        for (is_body, seconds), own in groupby(transfers, _options)
    )


_FIELDS = (
    "filename_effective",
    "exitcode",
    "http_code",
    "size_download",
    "time_total",
    "remote_ip",
    "errormsg",
)
"""Names of curl's write-out variables (7.75 or later), the message last. Of all of them, as JSON,
curl prints 1,500 bytes a transfer, and most of a probe's time would be theirs."""
_REPORT = "\\t".join(f"%{{{field}}}" for field in _FIELDS)


def _options(transfer: Transfer) -> tuple[bool, float]:
    """What differs in curl's options: whether it posts a large body, and its seconds."""
    return transfer.part == "body", transfer.seconds


def _section(is_body: bool, seconds: float, transfers: Sequence[Transfer]) -> str:
    """Transfers with the same options: they are written once."""
    options = ['noproxy = "*"', "create-dirs", f"max-time = {seconds:g}"]
    options.append(f'write-out = "{_REPORT}\\n"')
    if is_body:
        options.append(f"data = {_quote('msg=' + _TEXT[:LARGE_TCP_BYTES])}")
    pairs = (
        f"url = {_quote(transfer.url)}\noutput = {_quote(transfer.file)}" for transfer in transfers
    )
    return "".join(f"{line}\n" for line in (*options, *pairs))


def collect_command(transfers: Sequence[Transfer]) -> tuple[list[str], str]:
    """Command and standard input that print every body, each followed by its transfer's name.

    TCP echoes and name look-ups are omitted; the input is empty if there is nothing else.
    """
    urls = [
        f"url = {_quote('file://' + transfer.file)}\n"
        for transfer in transfers
        if transfer.part not in {"body", "name"}
    ]
    end = f'write-out = "\\n{END_MARK}%{{url_effective}}\\n"\n'
    return ["curl", "--silent", "--config", "-"], end + "".join(urls) if urls else ""


END_MARK = "--hybridlab-end--"
"""Follows each body, with the address of its file; no answer contains it."""


def _quote(text: str) -> str:
    """Quoted for curl's configuration file: backslash and quote escaped."""
    return json.dumps(text)


_OK = 200
_NO_SUCH_NAME = 6
_BY_EXIT: Mapping[int, ProbeStatus] = {
    7: "refused",
    18: "wrong",
    28: "timeout",
    52: "wrong",
    55: "wrong",
    56: "wrong",
}
"""Status by curl's exit code; any other code says nothing about the network."""
_BY_WORDS: tuple[tuple[str, ProbeStatus], ...] = (
    ("unreachable", "no-route"),
    ("no route", "no-route"),
    ("refused", "refused"),
    ("forcibly closed", "refused"),  # a UDP socket's error for a closed port on Windows
    ("timeout", "timeout"),
    ("timed out", "timeout"),
    ("deadline exceeded", "timeout"),
    ("did not properly respond", "timeout"),
    # a packet filter at the source dropped it: EPERM on Linux, as Wine passes it on
    ("operation not permitted", "timeout"),
    ("access denied", "timeout"),
)
"""Phrases in error messages of curl, and of Go on both systems; the first match counts."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of one transfer."""

    exit_code: int
    status: int
    bytes: int
    milliseconds: float
    remote: str
    error: str
    body: str | None = None
    """None if it was not collected."""


def read_transfers(output: str) -> dict[str, Ended]:
    """Read curl's report of each transfer, by name; other lines are skipped."""
    transfers: dict[str, Ended] = {}
    for line in output.splitlines():
        fields = line.split("\t", len(_FIELDS) - 1)
        if len(fields) == len(_FIELDS):
            report = dict(zip(_FIELDS, fields, strict=True))
            with suppress(ValueError):
                transfers[_name_of(report["filename_effective"])] = _parse_end(report)
    return transfers


def _name_of(path: str) -> str:
    """The name of the transfer whose body is in this file."""
    return path.rpartition("/")[2].strip()


def _parse_end(report: Mapping[str, str]) -> Ended:
    return Ended(
        exit_code=int(report["exitcode"]),
        status=int(report["http_code"]),
        bytes=int(report["size_download"]),
        milliseconds=1000 * float(report["time_total"]),
        remote=report["remote_ip"],
        error=report["errormsg"],
    )


def read_bodies(output: str) -> dict[str, str]:
    """The bodies that the second curl printed, by transfer name."""
    bodies: dict[str, str] = {}
    body, *parts = output.replace("\r\n", "\n").split(f"\n{END_MARK}")
    for part in parts:
        path, _, following = part.partition("\n")
        bodies[_name_of(path)] = body
        body = following
    return bodies


_RESOLVED = re.compile(
    r"^\* Host (?P<name>\S+):\d+ was resolved\.\r?\n(?:\* IPv6:.*\n)?"
    r"\* IPv4: (?P<addresses>.+?)\r?$",
    re.MULTILINE,
)
"""What curl says of a name from 8.6 on."""


def read_addresses(errors: str) -> dict[str, str]:
    """All addresses of each name that a verbose curl resolved, sorted and separated by commas."""
    addresses_by_name: dict[str, str] = {}
    for resolved in _RESOLVED.finditer(errors):
        with suppress(ValueError):  # "(none)"
            addresses = sorted({*map(IPv4Address, resolved["addresses"].split(", "))})
            addresses_by_name[resolved["name"].rstrip(".")] = ", ".join(map(str, addresses))
    return addresses_by_name


def find_unconnected(
    transfers: Sequence[Transfer], ended: Mapping[str, Ended]
) -> tuple[Transfer, ...]:
    """The names that may have been resolved, but whose address did not answer curl."""
    return tuple(
        transfer
        for transfer in transfers
        if transfer.part == "name"
        and (end := ended.get(transfer.name))
        and not end.remote
        and end.exit_code not in {0, _NO_SUCH_NAME}
    )


def read_outcome(
    probe: Probe,
    transfers: Sequence[Transfer],
    ended: Mapping[str, Ended],
    bodies: Mapping[str, str],
    addresses: Mapping[str, str],
) -> Outcome:
    """The outcome of one probe: the first transfer that failed decides.

    ``addresses``: all addresses of names, of :func:`read_addresses`.
    """
    reader = _OutcomeReader(probe, addresses)
    for transfer in transfers:
        end = ended.get(transfer.name)
        if end is None:
            return reader.failed("error", f"{transfer.part}: curl did not report it")
        status, detail = reader.take(transfer, replace(end, body=bodies.get(transfer.name)))
        if status != "ok":
            return reader.failed(status, f"{transfer.part}: {detail}")
    return reader.failed("ok", "")


class _OutcomeReader:
    def __init__(self, probe: Probe, addresses: Mapping[str, str]) -> None:
        self._probe = probe
        self._addresses = addresses
        self._names: dict[str, None] = {}
        self._clients: dict[str, None] = {}
        self._answer: str | None = None
        self._latency = 0.0

    def take(self, transfer: Transfer, end: Ended) -> tuple[ProbeStatus, str]:
        self._latency = self._latency or end.milliseconds
        if self._probe.every and end.exit_code != _NO_SUCH_NAME:
            self._answer = self._resolved(end)
            return ("ok", "") if self._answer else ("error", ONE_ADDRESS)
        if transfer.part == "name" and (answer := end.remote or self._resolved(end)):
            self._answer = answer  # whatever is there, and whether it answers
            return "ok", ""
        if end.exit_code:
            return _by_exit(end, self._probe)
        if end.status != _OK:
            return "wrong", f"HTTP status {end.status}"
        if transfer.part == "body":
            whole = end.bytes == LARGE_TCP_BYTES
            return ("ok", "") if whole or self._probe.dialect == "lab" else _short(end.bytes)
        return self._answered(transfer, end.body)

    def _resolved(self, end: Ended) -> str | None:
        """The addresses of the probe's name, as a verbose curl told them."""
        name = str(self._probe.name).rstrip(".")
        return None if end.exit_code == _NO_SUCH_NAME else self._addresses.get(name)

    def _answered(self, transfer: Transfer, body: str | None) -> tuple[ProbeStatus, str]:
        if body is None:
            return "error", "the answer could not be read from the pod"
        if not transfer.dialled:
            return self._read_answers(transfer, [body])
        return self._dialled(transfer, body)

    def _dialled(self, transfer: Transfer, body: str) -> tuple[ProbeStatus, str]:
        try:
            document = json.loads(body)
            errors, answers = (
                list(document.get("errors") or ()),
                list(document.get("responses") or ()),
            )
        except (ValueError, AttributeError, TypeError):
            return "error", f"netexec in the pod failed to dial: {body[:80]!r}"
        if errors:
            return _by_words(str(errors[0]))
        return self._read_answers(transfer, [str(answer) for answer in answers])

    def _read_answers(self, transfer: Transfer, answers: Sequence[str]) -> tuple[ProbeStatus, str]:
        if not answers:
            return "wrong", "an empty answer"
        if self._probe.dialect == "lab":
            return self._read_lab_answer(transfer, answers[0])
        for answer in answers:
            word = answer.strip().lower()
            if transfer.part == "hostname":
                self._names[word] = None
            elif transfer.part == "clientip":
                self._clients[word.rpartition(":")[0]] = None
            elif word != transfer.expected:
                return (
                    "wrong",
                    f"{len(word)} bytes came back instead of {len(transfer.expected)}, or damaged",
                )
        return "ok", ""

    def _read_lab_answer(self, transfer: Transfer, answer: str) -> tuple[ProbeStatus, str]:
        """Read JSON over HTTP; over UDP a header of four words and the rest of the datagram."""
        try:
            if self._probe.protocol == "tcp":
                document = json.loads(answer)
                name, client = str(document["endpoint"]), str(document["client"])
            else:
                head, _, rest = answer.partition("\n")
                _, _, name, client = head.split(" ")
                if transfer.expected and not transfer.expected.endswith(rest):
                    return "wrong", "a damaged echo"
        except (ValueError, KeyError, TypeError):
            return "wrong", f"not an endpoint of the lab: {answer[:80]!r}"
        self._names[name] = None
        self._clients[client.rpartition(":")[0]] = None
        return "ok", ""

    def failed(self, status: ProbeStatus, detail: str) -> Outcome:
        first, *others = self._clients or (None,)
        return Outcome(
            self._probe.key,
            status,
            detail,
            first,
            tuple(self._names),
            self._answer,
            self._latency,
            tuple(failure for failure in others if failure is not None),
        )


def _by_exit(end: Ended, probe: Probe) -> tuple[ProbeStatus, str]:
    if end.exit_code == _NO_SUCH_NAME:
        return "no-such-name", f"no address of {probe.name or probe.address}"
    status = _BY_EXIT.get(end.exit_code, "error")
    if status == "refused":
        status = next(
            (status_of_words for words, status_of_words in _BY_WORDS if words in end.error.lower()),
            status,
        )
    return status, end.error or f"curl's exit code {end.exit_code}"


def _by_words(error: str) -> tuple[ProbeStatus, str]:
    low = error.lower()
    return next((status for words, status in _BY_WORDS if words in low), "wrong"), error


def _short(length: int) -> tuple[ProbeStatus, str]:
    return "wrong", f"echo of {length} bytes for {LARGE_TCP_BYTES}"


_CONTAINER = "netexec"
_START_SECONDS = 20.0
"""Overhead of an exec; high for a HostProcess container."""
ONE_ADDRESS = (
    "cannot probe: curl, the only tool in such a pod, reports only one of a name's addresses "
    "before 8.6"
)


class ExecProber:
    """The prober of one node; its sources are the node and its pods.

    Parameters
    ----------
    api
        The cluster's API server.
    node
        The node's name. If the node is the source, a pod in its own network sends.
    namespace
        The namespace of the pods.
    host
        That pod, and the port of netexec in it; by default those of a Windows node of a lab.

    """

    def __init__(
        self,
        api: Api,
        node: str,
        namespace: str = NAMESPACE,
        host: tuple[str, int] | None = None,
    ) -> None:
        self._api = api
        self._node = node
        self._space = namespace
        self._host = host or (host_pod_name(node), PROBE_PORT)

    def probe(
        self,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
        deadline: Deadline,
    ) -> Mapping[int, Outcome]:
        """Run every probe, all sources in parallel, with one exec per source.

        Every key has an outcome; if a source cannot run commands, an error with the reason.
        """
        by_source: dict[str, list[Probe]] = {}
        for probe in probes:
            by_source.setdefault(probe.source, []).append(probe)
        gathered: dict[int, Outcome] = {}

        def of_source(source: str) -> dict[int, Outcome]:
            return self._of_source(source, by_source[source], settings, deadline)

        def report() -> None:
            progress(len(gathered))

        for _, outcomes in as_ended(by_source, of_source, report):
            assert not isinstance(outcomes, LabError), "they are outcomes"
            gathered.update(outcomes)
            report()
        return gathered

    def _of_source(
        self, source: str, probes: Sequence[Probe], settings: ProbeSettings, deadline: Deadline
    ) -> dict[int, Outcome]:
        pod, own_port = self._host if source == self._node else (source, PROBE_PORT)
        transfers = {probe.key: plan_transfers(probe, settings, own_port) for probe in probes}
        every = in_order(probes, transfers)
        waiting = sum(len(transfers[probe.key]) for probe in probes if probe.unanswered)
        try:
            longest = 2 * sum(transfer.seconds for transfer in every) / max(1, settings.in_flight)
            within = Deadline(min(deadline.left(), _START_SECONDS + longest))
            verbose = any(probe.every for probe in probes)
            command = ask_command(every, settings.in_flight + waiting, verbose=verbose)
            done = self._run(pod, *command, within)
            reader, files = collect_command(every)
            bodies = self._run(pod, reader, files, within).stdout if files else ""
            ended, addresses = read_transfers(done.stdout), read_addresses(done.stderr)
            if (silent := find_unconnected(every, ended)) and not verbose:
                command = ask_command(silent, len(silent), verbose=True)
                addresses = read_addresses(self._run(pod, *command, within).stderr)
        except LabError as error:
            why = f"cannot probe: {error.doing}: {error.happened}"
            return {key: Outcome.failed(key, "error", why) for key in transfers}
        texts = read_bodies(bodies)
        return {
            probe.key: read_outcome(probe, transfers[probe.key], ended, texts, addresses)
            for probe in probes
        }

    def _run(self, pod: str, command: list[str], stdin: str, deadline: Deadline) -> ExecResult:
        """What the command prints; its exit code is only the last transfer's and is ignored."""
        return self._api.execute(self._space, pod, _CONTAINER, command, deadline, stdin.encode())
