"""The tunnel and its forwarding entries."""

from __future__ import annotations

from collections.abc import Iterator

from lab.explain.check import (
    HNS_NETWORKS,
    RECREATE_NETWORK,
    RESTART_FLANNEL,
    Check,
    Kind,
    Look,
    More,
    at_object,
)
from lab.facts.difference import Difference
from lab.topology.commands import remade_tunnel, replace_entry, tables
from lab.topology.intent import ForwardingEntry, Tunnel
from lab.topology.path import Hop, Path
from lab.topology.subject import ChassisSubject, DeviceSubject, EntrySubject, TunnelSubject


def _at_chassis(difference: Difference, hop: Hop, path: Path) -> bool:
    """Of a chassis: wherever packets enter its tunnels, or those to it."""
    if not isinstance(difference.subject, ChassisSubject):
        return at_object(difference, hop, path)
    far = hop.subject.machine if isinstance(hop.subject, TunnelSubject) else ""
    return hop.kind == "tunnel" and difference.node in {hop.machine, far}


TUNNEL_LOCAL = Kind(
    "tunnel-local",
    windows=(HNS_NETWORKS, "give flanneld --iface the node's address; " + RECREATE_NETWORK),
    meets=_at_chassis,
)


def _state(look: Look, tunnel: Tunnel, actual: Tunnel) -> Iterator[Difference]:
    subject, shows = (
        DeviceSubject(tunnel.name, "tunnel"),
        f"ip -details link show dev {tunnel.name}",
    )
    link = look.observed.link(tunnel.name)
    if link and not link.up:
        up = f"ip link set dev {tunnel.name} up"
        mends = " && ".join((up, *tables(look.intended, tunnel.name)))
        yield look.differs("tunnel-down", subject, "up", "set down", shows, mends, attribute="up")
    for kind, attribute, words, wanted, value in (
        ("wrong-vni", "vni", "VNI {}", tunnel.vni, actual.vni),
        ("wrong-port", "port", "UDP port {}", tunnel.port, actual.port or tunnel.port),
        ("tunnel-local", "local", "from {}", tunnel.local, actual.local or tunnel.local),
    ):
        if value != wanted:
            more: More = {"attribute": attribute, "values": (str(value),)}
            texts = (words.format(wanted), words.format(value), shows, _again(look, tunnel))
            yield look.differs(kind, subject, *texts, **more)
    if look.observed.os == "linux":
        by_address = f"ip address show dev {tunnel.name}"
        yield from look.addresses(
            "tunnel-address", subject, tunnel.name, tunnel.addresses, actual.addresses, by_address
        )
    if look.by == "lab" and actual.mac != tunnel.mac:
        mends = f"ip link set dev {tunnel.name} address {tunnel.mac}"
        more = {"attribute": "mac", "values": (actual.mac,)}
        yield look.differs("tunnel-mac", subject, tunnel.mac, actual.mac, shows, mends, **more)
    yield from look.mtu("tunnel-mtu", subject, tunnel.name, tunnel.mtu, actual.mtu, shows)


def _again(look: Look, tunnel: Tunnel) -> str:
    if look.beside.tunnel:
        return look.beside.tunnel.format(name=tunnel.name, vni=tunnel.vni, port=tunnel.port)
    return " && ".join(remade_tunnel(look.intended, tunnel))


def _entry(look: Look, entry: ForwardingEntry) -> Iterator[Difference]:
    ends = [
        candidate.remote
        for candidate in look.observed.forwarding
        if (candidate.mac, candidate.device) == (entry.mac, entry.device)
    ]
    if entry.remote in ends:
        return
    yield look.differs(
        "wrong-entry" if ends else "entry-missing",
        EntrySubject(entry.mac, entry.device),
        f"to {entry.remote}",
        f"to {', '.join(ends)}" if ends else "there is none",
        f"bridge fdb show dev {entry.device}",
        replace_entry(entry.mac, entry.device, entry.remote),
        values=tuple(ends),
    )


class TunnelCheck(Check):
    """The tunnel and its forwarding entries."""

    order = 50
    question = "address"
    kinds = (
        Kind("tunnel-missing", windows=(HNS_NETWORKS, RECREATE_NETWORK)),
        Kind("tunnel-down"),
        Kind(
            "wrong-vni",
            fault="wrong-vni",
            windows=(HNS_NETWORKS, "correct VNI in net-conf.json; " + RECREATE_NETWORK),
        ),
        Kind(
            "wrong-port",
            fault="wrong-udp-port",
            windows=(HNS_NETWORKS, "correct Port in net-conf.json to 4789; " + RECREATE_NETWORK),
        ),
        TUNNEL_LOCAL,
        Kind("tunnel-address"),
        Kind("tunnel-mac"),
        Kind("tunnel-mtu", fault="mtu-black-hole"),
        Kind(
            "entry-missing",
            fault="fdb-entry-missing",
            windows=(HNS_NETWORKS, RESTART_FLANNEL),
        ),
        Kind("wrong-entry", windows=(HNS_NETWORKS, RESTART_FLANNEL)),
    )

    def on_machine(self, look: Look) -> Iterator[Difference]:
        tunnel = look.intended.tunnel
        if tunnel is None:
            return
        actual = next(
            (candidate for candidate in look.observed.tunnels if candidate.name == tunnel.name),
            None,
        )
        if actual is None:
            names = ", ".join(
                f"{tunnel.name} (VNI {tunnel.vni})" for tunnel in look.observed.tunnels
            )
            yield look.differs(
                "tunnel-missing",
                DeviceSubject(tunnel.name, "tunnel"),
                f"there, VNI {tunnel.vni}",
                f"no such tunnel (there: {names or 'none'})",
                "ip -details link show type vxlan",
                _again(look, tunnel),
            )
            return
        yield from _state(look, tunnel, actual)
        if look.observed.knows("forwarding") and look.works(tunnel.name):
            for entry in look.intended.forwarding:
                yield from _entry(look, entry)
