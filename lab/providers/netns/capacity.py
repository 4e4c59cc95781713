"""Whether a lab fits on this machine: neighbour table, descriptors, processes, memory.

Figures are read in one place and judged in another, so that any machine can be judged.
"""

from __future__ import annotations

import os
import resource
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

from lab._errors import PreflightError
from lab.providers.netns.compile import namespaces as names_of
from lab.providers.netns.netlink import GET_NEIGHBOUR, GET_NEIGHBOUR_TABLE, Socket, attributes
from lab.providers.netns.processes import holders
from lab.state.capacity import available
from lab.topology.cost import cost
from lab.topology.intent import Intent, Neighbour, Route

NEED_FILE = "/run/neighbours"
_DESCRIPTORS_EACH = 3
"""A namespace's responder holds a TCP and a UDP socket and at times a namespace file."""
_DESCRIPTORS_MORE = 256
_PROCESSES = 16
"""Holder, responder, prober, and what enters the lab meanwhile."""
_PERMANENT = 0x80
_NOTHING_THAT_WAITS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CORES_A_LAB = 2
"""The prober and what answers it. With less, probes time out for want of time."""
_DIGITS = 9
"""More entries than any table has."""
_ARP_CACHE = b"arp_cache\0"
_THRESHOLD3, _NAME = 4, 1


@dataclass(frozen=True, slots=True)
class NetnsNeed:
    """What a lab needs of the machine."""

    namespaces: int
    neighbours: int
    """Entries the kernel will make by itself, at most; permanent ones are exempt."""
    memory_mib: int = 0
    """Of the kernel and of the lab's own processes."""

    @property
    def descriptors(self) -> int:
        """Open files of one process."""
        return self.namespaces * _DESCRIPTORS_EACH + _DESCRIPTORS_MORE


@dataclass(frozen=True, slots=True)
class NetnsRoom:
    """What the machine has."""

    neighbour_limit: int
    """gc_thresh3, one table for all namespaces of the machine."""
    neighbours_used: int
    descriptors: int
    network_namespaces: int
    processes: int
    memory_mib: int
    """Free."""


def need(intent: Intent) -> NetnsNeed:
    """What this intent needs.

    Neighbours: an entry on ``lo`` for each machine, which talks to itself, and one for each
    gateway without a permanent entry.
    """
    learnt = len(intent.everything())
    for machine in intent.everything():
        learnt += _learnt(machine.routes, machine.neighbours)
        for pod in machine.pods:
            learnt += _learnt((Route("default", "eth0", pod.gateway),), pod.neighbours)
    return NetnsNeed(len(names_of(intent)), learnt, cost(intent).memory_mib)


def _learnt(routes: tuple[Route, ...], neighbours: tuple[Neighbour, ...]) -> int:
    known = {one.address for one in neighbours}
    return len({route.via for route in routes if route.via} - known)


