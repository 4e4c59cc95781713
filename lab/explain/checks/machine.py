"""The node's own interfaces, rules that block packets, and required programs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lab._log import quantity
from lab.explain.check import (
    DNS_PORT,
    HNS_ENDPOINTS,
    NO_DROPPING_RULE,
    START_FLANNEL,
    Check,
    Kind,
    Look,
    OnWindows,
    Wanted,
    asks_for,
    at_object,
    on_machine,
    wanted_address,
    wanted_up,
)
from lab.explain.checks.services import is_of_not_ready
from lab.facts.difference import Difference
from lab.facts.items import CARRIER, make_address, make_attribute, make_device
from lab.facts.node import SWITCHED
from lab.facts.translations import Barrier, overlap
from lab.topology.commands import tables
from lab.topology.intent import Interface
from lab.topology.links import LINK_TABLE
from lab.topology.path import Hop, Path
from lab.topology.routing import bare
from lab.topology.subject import DeviceSubject, FirewallSubject, GatewaySubject, UnitSubject

KUBELET_PORT = 10_250
"""Port on which the API server reaches the kubelet (Kubernetes, Ports and Protocols)."""
_IN_RULES = "Get-NetFirewallRule -Enabled True -Direction Inbound"
_BLOCKED = OnWindows(
    "Get-NetFirewallRule -Enabled True -Action Block -Direction Inbound",
    "Disable-NetFirewallRule -DisplayName {name}",
)


def _closed(whose: str, protocol: str, port: int) -> OnWindows:
    allow = f"-Direction Inbound -Protocol {protocol} -LocalPort {port} -Action Allow"
    return OnWindows(_IN_RULES, f"New-NetFirewallRule -DisplayName {whose} {allow}")


SWITCHED_MTU = 1450
"""MTU that Windows gives the adapter over a virtual switch (recorded on 1809: pjh/SDN,
mtu-with-new-hnsnetwork.txt); more may be impossible, and is not required.
"""
_DOWN = {
    "containerd": "runtime-down",
    "kubelet": "kubelet-down",
    "kube-proxy": "proxy-down",
    "flanneld": "flannel-down",
}
"""Kind of difference of services that have one of their own."""
_RUNS = {"active", "running", "activating", "startpending"}


def _at_card(difference: Difference, hop: Hop, path: Path) -> bool:
    """Also a Service that the node itself uses: without its interface it has no route there."""
    asks = hop.kind == "service" and path.request[0].place == hop.place == difference.node
    return asks or at_object(difference, hop, path)


def _at_gateway(difference: Difference, hop: Hop, _: Path) -> bool:
    """The machines behind it send ARP requests for the address on the segment."""
    gateway = difference.subject
    return isinstance(gateway, GatewaySubject) and asks_for(
        hop, bare(gateway.address), difference.node
    )


def _at_tunnel(difference: Difference, hop: Hop, _: Path) -> bool:
    return hop.machine == difference.node and hop.kind == "tunnel"


def _wanted_card(look: Look, card: Interface) -> Iterator[Wanted]:
    subject, name = DeviceSubject(card.name, "card"), card.name
    yield Wanted(
        "link-missing",
        subject,
        make_device(name),
        shows="ip link",
        mends="plug it in, or rename the card with this MAC: " + card.mac,
    )
    yield wanted_up("link-down", subject, name, tables(look.intended, name))
    yield Wanted(
        "link-down",
        subject,
        make_attribute(name, "carrier", CARRIER),
        mends="set its other end up (the segment's bridge, the hypervisor's network)",
    )
    yield from (
        wanted_address(look, "link-address", subject, address, name) for address in card.addresses
    )
    for address in card.virtual:
        yield Wanted(
            "gateway-missing",
            GatewaySubject(address),
            make_address(address, name),
            intended=f"held on {name}",
            none="held by no machine",
            mends="run keepalived on the machines that may hold it: 'lab up' starts it",
        )
    link = look.observed.link(name)
    if link and link.kind == SWITCHED and min(card.mtu, SWITCHED_MTU) <= link.mtu <= card.mtu:
        return
    yield Wanted("link-mtu", subject, make_attribute(name, "mtu", str(card.mtu)))


def _wanted_mac(look: Look, card: Interface) -> Wanted:
    item = make_attribute(card.name, "address", card.mac)
    mends = " && ".join((item.make, *tables(look.intended, card.name)))
    return Wanted("link-mac", DeviceSubject(card.name, "card"), item, mends=mends)


def _wanted_switched(card: Interface) -> Iterator[Wanted]:
    """The interface itself, if a virtual switch has it."""
    name = str(card.card)
    subject = DeviceSubject(name, "card")
    up = wanted_up("link-down", subject, name, ())
    yield Wanted("link-down", subject, make_device(name), mends=up.mends)
    yield up
    yield Wanted("link-mtu", subject, make_attribute(name, "mtu", str(card.mtu)))


def _barrier(look: Look, barrier: Barrier) -> Iterator[Difference]:
    own = look.footprint.has_table(barrier.table) or barrier.table == LINK_TABLE
    kind = None if own else _kind(look, barrier)
    if kind:
        met = "" if barrier.packets is None else f" (matched {quantity(barrier.packets, 'packet')})"
        networks = tuple(_gateways(look, barrier)) if barrier.protocol == "arp" else ()
        yield look.differs(
            kind,
            barrier.subject,
            NO_DROPPING_RULE,
            f"{barrier.rule}{met}",
            barrier.shows,
            barrier.mends,
            barrier=replace(barrier, networks=networks),
        )


def _list_closed_ports(look: Look) -> Iterator[Difference]:
    """Ports for which a firewall that blocks by default has no rule."""
    open_ports = look.observed.allowed_ports
    if open_ports is None:
        return
    wanted: list[tuple[str, str, int, str]] = []
    if look.intended.kubelet:
        wanted.append(("kubelet-port-closed", "tcp", KUBELET_PORT, "kubelet"))
    if look.intended.tunnel:
        wanted.append(("tunnel-port-closed", "udp", look.intended.tunnel.port, "the tunnel"))
    for kind, protocol, port, whose in wanted:
        if not any(
            allowed == protocol and first <= port <= last for allowed, first, last in open_ports
        ):
            yield look.differs(
                kind,
                FirewallSubject(),
                f"a rule that allows {protocol.upper()} {port}, of {whose}",
                "there is none",
                "",
                "",
            )


def _kind(look: Look, barrier: Barrier) -> str | None:
    """Which of the lab's packets a rule blocks; None if it blocks only others."""
    if barrier.protocol in {"icmp", "icmpv6", "igmp"} or _is_elsewhere(look, barrier.device):
        return None
    if barrier.protocol == "arp":
        return "gateway-barred" if any(_gateways(look, barrier)) else None
    kind = _by_port(look, *barrier.ports, barrier) if barrier.ports else _by_prefix(look, barrier)
    return "packets-lost" if kind and barrier.by_chance else kind


