"""The orders to an agent, its output, and the files that it leaves on its computer.

Orders are plain frozen data; they are pickled on the way to the agent, never on the way back. The
agent prints one JSON object per line, with one key::

    {"phase": "network"}                   the current phase
    {"progress": 17}                       number of probes finished; also a sign of life
    {"outcomes": [[...], ...]}             fields of Outcome, in order
    {"piece": ["worker1/links.txt", "…"]}  a piece of evidence
    {"ready": 4711}                        the agent's process, once every tap or port is open
    {"taken": [place, device, missed, trouble, [[at, direction, length, base64], ...]]}
    {"completed": ["worker1-p1", 0, stdout, stderr]}  a command's result in a pod
    {"links": [[...], ...]}                fields of PodLink, in order
    {"failed": ["BrokenError", doing, happened, hint]}
    {"done": true}                         the last line

The controller validates each of them: see :mod:`lab.providers.node.control`.

The agent's record is written before anything is created. Its status script reports the machine's
state without Python: Python and the agent's modules take seconds to load on an emulated processor,
and every command needs the state. The script exists only while the network is complete, so its
absence is informative too.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import signal
import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from ipaddress import IPv4Network, collapse_addresses
from pathlib import Path
from typing import Any

from lab._errors import BrokenError, LabError
from lab.providers.capture import Taken, Tap
from lab.providers.netns.compile import configuration
from lab.providers.netns.isolation import NETNS_DIRECTORY
from lab.providers.netns.services import LIMIT_TABLE, SERVICE_TABLE
from lab.providers.provider import Probe, ProbeSettings
from lab.topology.intent import SMALL, Intent, MachineIntent

FORM = "1"
"""Increment when an agent does something different for the same work."""
MANAGEMENT = "mgmt0"
"""The network card that carries the connection to the machine; never the lab's."""


@dataclass(frozen=True, slots=True)
class Work:
    """One machine's network, with everything it needs to know about the rest of the lab."""

    machine: MachineIntent
    answers: str
    """The responder's configuration, JSON."""
    ranges: tuple[str, ...]
    """Every prefix of the lab; its packets must never cross the management card."""

    def namespaces(self) -> tuple[str, ...]:
        """The names of the machine and its pods."""
        return (self.machine.name, *(pod.name for pod in self.machine.pods))

    def digest(self) -> str:
        """The hash of the whole work."""
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
class ClusterPods:
    """How a node's agent finds the pods of one run on a cluster."""

    machine: str
    """The node itself, which is a source too."""
    token: str
    """The token in the environment of the pods' processes."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order to an agent; each verb reads the fields that it needs."""

    seconds: float
    """Time limit for the whole order."""
    cluster: ClusterPods | None = None
    """Set for real Kubernetes pods; None if the pods are namespaces."""
    work: Work | None = None
    """For ``up``: the network to create."""
    probes: tuple[Probe, ...] = ()
    settings: ProbeSettings | None = None
    """For ``probe``."""
    pods: tuple[str, ...] = ()
    """For ``run`` and ``receive``; ``run`` without any runs in all Kubernetes pods."""
    command: tuple[str, ...] = ()
    """For ``run``."""
    taps: tuple[Tap, ...] = ()
    limit: int = 0
    """For ``listen``, which runs until :data:`STOP`: bytes kept per tap."""


STOP = signal.SIGUSR1
"""The signal that makes a capturing agent report its packets, and a receiving one stop."""
_LETTERS_A_LINE = 1 << 17


def make_line(kind: str, value: Any) -> bytes:
    """One line of output."""
    return json.dumps({kind: value}, ensure_ascii=True).encode() + b"\n"


def failure_line(error: LabError) -> bytes:
    """An error as a line."""
    return make_line("failed", [type(error).__name__, error.doing, error.happened, error.hint])


def taken_lines(found: Taken) -> Iterator[bytes]:
    """The packets of a tap, split over as many lines as needed."""
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


DIRECTORY = Path("/run/hybridlab")
"""Lost when the computer restarts, like everything that it describes."""
ENTER = DIRECTORY / "enter"
"""For interactive use: ``/run/hybridlab/enter worker1-p1 ping 10.244.1.2``."""
_SUFFIX = ".pyz"


def archive_path(digest: str) -> Path:
    """The archive's file; the first run unpacks it beside it, without the suffix."""
    return DIRECTORY / f"node-{digest}{_SUFFIX}"


