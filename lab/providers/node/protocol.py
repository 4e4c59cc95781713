"""The orders that an agent gets, and its answers.

Orders are plain frozen data, pickled on the way to the agent and never on the way back. The agent
says one JSON object a line, with one key::

    {"phase": "network"}                   what is done now
    {"progress": 17}                       so many probes have ended; a sign of life too
    {"outcomes": [[...], ...]}             fields of Outcome, in order
    {"piece": ["worker1/links.txt", "…"]}  a piece of evidence
    {"ready": 4711}                        the agent's process, once every tap is open
    {"taken": [place, device, missed, trouble, [[at, direction, length, base64], ...]]}
    {"failed": ["BrokenError", doing, happened, hint]}
    {"done": null}                         the answer, and the last line

Nothing that a guest says is trusted to be any of these.
"""

from __future__ import annotations

import hashlib
import json
import signal
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from ipaddress import IPv4Network, collapse_addresses
from typing import Any, get_args

from lab._errors import BrokenError, DeadlineError, LabError
from lab.cluster.observed import PodLink
from lab.providers.capture import Direction, Frame, Taken, Tap
from lab.providers.netns.responder_config import configuration
from lab.providers.provider import Outcome, Probe, ProbeSettings, ProbeStatus
from lab.topology.intent import SMALL, Intent, MachineIntent

FORM = "1"
"""Changes when an agent does something else for the same work."""
MANAGEMENT = "mgmt0"
"""The network card that carries the connection to the machine; never the lab's."""


@dataclass(frozen=True, slots=True)
class Work:
    """One machine's network, with all that is known of the rest of the lab there."""

    machine: MachineIntent
    answers: str
    """The responder's configuration, JSON."""
    ranges: tuple[str, ...]
    """Every prefix of the lab: what must never leave or come by the management card."""

    def namespaces(self) -> tuple[str, ...]:
        """The machine's name, and its pods'."""
        return (self.machine.name, *(pod.name for pod in self.machine.pods))

    def digest(self) -> str:
        """The hash of all that is to be there."""
        text = "\0".join((FORM, repr(self.machine), self.answers, *self.ranges))
        return hashlib.sha256(text.encode()).hexdigest()


def machine_work(machine: MachineIntent, intent: Intent) -> Work:
    """The work for one machine of a lab."""
    names = frozenset((machine.name, *(pod.name for pod in machine.pods)))
    prefixes = collapse_addresses(IPv4Network(text) for text in _prefixes(intent))
    return Work(
        replace(machine, hardware=SMALL),
        configuration(intent, names),
        tuple(str(prefix) for prefix in prefixes),
    )


def _prefixes(intent: Intent) -> Iterator[str]:
    yield from (segment.cidr for segment in intent.segments)
    for machine in intent.machines:
        if machine.translation and machine.translation.local_cidr:
            yield machine.translation.local_cidr
        for service in machine.translation.services if machine.translation else ():
            yield f"{service.address}/32"


@dataclass(frozen=True, slots=True)
class Order:
    """Base of the orders; ``seconds`` is all the time there is."""

    seconds: float


@dataclass(frozen=True, slots=True)
class ClusterPods:
    """The pods of one run on a cluster, as a node's agent finds them."""

    machine: str
    """The node itself, a source too."""
    token: str
    """In the environment of the pods' processes."""


@dataclass(frozen=True, slots=True)
class Linking(Order):
    """Say how the pods are plugged in."""

    cluster: ClusterPods


@dataclass(frozen=True, slots=True)
class Up(Order):
    """Make the network."""

    work: Work


@dataclass(frozen=True, slots=True)
class Down(Order):
    """Take everything away."""


@dataclass(frozen=True, slots=True)
class Probing(Order):
    """Try every probe; their sources are the machine and its pods."""

    probes: tuple[Probe, ...]
    settings: ProbeSettings
    cluster: ClusterPods | None = None
    """If the pods are Kubernetes' own; None if they are the lab's namespaces."""


@dataclass(frozen=True, slots=True)
class PodCommand(Order):
    """Run a command in a pod."""

    pod: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hearing(Order):
    """Capture all that passes the taps, until :data:`STOP`."""

    taps: tuple[Tap, ...]
    limit: int
    """Bytes kept of each."""
    cluster: ClusterPods | None = None
    """If the pods are Kubernetes' own; None if they are the lab's namespaces."""


@dataclass(frozen=True, slots=True)
class Gather(Order):
    """Say all that is known."""


_STATUSES: Mapping[str, ProbeStatus] = {one: one for one in get_args(ProbeStatus)}


STOP = signal.SIGUSR1
"""Sent to an agent that listens, it has it say what it has heard."""
_DIRECTIONS: Mapping[str, Direction] = {one: one for one in get_args(Direction)}
_LETTERS_A_LINE = 1 << 17


class StrangeError(ValueError):
    """A line that is none of the above; the text says how, a clause without a full stop."""