def _is_elsewhere(look: Look, device: str) -> bool:
    """Whether a device is on a network outside the lab, such as the management network."""
    machine = look.intended
    ours = {card.name for card in machine.interfaces}
    ours |= {link.name for link in (machine.bridge, machine.tunnel) if link}
    links = (link for link in look.observed.links if link.name == device)
    return device not in ours and any(link.addresses for link in links)


def _gateways(look: Look, barrier: Barrier) -> Iterator[str]:
    """Virtual gateways that a rule names, ``"10.160.4.1/24"``.

    Only these matter for ARP: the MACs of others are permanent entries.
    """
    for card in look.intended.interfaces:
        for text in card.virtual:
            if any(overlap(prefix, text.partition("/")[0]) for prefix in barrier.prefixes):
                yield text


def _by_port(look: Look, first: int, last: int, barrier: Barrier) -> str | None:
    tunnel, translation = look.intended.tunnel, look.intended.translation
    if tunnel and first <= tunnel.port <= last and barrier.protocol != "tcp":
        return "tunnel-port-rejected" if barrier.refuses else "tunnel-port-dropped"
    services = translation.services if translation else ()
    if any(first <= port <= last for service in services for port in service.node_ports()):
        return "node-port-barred"
    if look.intended.kind == "services" and first <= DNS_PORT <= last:
        return "name-server-barred"
    every = [port for service in services for port in service.ports]
    ports = {number for port in every for number in (port.port, port.target_port)}
    if not any(first <= port <= last for port in ports):
        return None
    return "name-server-barred" if first <= DNS_PORT <= last else "packets-barred"


def _by_prefix(look: Look, barrier: Barrier) -> str | None:
    if barrier.prefixes and not any(
        overlap(prefix, range_) for prefix in barrier.prefixes for range_ in look.ranges()
    ):
        return None
    return "packets-barred"