def room() -> NetnsRoom:
    """Read the figures."""
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    limit = _number("/proc/sys/user/max_net_namespaces")
    neighbour_limit = _neighbour_limit()
    return NetnsRoom(
        neighbour_limit=neighbour_limit,
        neighbours_used=_neighbours_used(neighbour_limit),
        descriptors=_finite(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        network_namespaces=limit,
        processes=_finite(processes) if os.geteuid() else _finite(resource.RLIM_INFINITY),
        memory_mib=available() >> 20,
    )


def judge(need: NetnsNeed, room: NetnsRoom) -> None:
    """Refuse what does not fit.

    Raises
    ------
    PreflightError
        Naming the figure that is too small, and the command that raises it.

    """
    neighbours = need.neighbours + room.neighbours_used
    if neighbours > room.neighbour_limit:
        raise _refusal(
            "the neighbour table",
            f"the lab needs about {need.neighbours:,} entries and {room.neighbours_used:,} are in "
            f"use, but the table of this machine ends at {room.neighbour_limit:,}",
            f"sudo sysctl -w net.ipv4.neigh.default.gc_thresh3={_rounded(neighbours)}",
        )
    if need.descriptors > room.descriptors:
        raise _refusal(
            "open files",
            f"the lab needs {need.descriptors:,} in one process, the limit is {room.descriptors:,}",
            f"sudo prlimit --pid $$ --nofile={_rounded(need.descriptors)}",
        )
    if need.namespaces > room.network_namespaces:
        raise _refusal(
            "network namespaces",
            f"the lab needs {need.namespaces:,}, the limit is {room.network_namespaces:,}",
            f"sudo sysctl -w user.max_net_namespaces={_rounded(need.namespaces)}",
        )
    if room.processes < _PROCESSES:
        raise _refusal(
            "processes",
            f"the lab needs {_PROCESSES}, the limit is {room.processes}",
            f"ulimit -u {1 << 12}",
        )
    if need.memory_mib > room.memory_mib:
        raise _refusal(
            "memory",
            f"the lab needs about {need.memory_mib:,} MiB, and {room.memory_mib:,} MiB are free",
            "fewer pods ('pods_per_node'), fewer nodes, or 'lab down' for a lab that is not needed",
        )


def labs_at_once(cores: int | None = None) -> int:
    """How many labs the processors of this machine are enough for; at least one."""
    return max(1, (cores or os.cpu_count() or 1) // _CORES_A_LAB)


def _refusal(what: str, happened: str, hint: str) -> PreflightError:
    return PreflightError(f"checking {what}", happened, hint)


def _rounded(number: int) -> int:
    """The next power of two above twice the number: room for a second lab."""
    return 1 << (2 * number).bit_length()


def _finite(limit: int) -> int:
    return (1 << 31) - 1 if limit == resource.RLIM_INFINITY else limit


def _number(path: str) -> int:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except FileNotFoundError:
        return _finite(resource.RLIM_INFINITY)


def _neighbour_limit() -> int:
    """gc_thresh3 by netlink: its file in /proc is missing outside the initial namespace."""
    with Socket("here") as channel:
        for body in channel.dump(GET_NEIGHBOUR_TABLE, struct.pack("=Bxxx", 2)):
            found = attributes(body[4:])
            if found.get(_NAME) == _ARP_CACHE and _THRESHOLD3 in found:
                return int(struct.unpack("=I", found[_THRESHOLD3])[0])
    return _finite(resource.RLIM_INFINITY)


def _neighbours_used(limit: int) -> int:
    """Those learnt here, and what the labs that are up were counted to need.

    A lab that is up found room for its need, so a note of more than the limit is not believed.
    """
    with Socket("here") as channel:
        bodies = channel.dump(GET_NEIGHBOUR, struct.pack("=BxxxiHBB", 2, 0, 0, 0, 0))
    learnt = sum(1 for body in bodies if not struct.unpack_from("=H", body, 8)[0] & _PERMANENT)
    needs = [_needed_by(holder.pid) for holder in holders()]
    return learnt + sum(need for need in needs if 0 <= need <= limit)


def raise_descriptors() -> None:
    """Let this process open as many files as its hard limit allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def note_need(need: NetnsNeed) -> None:
    """Inside a holder: leave word of the lab's need for the preflight of others."""
    Path(NEED_FILE).write_text(str(need.neighbours), encoding="ascii")


def _needed_by(pid: int) -> int:
    """The need noted in that holder; whoever is root in the lab can put anything there."""
    try:
        file = os.open(f"/proc/{pid}/root{NEED_FILE}", _NOTHING_THAT_WAITS)
    except OSError:  # it has no network yet, or ended meanwhile
        return 0
    try:
        regular = stat.S_ISREG(os.fstat(file).st_mode)
        return int(os.read(file, _DIGITS)) if regular else 0
    except (OSError, ValueError):
        return 0
    finally:
        os.close(file)
