"""Bridges: that of a node's pods, with the addresses it answers for; the switch of a hypervisor."""

from __future__ import annotations

from collections.abc import Iterator

from lab.explain.check import (
    HNS_NETWORKS,
    NEW_LAB,
    RECREATE_NETWORK,
    Check,
    Kind,
    Look,
    OnWindows,
    Wanted,
    asks_for,
    at_object,
    at_object_or_concerned,
    wanted_address,
    wanted_up,
)
from lab.facts.difference import Difference
from lab.facts.items import (
    CARRIER,
    KIND,
    THERE,
    make_attribute,
    make_device,
    make_proxy,
    make_setting,
)
from lab.topology.commands import tables
from lab.topology.intent import Bridge, Switch, SwitchPort
from lab.topology.path import Hop, Path
from lab.topology.routing import network_of
from lab.topology.subject import (
    DeviceSubject,
    OtherSubject,
    PortSubject,
    ProxySubject,
    SettingSubject,
)

_FILTER = "bridge/bridge-nf-call-iptables"


def _at_untranslated(difference: Difference, hop: Hop, _: Path) -> bool:
    return hop.machine == difference.node and hop.kind == "untranslated"


def _at_neighbour(difference: Difference, hop: Hop, _: Path) -> bool:
    """Other machines send ARP requests for the address on the segment."""
    proxy = difference.subject
    return isinstance(proxy, ProxySubject) and asks_for(hop, proxy.address, difference.node)


def _hns(look: Look, bridge: Bridge) -> Iterator[Difference]:
    """An HNS network has another name and its own gateway, so only its prefix is compared.

    An overlay has no network besides the tunnel.
    """
    if look.intended.tunnel is None and look.lacks_pod_network:
        networks = [link for link in look.observed.links if link.kind == "bridge"]
        wanted = {network_of(text) for text in bridge.addresses}
        names = ", ".join(f"{link.name} {' '.join(link.addresses)}" for link in networks)
        yield look.differs(
            "bridge-missing",
            OtherSubject("the pods' HNS network"),
            f"an L2Bridge network of {', '.join(sorted(wanted))}",
            f"L2Bridge networks there: {names or 'none'}",
            HNS_NETWORKS,
            "create it again",
            concerns=look.every_pod,
        )


def _wanted_bridge(look: Look, subject: DeviceSubject, mtu: int, again: str) -> Iterator[Wanted]:
    """A bridge that is up; its MTU is the smallest of its ports', and is set with theirs."""
    name, link = subject.name, look.observed.link(subject.name)
    kind = look.intended.bridge is None or look.intended.bridge.switch is None
    yield Wanted(
        "bridge-missing",
        subject,
        make_attribute(name, KIND, "bridge") if kind else make_device(name),
        shows="ip -details link show type bridge",
        mends=again,
        intended=THERE,
    )
    if link is None or (kind and link.kind != "bridge"):
        return
    yield wanted_up("bridge-down", subject, name, tables(look.intended, name))
    ports = (
        port.name for port in look.observed.links if (port.master, port.mtu) == (name, link.mtu)
    )
    items = [make_attribute(device, "mtu", str(mtu)) for device in (*ports, name)]
    mends = " && ".join(item.make for item in items)
    yield Wanted("bridge-mtu", subject, items[-1], mends=mends)


def _wanted_filter() -> Wanted:
    return Wanted(
        "bridge-filter-off",
        SettingSubject(_FILTER),
        make_setting(_FILTER, "1"),
        intended="1: replies to a Service on the same bridge must be translated back",
        none="not there: the module br_netfilter is not loaded",
        mends="modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1",
    )


def _wanted_proxies(look: Look) -> Iterator[Wanted]:
    for proxy in look.intended.proxies:
        yield Wanted(
            "proxy-missing",
            ProxySubject(proxy.address, proxy.device),
            make_proxy(proxy.address, proxy.device),
            intended=f"answered on {proxy.device}",
            none="no ARP reply",
        )


class BridgeCheck(Check):
    """The bridge of a node's pods, its filter, and the addresses that the node answers for."""

    order = 20
    question = "address"
    kinds = (
        Kind(
            "bridge-missing",
            windows=OnWindows(HNS_NETWORKS, RECREATE_NETWORK),
            meets=at_object_or_concerned,
        ),
        Kind("bridge-down"),
        Kind("bridge-address", windows=OnWindows(HNS_NETWORKS, RECREATE_NETWORK)),
        Kind("bridge-mtu", fault="mtu-black-hole"),
        Kind("bridge-filter-off", meets=_at_untranslated),
        Kind("proxy-missing", meets=_at_neighbour),
    )

    def wants(self, look: Look) -> Iterator[Wanted]:
        bridge = look.intended.bridge
        if bridge is None or (look.by == "kubernetes" and not look.intended.pods):
            return  # it is created for the kubelet's first pod
        subject = DeviceSubject(bridge.name, "bridge")
        again = "restart the network add-on on this node, and delete its pods"
        yield from _wanted_bridge(
            look, subject, bridge.mtu, again if look.by == "kubernetes" else NEW_LAB
        )
        link = look.observed.link(bridge.name)
        if link is None or (bridge.switch is None and link.kind != "bridge"):
            return
        for address in bridge.addresses:
            yield wanted_address(look, "bridge-address", subject, address, bridge.name)
        if bridge.switch is None:
            yield _wanted_filter()
        yield from _wanted_proxies(look)

    def on_machine(self, look: Look) -> Iterator[Difference]:
        if look.observed.os == "windows" and look.intended.bridge:
            return _hns(look, look.intended.bridge)
        return super().on_machine(look)


def _at_port(difference: Difference, hop: Hop, path: Path) -> bool:
    """At the tunnel, if it is its port."""
    if isinstance(difference.subject, PortSubject) and not difference.subject.owner:
        return hop.machine == difference.node and hop.kind == "tunnel"
    return at_object(difference, hop, path)


UNPLUGGED = Kind("unplugged", meets=_at_port)


def _wanted_port(switch: Switch, port: SwitchPort) -> Iterator[Wanted]:
    subject, name = PortSubject(port.name, port.machine), port.name
    yield Wanted("link-missing", subject, make_device(name), shows="ip link", mends=NEW_LAB)
    yield wanted_up("link-down", subject, name, ())
    carrier = make_attribute(name, "carrier", CARRIER)
    yield Wanted("link-down", subject, carrier, mends=f"set the card of {port.machine} up")
    yield _wanted_plug(switch, subject)


def _wanted_plug(switch: Switch, subject: PortSubject) -> Wanted:
    return Wanted(
        "unplugged",
        subject,
        make_attribute(subject.name, "master", switch.name),
        none="plugged into nothing",
        shows=f"bridge link show dev {subject.name}",
    )


class SwitchCheck(Check):
    """The switch of a hypervisor: its bridge and its ports."""

    order = 60
    question = "address"
    kinds = (UNPLUGGED,)

    def wants(self, look: Look) -> Iterator[Wanted]:
        switch, tunnel = look.intended.switch, look.intended.tunnel
        if switch is None:
            return
        subject = DeviceSubject(switch.name, "switch")
        yield from _wanted_bridge(look, subject, switch.mtu, NEW_LAB)
        if look.observed.link(switch.name) is None:
            return
        if tunnel:  # TunnelCheck reports its other differences
            yield _wanted_plug(switch, PortSubject(tunnel.name))
        for port in switch.ports:
            yield from _wanted_port(switch, port)
