"""The networks of a lab: one bridge per segment in its holder, and a cable to the host."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError
from lab.machines.management import ranges
from lab.machines.nspawn.container import MANAGEMENT_BRIDGE, MANAGEMENT_MTU
from lab.machines.nspawn.layout import NspawnLayout
from lab.providers.netns.holders import HolderEntry
from lab.providers.provider import LabHandle
from lab.topology.intent import Segment

_SECONDS = 20.0
_DIGITS = 8


def bridges(segments: Sequence[Segment]) -> Mapping[str, str]:
    """The bridge of each segment; numbered, because a segment's name may be too long. Pure."""
    return {segment.name: f"s{number}" for number, segment in enumerate(segments)}


def cable(lab: LabHandle) -> str:
    """Name of the host's end of the cable to the lab's management network."""
    return f"hl{lab.token[:_DIGITS]}"


def remove_cable(lab: LabHandle) -> bool:
    """Remove the cable to the lab's management network. True once it no longer exists.

    The kernel removes it with the lab's network namespace, but only some time after the last
    process has exited, and not while any other process holds that namespace open.
    """
    own = cable(lab)
    with suppress(BrokenError):  # the kernel may remove it at the same moment
        _ip("link", "delete", own)
    return not Path("/sys/class/net", own).exists()


def free_range(pool: IPv4Network, token: str) -> IPv4Network:
    """A management range that overlaps no address or route of this machine.

    Raises PreflightError when the whole pool is in use.
    """
    taken = tuple(_list_destinations(_ip("-json", "-4", "route", "show", "table", "all")))
    for range_ in ranges(pool, token):
        if not any(range_.overlaps(other) for other in taken):
            return range_
    raise PreflightError(
        "finding a management range for the lab",
        f"every range of {pool} is in use on this machine",
        "take unneeded labs down ('lab gc'), or give [management] another 'cidr'",
    )


def _list_destinations(routes: str) -> Iterable[IPv4Network]:
    """The destinations of all routes except the default route. Pure."""
    for route in json.loads(routes or "[]"):
        destination = route.get("dst", "default")
        if destination not in {"default", "0.0.0.0/0"}:
            yield IPv4Interface(destination).network


def make(
    entry: HolderEntry, lab: LabHandle, layout: NspawnLayout, segments: Sequence[Segment]
) -> None:
    """Create the missing bridges, and the cable with the host's address.

    Raises BrokenError when one cannot be created.
    """
    named = bridges(segments)
    mtus = {named[segment.name]: segment.mtu for segment in segments}

    def inside() -> set[str]:
        links = _links()
        lines = ["link set lo up"]
        for name, mtu in {MANAGEMENT_BRIDGE: MANAGEMENT_MTU, **mtus}.items():
            if name not in links:
                lines.append(f"link add {name} type bridge stp_state 0 forward_delay 0")
            lines.append(f"link set {name} mtu {mtu} up")
        configure(lines)
        return links

    devices = entry.call(
        f"making the networks of lab '{lab.name}'",
        lambda _: inside(),
        Deadline(_SECONDS),
        answer=set[str],
    )
    own = cable(lab)
    if "host" not in devices:
        remove_cable(lab)  # from a killed holder; the kernel may not have removed it yet
        # its other end is in the holder from the start, so it always disappears with the lab
        _ip("link", "add", own, "type", "veth", "peer", "name", "host", "netns", str(entry.pid))
    plugged = (f"link set host master {MANAGEMENT_BRIDGE} up",)
    entry.call(
        f"plugging lab '{lab.name}' in",
        lambda _: configure(plugged),
        Deadline(_SECONDS),
    )
    configure((f"address replace {layout.controller} dev {own}", f"link set {own} up"))


def missing(entry: HolderEntry, lab: LabHandle, segments: Sequence[Segment]) -> str:
    """Describe the first missing part of the networks; empty if nothing is missing."""
    devices = entry.call(
        "looking at the lab's networks", lambda _: _links(), Deadline(_SECONDS), answer=set[str]
    )
    for segment, bridge in bridges(segments).items():
        if bridge not in devices:
            return f"the bridge of segment '{segment}'"
    if "host" not in devices:
        return f"the cable '{cable(lab)}' to its management network"
    return ""


def _links() -> set[str]:
    """Names of all links in the calling process's network namespace."""
    return {link["ifname"] for link in json.loads(_ip("-json", "link"))}


def configure(lines: Sequence[str]) -> None:
    """Run ``ip -batch`` with these lines in the calling process's network namespace.

    Raises BrokenError with its error output.
    """
    _ip("-batch", "-", lines=lines)


def _ip(*words: str, lines: Sequence[str] = ()) -> str:
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(  # noqa: S603  our own arguments
        ("ip", *words),  # noqa: S607  its path differs between distributions
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    if done.returncode:
        raise BrokenError(
            f"running 'ip {' '.join(words)}'", done.stderr.strip() or f"exit code {done.returncode}"
        )
    return done.stdout
