"""Bridges: that of a node's pods, with the addresses it answers for; the switch of a hypervisor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_interface

from lab.explain.check import (
    HNS_NETWORKS,
    NEW_LAB,
    RECREATE_NETWORK,
    Check,
    Kind,
    Look,
    asks_for,
    at_object,
)
from lab.facts.difference import Difference
from lab.facts.node import LinkFacts
from lab.topology.intent import Bridge, Switch
from lab.topology.path import Hop, Path
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
    if look.intended.tunnel is not None or not look.observed.knows("networks"):
        return
    wanted = {str(ip_interface(text).network) for text in bridge.addresses}
    networks = {
        str(ip_interface(text).network)
        for bridge in look.observed.bridges
        for text in bridge.addresses
    }
    if not wanted <= networks:
        names = ", ".join(
            f"{bridge.name} {' '.join(bridge.addresses)}" for bridge in look.observed.bridges
        )
        yield look.differs(
            "bridge-missing",
            OtherSubject("the pods' HNS network"),
            f"an L2Bridge network of {', '.join(sorted(wanted))}",
            f"L2Bridge networks there: {names or 'none'}",
            "Get-HnsNetwork",
            "create it again",
        )


def _values(look: Look, bridge: Bridge, actual: Bridge, shows: str) -> Iterator[Difference]:
    subject = DeviceSubject(bridge.name, "bridge")
    device, mtu = bridge.name, actual.mtu
    yield from look.addresses(
        "bridge-address", subject, device, bridge.addresses, actual.addresses, shows
    )
    yield from _mtu(look, subject, device, bridge.mtu, mtu)


def _mtu(
    look: Look, subject: DeviceSubject, device: str, wanted: int, actual: int
) -> Iterator[Difference]:
    """A bridge has the smallest MTU of its ports, and gets it again with theirs."""
    ports = [
        link.name for link in look.observed.links if (link.master, link.mtu) == (device, actual)
    ]
    mends = " && ".join(f"ip link set dev {name} mtu {wanted}" for name in (*ports, device))
    shows = f"ip link show dev {device}"
    for difference in look.mtu("bridge-mtu", subject, device, wanted, actual, shows):
        yield replace(difference, mends=mends)


def _filter(look: Look) -> Iterator[Difference]:
    setting = look.observed.setting(_FILTER)
    if look.observed.knows("settings") and setting != "1":
        yield look.differs(
            "bridge-filter-off",
            SettingSubject(_FILTER),
            "1: replies to a Service on the same bridge must be translated back",
            setting or "not there: the module br_netfilter is not loaded",
            f"cat /proc/sys/net/{_FILTER}",
            "modprobe br_netfilter; sysctl -w net.bridge.bridge-nf-call-iptables=1",
        )


def _proxies(look: Look) -> Iterator[Difference]:
    if not look.observed.knows("proxy"):
        return
    for proxy in look.intended.proxies:
        if proxy not in look.observed.proxies and look.works(proxy.device):
            yield look.differs(
                "proxy-missing",
                ProxySubject(proxy.address, proxy.device),
                f"answered on {proxy.device}",
                "no ARP reply",
                "ip neighbour show proxy",
                f"ip neighbour add proxy {proxy.address} dev {proxy.device}",
            )


def _missing(look: Look, subject: DeviceSubject, fix: str) -> Difference:
    names = ", ".join(bridge.name for bridge in look.observed.bridges) or "none"
    return look.differs(
        "bridge-missing",
        subject,
        "there",
        f"no such bridge (there: {names})",
        "ip -details link show type bridge",
        fix,
    )


class BridgeCheck(Check):
    """The bridge of a node's pods, its filter, and the addresses that the node answers for."""

    order = 20
    question = "address"
    kinds = (
        Kind("bridge-missing", windows=(HNS_NETWORKS, RECREATE_NETWORK)),
        Kind("bridge-down"),
        Kind("bridge-address", windows=(HNS_NETWORKS, RECREATE_NETWORK)),
        Kind("bridge-mtu", fault="mtu-black-hole"),
        Kind("bridge-filter-off", meets=_at_untranslated),
        Kind("proxy-missing", meets=_at_neighbour),
    )

    def on_machine(self, look: Look) -> Iterator[Difference]:
        bridge = look.intended.bridge
        if bridge is None or (look.by == "kubernetes" and not look.intended.pods):
            return  # it is created for the kubelet's first pod
        if look.observed.os == "windows":
            yield from _hns(look, bridge)
            return
        link = look.observed.link(bridge.name)
        subject = DeviceSubject(bridge.name, "bridge")
        shows = f"ip -details address show dev {bridge.name}"
        actual = next(
            (candidate for candidate in look.observed.bridges if candidate.name == bridge.name),
            None,
        )
        if bridge.switch and link:  # it is a port of that switch
            actual = Bridge(link.name, link.mac, link.addresses, link.mtu)
        if actual is None:
            again = "restart the network add-on on this node, and delete its pods"
            yield _missing(look, subject, again if look.by == "kubernetes" else NEW_LAB)
            return
        if link and not link.up:
            mends = f"ip link set dev {bridge.name} up"
            words = ("up", "set down", shows, mends)
            yield look.differs("bridge-down", subject, *words, attribute="up")
        yield from _values(look, bridge, actual, shows)
        if bridge.switch is None:
            yield from _filter(look)
        yield from _proxies(look)


