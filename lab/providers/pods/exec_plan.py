"""What a Windows pod is told to do for its probes: one ``curl`` for all of them. Pure.

The agnhost image holds curl and, in every pod, netexec. TCP is asked by curl itself; what curl
cannot ask (UDP, or 64 tries) the pod's own netexec asks in its place (``/dial``), with a socket of
its own for each question. So every answer that a target must give is one transfer of curl's:

- bodies go to a file each, and a second curl prints them one after another: bodies of parallel
  transfers cannot be told apart on one output;
- a large TCP probe is an echo of 64 KiB of which the length is looked at;
- netexec's dialler cannot set DF, waits 5 s for each answer, and reads 2,048 bytes;
- names are looked up by the system, which chooses between UDP and TCP itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode

from lab.providers.netns.dialects import BUFFER_BYTES, FILLING
from lab.providers.netns.protocol import IP_UDP_BYTES
from lab.providers.provider import LARGE_TCP_BYTES, PROBE_PORT, Probe, ProbeSettings

Part = Literal["hostname", "clientip", "whole", "fragments", "body", "name"]

PLACE = "/tmp/hybridlab-probe"  # noqa: S108  in a pod of our own
"""Made in the pod when it is first written to; a node's own pod writes to the node's disk."""
BODY = f"{PLACE}/body"
DIALLER_SECONDS = 5.0
"""After which netexec's dialler gives an answer up."""
_DIALLERS_START = 2.0
_PARALLEL_LIMIT = 300
"""curl's own."""
_SERVICE_PORT = 80
_TEXT = FILLING.hex()
_ECHO = "echo "


@dataclass(frozen=True, slots=True)
class Transfer:
    """One transfer of curl's."""

    key: int
    """Of the probe that it is for."""
    part: Part
    url: str
    seconds: float
    """The longest that it may take."""
    dialled: bool
    """Whether netexec's dialler asks the target, and its answer is JSON."""
    expected: str = ""
    """The text of an echo."""

    @property
    def file(self) -> str:
        """Where its body goes."""
        return f"{PLACE}/{self.name}"

    @property
    def name(self) -> str:
        """What it is known by in curl's output."""
        return f"{self.key}-{self.part}"


def transfers(probe: Probe, settings: ProbeSettings) -> tuple[Transfer, ...]:
    """What is to be asked for one probe of a cluster's."""
    if probe.name is not None:
        url = f"http://{probe.name}:{_SERVICE_PORT}/hostname"
        return (Transfer(probe.key, "name", url, settings.timeout, dialled=False),)
    if probe.dialect == "lab":
        return tuple(_lab_transfers(probe, settings))
    return tuple(_netexec_transfers(probe, settings))


def _lab_transfers(probe: Probe, settings: ProbeSettings) -> Iterator[Transfer]:
    """The lab's own responder says everything in one answer; its UDP has no dialler."""
    url = f"http://{probe.address}:{probe.port}/"
    if probe.protocol == "tcp":
        if probe.size == "large":
            yield Transfer(probe.key, "body", f"{url}echo", settings.timeout, dialled=False)
        yield Transfer(probe.key, "hostname", url, settings.timeout, dialled=False)
        return
    # A datagram that is not in its protocol is echoed with a head that says who and whom.
    yield _dial(probe, "hostname", "x" * 100, 1)
    if probe.size == "large":
        whole, fragments = sizes(probe.mtu)
        yield _dial(probe, "whole", _TEXT[:whole], 1)
        yield _dial(probe, "fragments", _TEXT[:fragments], 1)


def _netexec_transfers(probe: Probe, settings: ProbeSettings) -> Iterator[Transfer]:
    if probe.protocol == "tcp" and probe.tries == 1:
        url = f"http://{probe.address}:{probe.port}"
        if probe.size == "large":
            yield Transfer(probe.key, "body", f"{url}/echo", settings.timeout, dialled=False)
        yield Transfer(probe.key, "hostname", f"{url}/hostname", settings.timeout, dialled=False)
        yield Transfer(probe.key, "clientip", f"{url}/clientip", settings.timeout, dialled=False)
        return
    yield _dial(probe, "hostname", "hostname", probe.tries)
    yield _dial(probe, "clientip", "clientip", probe.tries)
    if probe.protocol == "udp" and probe.size == "large":
        whole, fragments = sizes(probe.mtu)
        yield _dial(probe, "whole", _ECHO + _TEXT[: whole - len(_ECHO)], 1)
        yield _dial(probe, "fragments", _ECHO + _TEXT[: fragments - len(_ECHO)], 1)


def sizes(mtu: int) -> tuple[int, int]:
    """Bytes of a datagram at the path's MTU, and of one in fragments; netexec reads no more."""
    return min(mtu - IP_UDP_BYTES, BUFFER_BYTES), BUFFER_BYTES


def _dial(probe: Probe, part: Part, request: str, tries: int) -> Transfer:
    asked = {
        "host": probe.address,
        "port": probe.port,
        "protocol": "udp" if probe.protocol == "udp" else "http",
        "request": request,
        "tries": tries,
    }
    expected = request.removeprefix(_ECHO) if part in {"whole", "fragments"} else ""
    seconds = DIALLER_SECONDS + _DIALLERS_START + 0.1 * tries
    url = f"http://127.0.0.1:{PROBE_PORT}/dial?{urlencode(asked)}"
    return Transfer(probe.key, part, url, seconds, dialled=True, expected=expected)


def prepare() -> tuple[list[str], str]:
    """Command and standard input that leave the body of large TCP probes in the pod."""
    form = urlencode({"msg": "msg=" + _TEXT[:LARGE_TCP_BYTES]})
    url = f"http://127.0.0.1:{PROBE_PORT}/echo"
    lines = [f"url = {_quoted(url)}", f"data = {_quoted(form)}", f"output = {_quoted(BODY)}"]
    command = ["curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--create-dirs"]
    return [*command, "--config", "-"], "\n".join(lines) + "\n"


def ask(asked: Sequence[Transfer], settings: ProbeSettings) -> tuple[list[str], str]:
    """Command and standard input of the one curl that asks everything, many at once."""
    at_once = str(max(1, min(settings.in_flight, _PARALLEL_LIMIT)))
    command = ["curl", "--silent", "--parallel", "--parallel-immediate"]
    command += ["--parallel-max", at_once, "--config", "-"]
    return command, "next\n".join(_section(one) for one in asked)


def _section(one: Transfer) -> str:
    lines = [
        f"url = {_quoted(one.url)}",
        f"output = {_quoted(one.file)}",
        f'write-out = "{one.name} %{{json}}\\n"',
        'noproxy = "*"',
        "create-dirs",
        f"max-time = {one.seconds:g}",
    ]
    if one.part == "body":
        lines.append(f"data-binary = {_quoted('@' + BODY)}")
    return "".join(f"{line}\n" for line in lines)


def collect(asked: Sequence[Transfer]) -> tuple[list[str], str]:
    """Command and standard input that print every body, each with its name before it.

    Bodies of echoes over TCP are left where they are.
    """
    command = ["curl", "--silent", "--config", "-"]
    wanted = [one for one in asked if one.part not in {"body", "name"}]
    sections = [
        "".join(
            (
                f"url = {_quoted('file://' + one.file)}\n",
                f'write-out = "\\n{END}{one.name}\\n"\n',
            )
        )
        for one in wanted
    ]
    return command, "next\n".join(sections)


END = "--hybridlab-end--"
"""After each body, with the transfer's name; no answer of ours has it."""


def _quoted(text: str) -> str:
    """As curl's configuration file has it: backslash and quote escaped."""
    return json.dumps(text)