def make_line(kind: str, value: Any) -> bytes:
    """One line to say."""
    return json.dumps({kind: value}, ensure_ascii=True).encode() + b"\n"


def failure_line(error: LabError) -> bytes:
    """An error as a line."""
    return make_line("failed", [type(error).__name__, error.doing, error.happened, error.hint])


def outcomes_line(found: list[Outcome]) -> bytes:
    """Outcomes as a line."""
    return make_line("outcomes", [astuple(one) for one in found])


def taken_lines(found: Taken) -> Iterator[bytes]:
    """The packets of a tap, in as many lines as they need."""
    tap, missed = found.tap, found.missed
    frames: list[list[Any]] = []
    letters = 0
    for frame in found.frames:
        data = b64encode(frame.data).decode()
        frames.append([frame.at, frame.direction, frame.length, data])
        letters += len(data)
        if letters > _LETTERS_A_LINE:
            yield make_line("taken", [tap.place, tap.device, missed, found.trouble, frames])
            frames, letters, missed = [], 0, 0
    yield make_line("taken", [tap.place, tap.device, missed, found.trouble, frames])


def read_line(said: bytes) -> tuple[str, Any]:
    """The kind and the value of a line.

    Raises
    ------
    StrangeError
        If it is none of an agent's.

    """
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        raise StrangeError(f"no JSON: {said[:80]!r}") from None
    if not isinstance(found, dict) or len(found) != 1:
        raise StrangeError(f"not one key: {said[:80]!r}")
    return next(iter(found.items()))


def read_failure(value: Any, machine: str) -> LabError:
    """The error that a guest speaks of, with the machine's name."""
    kind, doing, happened, hint = _texts(value, 4)
    known = DeadlineError if kind == "DeadlineError" else BrokenError
    return known(f"{doing} on machine '{machine}'", happened, hint)


def read_piece(value: Any) -> tuple[str, str]:
    """Path and text of a piece of evidence; the path stays below where it is put."""
    path, text = _texts(value, 2)
    if path.startswith("/") or ".." in path.split("/"):
        raise StrangeError(f"a path that leads away: {path!r}")
    return path, text


def read_outcomes(value: Any) -> list[Outcome]:
    """Outcomes, each field looked at."""
    if not isinstance(value, list):
        raise StrangeError(f"no list of outcomes: {str(value)[:80]}")
    return [_outcome(one) for one in value]


def read_number(value: Any) -> int:
    """A whole number."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise StrangeError(f"no whole number: {str(value)[:80]}")
    return value


def read_completed(value: Any) -> tuple[int, str, str]:
    """Exit code and both outputs of a command."""
    if not isinstance(value, list) or len(value) != 3:  # noqa: PLR2004  code, stdout, stderr
        raise StrangeError(f"no ended command: {str(value)[:80]}")
    out, err = _texts(value[1:], 2)
    return read_number(value[0]), out, err


def read_taken(value: Any) -> Taken:
    """Read the packets of a tap, or a part of them."""
    match value:
        case [str(place), str(device), int(missed), str(trouble), list(frames)]:
            found = tuple(_frame(one) for one in frames)
            return Taken(Tap(place, device), found, missed, trouble)
    raise StrangeError(f"nothing taken down: {str(value)[:80]}")


def _frame(value: Any) -> Frame:
    match value:
        case [int(at), str(direction), int(length), str(data)] if direction in _DIRECTIONS:
            try:
                return Frame(at, _DIRECTIONS[direction], b64decode(data, validate=True), length)
            except ValueError:
                pass
    raise StrangeError(f"no frame: {str(value)[:80]}")


def read_links(value: Any) -> tuple[PodLink, ...]:
    """Read how a node's pods are plugged in."""
    if not isinstance(value, list):
        raise StrangeError(f"no list of links: {str(value)[:80]}")
    return tuple(_link(one) for one in value)


def _link(value: Any) -> PodLink:
    match value:
        case [str(pod), str(mac), str(port), int(mtu), str() | None as gateway]:
            return PodLink(pod, mac, port, mtu, gateway)
    raise StrangeError(f"no link of a pod: {str(value)[:80]}")


def _texts(value: Any, count: int) -> list[str]:
    if (
        not isinstance(value, list)
        or len(value) != count
        or not all(isinstance(one, str) for one in value)
    ):
        raise StrangeError(f"not {count} texts: {str(value)[:80]}")
    return value


def _outcome(value: Any) -> Outcome:
    match value:
        case [
            int(key),
            str(status),
            str(detail),
            str() | None as source,
            list(backends),
            str() | None as answer,
            int() | float() as latency,
            list(others),
        ] if status in _STATUSES:
            ends = (tuple(_texts(backends, len(backends))), tuple(_texts(others, len(others))))
            return Outcome(
                key, _STATUSES[status], detail, source, ends[0], answer, float(latency), ends[1]
            )
    raise StrangeError(f"no outcome: {str(value)[:80]}")