def _at_port(difference: Difference, hop: Hop, path: Path) -> bool:
    """At the tunnel, if it is its port."""
    if isinstance(difference.subject, PortSubject) and not difference.subject.owner:
        return hop.machine == difference.node and hop.kind == "tunnel"
    return at_object(difference, hop, path)


UNPLUGGED = Kind("unplugged", meets=_at_port)


def _port(look: Look, switch: Switch, subject: PortSubject) -> Iterator[Difference]:
    name, whose = subject.name, subject.owner
    link = look.observed.link(name)
    if link is None:
        words = ("there", "no such device", "ip link", NEW_LAB)
        yield look.differs("link-missing", subject, *words)
        return
    if not link.up or not link.carrier:
        yield look.differs(
            "link-down",
            subject,
            "up",
            "set down" if not link.up else f"no carrier: the card of {whose} is down",
            f"ip -details link show dev {name}",
            f"ip link set dev {name} up" if not link.up else f"set the card of {whose} up",
            attribute="carrier" if link.up else "up",
        )
    yield from _plugged(look, switch, link, subject)


def _plugged(
    look: Look, switch: Switch, link: LinkFacts, subject: PortSubject
) -> Iterator[Difference]:
    if link.master != switch.name:
        yield look.differs(
            "unplugged",
            subject,
            f"plugged into {switch.name}",
            f"plugged into {link.master}" if link.master else "plugged into nothing",
            f"bridge link show dev {link.name}",
            f"ip link set dev {link.name} master {switch.name}",
        )


class SwitchCheck(Check):
    """The switch of a hypervisor: its bridge and its ports."""

    order = 60
    question = "address"
    kinds = (UNPLUGGED,)

    def on_machine(self, look: Look) -> Iterator[Difference]:
        switch = look.intended.switch
        if switch is None:
            return
        link = look.observed.link(switch.name)
        subject, shows = (
            DeviceSubject(switch.name, "switch"),
            f"ip -details link show dev {switch.name}",
        )
        if link is None:
            yield _missing(look, subject, NEW_LAB)
            return
        if not link.up:
            mends = f"ip link set dev {switch.name} up"
            words = ("up", "set down", shows, mends)
            yield look.differs("bridge-down", subject, *words, attribute="up")
        yield from _mtu(look, subject, switch.name, switch.mtu, link.mtu)
        tunnel = look.intended.tunnel
        actual = look.observed.link(tunnel.name) if tunnel else None
        if actual is not None:  # TunnelCheck reports its other differences
            yield from _plugged(look, switch, actual, PortSubject(actual.name))
        for port in switch.ports:
            yield from _port(look, switch, PortSubject(port.name, port.machine))
