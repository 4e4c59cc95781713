"""The tunnel and its forwarding entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lab.explain.check import (
    HNS_NETWORKS,
    RECREATE_NETWORK,
    RESTART_FLANNEL,
    Check,
    Kind,
    Look,
    OnWindows,
    Wanted,
    at_object,
    at_object_or_concerned,
    wanted_address,
    wanted_up,
)
from lab.facts.difference import Difference
from lab.facts.items import (
    KIND,
    LOCAL,
    PORT,
    THERE,
    VNI,
    make_attribute,
    make_entry,
)
from lab.topology.commands import remade_tunnel, tables
from lab.topology.intent import Tunnel
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
    windows=OnWindows(
        HNS_NETWORKS,
        advice="give flanneld --iface the node's address, remove the HNS network and restart "
        "flanneld",
        fault="hns-network-on-other-card",
    ),
    meets=_at_chassis,
)


def _wanted_tunnel(look: Look, tunnel: Tunnel) -> Iterator[Wanted]:
    subject, name = DeviceSubject(tunnel.name, "tunnel"), tunnel.name
    again, shows = _again(look, tunnel), f"ip -details link show dev {name}"
    yield Wanted(
        "tunnel-missing",
        subject,
        make_attribute(name, KIND, "vxlan"),
        shows="ip -details link show type vxlan",
        mends=again,
        intended=f"{THERE}, VNI {tunnel.vni}",
    )
    link = look.observed.link(name)
    if link is None or link.kind != "vxlan":
        return
    yield wanted_up("tunnel-down", subject, name, tables(look.intended, name))
    for kind, attribute, value in (
        ("wrong-vni", VNI, tunnel.vni),
        ("wrong-port", PORT, tunnel.port),
        ("tunnel-local", LOCAL, tunnel.local),
    ):
        item = make_attribute(name, attribute, str(value))
        yield Wanted(kind, subject, item, shows=shows, mends=again)
    if look.observed.os == "linux":
        for address in tunnel.addresses:
            yield wanted_address(look, "tunnel-address", subject, address, name)
    if look.by == "lab":
        item = make_attribute(name, "address", tunnel.mac)
        mends = " && ".join((item.make, *tables(look.intended, name)))
        yield Wanted("tunnel-mac", subject, item, mends=mends)
    yield Wanted("tunnel-mtu", subject, make_attribute(name, "mtu", str(tunnel.mtu)))
    for entry in look.intended.forwarding:
        yield Wanted(
            "wrong-entry",
            EntrySubject(entry.mac, entry.device),
            make_entry(entry.mac, entry.device, entry.remote),
            "entry-missing",
        )


def _again(look: Look, tunnel: Tunnel) -> str:
    if look.footprint.tunnel:
        return look.footprint.tunnel.format(name=tunnel.name, vni=tunnel.vni, port=tunnel.port)
    return " && ".join(remade_tunnel(look.intended, tunnel))


class TunnelCheck(Check):
    """The tunnel and its forwarding entries."""

    order = 50
    question = "address"
    kinds = (
        Kind(
            "tunnel-missing",
            windows=OnWindows(HNS_NETWORKS, RECREATE_NETWORK, fault="hns-network-removed"),
            meets=at_object_or_concerned,
        ),
        Kind("tunnel-down"),
        Kind(
            "wrong-vni",
            fault="wrong-vni",
            windows=OnWindows(
                HNS_NETWORKS,
                advice="correct VNI in net-conf.json, remove the HNS network and restart flanneld",
            ),
        ),
        Kind(
            "wrong-port",
            fault="wrong-udp-port",
            windows=OnWindows(
                HNS_NETWORKS,
                advice="correct Port in net-conf.json to 4789, remove the HNS network and "
                "restart flanneld",
            ),
        ),
        TUNNEL_LOCAL,
        Kind("tunnel-address"),
        Kind("tunnel-mac"),
        Kind("tunnel-mtu", fault="mtu-black-hole"),
        Kind(
            "entry-missing",
            fault="fdb-entry-missing",
            windows=OnWindows(HNS_NETWORKS, RESTART_FLANNEL),
        ),
        Kind("wrong-entry", windows=OnWindows(HNS_NETWORKS, RESTART_FLANNEL)),
    )

    def wants(self, look: Look) -> Iterator[Wanted]:
        return _wanted_tunnel(look, look.intended.tunnel) if look.intended.tunnel else iter(())

    def on_machine(self, look: Look) -> Iterator[Difference]:
        for difference in super().on_machine(look):
            gone = difference.kind == "tunnel-missing" and look.lacks_pod_network
            yield replace(difference, concerns=look.every_pod) if gone else difference