def write_file(path: Path, text: str) -> None:
    """Replace a file atomically."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.rename(path)


def remove_old_archives() -> None:
    """On the computer: remove older archives, and write the ``enter`` script."""
    unpacked = Path(__file__).parents[3]
    packed = unpacked.with_suffix(_SUFFIX)
    for path in DIRECTORY.glob("node-*"):
        if path in {unpacked, packed}:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    command = shlex.join([sys.executable, "-I", "-S", str(packed), "attach"])
    ENTER.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    ENTER.chmod(0o755)


STATUS_SCRIPT = DIRECTORY / "look"
RECORD = DIRECTORY / "record.json"
ABSENT = "the lab's network is missing: the machine was restarted, or never had it"
UNFINISHED = "its network is incomplete"
OTHER = "its network was made for another intent"
NO_HOLDER = "the holder of its pods is not running"
NO_RESPONDER = "its responder is not running"

STATUS_COMMAND = f"""
[ ! -e {STATUS_SCRIPT} ] || exec sh {STATUS_SCRIPT} "$0"
if [ -e {RECORD} ]; then echo {shlex.quote(UNFINISHED)}; else echo {shlex.quote(ABSENT)}; fi
"""
"""Run it with the work's digest as ``$0``."""

Process = tuple[int, int]
"""Process id and start time, in clock ticks since boot."""


def status_script(digest: str, holder: Process, responder: Process, names: Sequence[str]) -> str:
    """The status script: it prints one sentence if something is wrong, else nothing.

    Parameters
    ----------
    digest
        The digest of the finished work; the script's argument is the digest of the wanted work.
    holder
        The holder's process.
    responder
        The responder's process, with its id inside the holder.
    names
        The namespaces in the holder.

    """
    inside = f"/proc/{holder[0]}/root/proc/{responder[0]}/stat"
    return f"""#!/bin/sh
say() {{ echo "$1"; exit; }}
runs() {{ # stat file, start: whether it is the same process, and not a zombie
    read -r line 2> /dev/null < "$1" || return 1
    set -- "$2" ${{line##*) }}
    [ "$2" != Z ] && [ "$2" != X ] && [ "${{21}}" = "$1" ]
}}
[ "$1" = {digest} ] || say {shlex.quote(OTHER)}
runs /proc/{holder[0]}/stat {holder[1]} || say {shlex.quote(NO_HOLDER)}
there=' '
while read -r _ place _; do there="$there$place "; done < /proc/{holder[0]}/mounts
for name in {shlex.join(names)}; do
    case $there in
        *" {NETNS_DIRECTORY}/$name "*) ;;
        *) say "its namespace '$name' is missing" ;;
    esac
done
runs {inside} {responder[1]} || say {shlex.quote(NO_RESPONDER)}
"""


MANAGEMENT_TABLE = "hybridlab-management"


@dataclass(frozen=True, slots=True)
class Record:
    """What exists, or may exist, of the lab on this computer."""

    machine: str
    devices: tuple[str, ...]
    """Names of the lab's bridges, tunnels and veths."""
    cards: tuple[str, ...]
    """MACs of the network cards that were given addresses."""
    tables: tuple[str, ...]
    """nftables tables of family ``ip``."""

    def joined(self, older: Record | None) -> Record:
        """The record, extended by what an older record may have left."""
        if older is None:
            return self
        return Record(
            self.machine,
            tuple(dict.fromkeys((*self.devices, *older.devices))),
            tuple(dict.fromkeys((*self.cards, *older.cards))),
            tuple(dict.fromkeys((*self.tables, *older.tables))),
        )


def plan_record(machine: MachineIntent) -> Record:
    """The record of what a machine will have. Pure."""
    made = [one.name for one in (machine.bridge, machine.tunnel) if one]
    tables = [MANAGEMENT_TABLE]
    if machine.translation:
        tables.append(SERVICE_TABLE)
    if machine.drops:
        tables.append(LIMIT_TABLE)
    return Record(
        machine.name,
        (*made, *(pod.port for pod in machine.pods)),
        tuple(interface.mac for interface in machine.interfaces),
        tuple(tables),
    )


def read_record() -> Record | None:
    """The record, if there is one.

    Raises BrokenError if this version did not write it.
    """
    try:
        text = RECORD.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        found = json.loads(text)
        return Record(
            found["machine"],
            tuple(found["devices"]),
            tuple(found["cards"]),
            tuple(found["tables"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenError(
            f"reading '{RECORD}'",
            f"this version did not write it: {error!r}",
            "restart the machine, which removes all of it",
        ) from None


def write_record(record: Record) -> None:
    """Replace the record atomically."""
    write_file(RECORD, json.dumps(asdict(record), indent=1))
