"""BIRD 2 as a machine's BGP speaker: its configuration, and when it is ready. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lab._dataclass import dataclass
from lab.topology.daemon import Daemon, File, Ready
from lab.topology.intent import Route, Session, Speaker

NAME = "bird"
PACKAGE = "bird2"
SOCKET = "/run/bird/bird.ctl"
"""Default socket of Debian's birdc."""
UP = Ready("^Daemon is up and running", ("birdc", "show", "status"))
"""Ready once it runs, whether or not it has learned anything."""
_KEEPALIVES = 3
"""RFC 4271, 10: keepalives at a third of the hold time."""
_BFD_PACKETS = 3
_SCAN_SECONDS = 2
"""Interval of scanning the kernel's routes; routes lost with a device are then restored. Calico's
value; BIRD's default is 60 s.
"""
_AGAIN_SECONDS = 1
"""Seconds between two connection attempts; BIRD's defaults of 5 to 120 s are far longer than a lab
takes.
"""


def daemon(speaker: Speaker, pods: str, learned: Iterable[Route], stage: int = 0) -> Daemon:
    """The daemon that announces the speaker's prefixes and sets the routes that it learns.

    Parameters
    ----------
    speaker
        The BGP configuration.
    pods
        Prefix of all pods of the cluster: other prefixes are neither announced nor accepted.
    learned
        Routes that must be learned before it is ready.
    stage
        As in :class:`~lab.topology.daemon.Daemon`.

    """
    return Daemon(
        name=NAME,
        package=PACKAGE,
        command=(NAME, "-f", "-c", f"/run/{NAME}/bird.conf", "-s", SOCKET),
        ready=_ready(tuple(learned)),
        files=(
            File("bird.conf", "".join(f"{line}\n" for line in _write_configuration(speaker, pods))),
        ),
        stage=stage,
    )


def session_name(peer: str) -> str:
    """Name of BIRD's session with that machine."""
    return f"to-{peer}"


@dataclass(frozen=True, slots=True)
class Control:
    """How to query a machine's BIRD for its sessions: the lab's own, or Calico's."""

    socket: str = ""
    """Calico's socket; its sessions are named ``Mesh_10_30_0_11``, ``Global_...`` or
    ``Node_...``."""

    def ask(self, words: str) -> str:
        """The command that sends ``words`` to BIRD."""
        return f"birdc -s {self.socket} {words}" if self.socket else f"birdc {words}"

    def enable(self, session: Session) -> str:
        """The command that enables a session."""
        return self.ask(f'"enable {self._name(session)}"')

    def disable(self, session: Session) -> str:
        """The command that disables a session."""
        return self.ask(f'"disable {self._name(session)}"')

    def has(self, session: Session, name: str) -> bool:
        """Whether ``name`` is BIRD's name for the session."""
        if self.socket:
            return name.endswith(f"_{_underline(session)}")
        return name == session_name(session.machine)

    def _name(self, session: Session) -> str:
        if self.socket:
            return rf"\"*_{_underline(session)}\""
        return f"'{session_name(session.machine)}'"


def _underline(session: Session) -> str:
    return session.address.replace(".", "_")


def _write_configuration(speaker: Speaker, pods: str) -> Iterator[str]:
    yield f"router id {speaker.address};"
    yield "log stderr { info, remote, warning, error, auth, fatal, bug };"
    yield "protocol device { }"
    if speaker.announces:
        devices = ", ".join(f'"{name}"' for name in speaker.announces)
        yield f"protocol direct {{ ipv4; interface {devices}; }}"
    if speaker.blocks:
        routes = " ".join(f"route {block} blackhole;" for block in speaker.blocks)
        yield f"protocol static {{ ipv4; {routes} }}"
    yield (
        f"protocol kernel {{ scan time {_SCAN_SECONDS}; "
        "ipv4 { import none; export where source = RTS_BGP; }; }"
    )
    if speaker.bfd_milliseconds:
        yield (
            f'protocol bfd {{ interface "*" {{ interval {speaker.bfd_milliseconds} ms; '
            f"multiplier {_BFD_PACKETS}; }}; }}"
        )
    yield f"function of_pods() {{ return net ~ [ {pods}+ ]; }}"
    yield from _template(speaker)
    for session in speaker.sessions:
        yield f"protocol bgp '{session_name(session.machine)}' from pods {{"
        yield f"  neighbor {session.address} as {session.asn};"
        yield "}"


def _template(speaker: Speaker) -> Iterator[str]:
    own = "RTS_STATIC" if speaker.blocks else "RTS_DEVICE"
    told = "of_pods()" if speaker.passes_on else f"of_pods() && source = {own}"
    believed = "where of_pods()"
    if speaker.tunnel:
        believed = "filter into_tunnel"
        yield "filter into_tunnel {"
        yield "  if !of_pods() then reject;"
        yield f'  ifname = "{speaker.tunnel}"; onlink = true; gw = bgp_next_hop;'
        yield "  accept;"
        yield "}"
    hold = speaker.hold_seconds
    yield "template bgp pods {"
    yield f"  local {speaker.address} as {speaker.asn};"
    yield "  direct;"
    yield f"  hold time {hold}; startup hold time {hold}; keepalive time {hold // _KEEPALIVES};"
    yield f"  connect delay time {_AGAIN_SECONDS}; connect retry time {_AGAIN_SECONDS};"
    yield f"  error wait time {_AGAIN_SECONDS}, {_AGAIN_SECONDS};"
    yield f"  graceful restart off; bfd {'on' if speaker.bfd_milliseconds else 'off'};"
    yield f"  ipv4 {{ import {believed}; export where {told}; next hop self; }};"
    yield "}"


def _ready(learned: tuple[Route, ...]) -> Ready:
    """Ready when every expected route is learned; without any, when BIRD is up."""
    if not learned:
        return UP
    lines = (re.sub(r"\.", r"\\.", f"^{route.destination} via {route.via} ") for route in learned)
    pattern = r"\A" + "".join(rf"(?=[\s\S]*{line})" for line in lines)
    return Ready(pattern, ("ip", "-4", "route", "show", "proto", NAME))