class CardsCheck(Check):
    """The machine's own interfaces, and the virtual gateways that it holds on them."""

    order = 80
    question = "address"
    kinds = (
        Kind(
            "link-missing",
            windows=OnWindows(
                "Get-NetAdapter", advice="check the adapter in the machine's definition"
            ),
        ),
        Kind(
            "link-down",
            fault="node-link-down",
            windows=OnWindows("Get-NetAdapter", "Enable-NetAdapter -Name {name}"),
            meets=_at_card,
            prevents_sending=True,
        ),
        Kind(
            "link-address",
            windows=OnWindows(
                "Get-NetIPAddress -AddressFamily IPv4",
                advice="give the node its address by DHCP reservation: creating an HNS network "
                "loses a static one",
            ),
        ),
        Kind(
            "link-mtu",
            fault="mtu-black-hole",
            windows=OnWindows(
                "Get-NetIPInterface -AddressFamily IPv4",
                advice="Set-NetIPInterface -NlMtuBytes on that interface",
            ),
        ),
        Kind(
            "link-mac",
            windows=OnWindows(
                "Get-NetAdapter", advice="allow changed MAC addresses on the hypervisor's network"
            ),
        ),
        Kind("gateway-missing", fault="gateway-dead", meets=_at_gateway, awaited=True),
    )

    def wants(self, look: Look) -> Iterator[Wanted]:
        for card in look.intended.interfaces:
            yield from _wanted_card(look, card)
            yield _wanted_mac(look, card)
            if card.card:
                yield from _wanted_switched(card)


class FirewallCheck(Check):
    """Rules that block the lab's packets, and ports without a rule that allows them."""

    order = 81
    kinds = (
        Kind(
            "tunnel-port-dropped",
            fault="tunnel-udp-dropped",
            windows=_BLOCKED,
            meets=_at_tunnel,
        ),
        Kind(
            "tunnel-port-closed",
            fault="tunnel-udp-dropped",
            windows=_closed("VXLAN", "UDP", 4789),
            meets=_at_tunnel,
        ),
        Kind("tunnel-port-rejected", fault="tunnel-udp-rejected"),
        Kind("node-port-barred", fault="nodeport-blocked", windows=_BLOCKED),
        Kind(
            "name-server-barred",
            fault="dns-unreachable",
            windows=OnWindows(
                HNS_ENDPOINTS, advice="remove that ACL policy of the endpoint, or delete the pod"
            ),
        ),
        Kind("packets-barred", windows=_BLOCKED),
        Kind("kubelet-port-closed", windows=_closed("kubelet", "TCP", KUBELET_PORT)),
        Kind("packets-lost", fault="packet-loss", partial=True),
        Kind("gateway-barred", fault="gateway-dead"),
    )

    def on_machine(self, look: Look) -> Iterator[Difference]:
        for barrier in look.observed.barriers:
            yield from _barrier(look, barrier)
        yield from _list_closed_ports(look)


_SERVICE = OnWindows("Get-Service -Name {name}", "Start-Service -Name {name}")
_TASK = OnWindows("Get-ScheduledTask -TaskName hybridlab-{name}", START_FLANNEL)


class UnitsCheck(Check):
    """The operating system services that must run."""

    order = 83
    kinds = (
        Kind(
            "runtime-down",
            fault="containerd-stopped",
            windows=_SERVICE,
            meets=on_machine,
            follows=True,
            explains=is_of_not_ready,
        ),
        Kind(
            "kubelet-down",
            fault="kubelet-stopped",
            windows=_SERVICE,
            meets=on_machine,
            follows=True,
            explains=is_of_not_ready,
        ),
        Kind(
            "proxy-down",
            fault="kube-proxy-stopped",
            windows=_SERVICE,
            meets=on_machine,
            follows=True,
        ),
        Kind(
            "flannel-down",
            fault="flanneld-killed",
            windows=_TASK,
            meets=on_machine,
            follows=True,
        ),
        Kind("program-down", windows=_SERVICE, meets=on_machine, follows=True),
    )

    def on_machine(self, look: Look) -> Iterator[Difference]:
        for unit in look.observed.units:
            if unit.state.split(",")[0].lower() not in _RUNS:
                yield look.differs(
                    _DOWN.get(unit.name, "program-down"),
                    UnitSubject(unit.name),
                    "running",
                    unit.state,
                    f"systemctl status {unit.name}; journalctl -u {unit.name} -n 50",
                    f"systemctl restart {unit.name}",
                )
