"""Facts of a Windows node: one PowerShell step over WinRM, and its answer parsed.

HNS' first schema, as ``Get-HnsNetwork``, ``Get-HnsEndpoint`` and ``Get-HnsPolicyList`` print it: an
Overlay network is a tunnel (VSID of its subnet, its ManagementIP), and its RemoteSubnetRoute
policies are routes, neighbours and forwarding entries in one; an L2Bridge network is a bridge;
OutBoundNAT policies of pods' endpoints masquerade; ELB policies are Services. Sources: hcsshim
(internal/hns), flannel (pkg/backend/vxlan/vxlan_network_windows.go), kube-proxy
(pkg/proxy/winkernel), and outputs in issues of calico and sig-windows-tools.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_interface, ip_network
from typing import Any, Literal

from lab._deadline import Deadline
from lab.facts.items import (
    KIND,
    LOCAL,
    PORT,
    VNI,
    Item,
    Items,
    LinkFacts,
    make_address,
    make_attribute,
    make_device_items,
    make_entry,
    make_neighbour,
    make_route,
    make_setting,
)
from lab.facts.node import PACKETS, SWITCHED, DeviceCounter, NodeFacts, PodFacts, Software, Unit
from lab.facts.translations import Barrier, End, Masquerade, Translated, Translations
from lab.topology.commands import format_route
from lab.topology.intent import Resolver, Route
from lab.topology.subject import FORWARDING, FirewallSubject
from lab.windows.cni import dropped_policies
from lab.windows.shell import WindowsShell
from lab.windows.step_runner import run_step

Object = Mapping[str, Any]

VXLAN_PORT = 4789
"""The only VXLAN port of HNS (facts of flannel on Windows)."""
_OVERLAY = "overlay"
_BRIDGES = {"l2bridge", "l2tunnel"}
_PROTOCOLS = {6: "tcp", 17: "udp", "6": "tcp", "17": "udp", "TCP": "tcp", "UDP": "udp"}
_ATTACHED = {2, 3}
"""States of an endpoint that belongs to a container (hcsshim: Attached, AttachedSharing)."""


def mac(text: object) -> str:
    """A MAC such as ``00-15-5D-D3-D8-DE`` in the Intent's notation."""
    return str(text or "").replace("-", ":").lower()


def _policies(owner: Object, kind: str) -> Iterator[Object]:
    """An object's policies of a kind; settings that the second schema nests are flattened."""
    for policy in owner.get("Policies") or ():
        if isinstance(policy, Mapping) and str(policy.get("Type", "")).lower() == kind.lower():
            inner = policy.get("Settings")
            yield {**policy, **inner} if isinstance(inner, Mapping) else policy


def _subnets(network: Object) -> list[Object]:
    return [subnet for subnet in network.get("Subnets") or () if isinstance(subnet, Mapping)]


def _networks(networks: Iterable[Object], mtus: Mapping[str, int]) -> Iterator[Item]:
    """HNS networks as devices, so that checks cover what depends on them.

    The address of an L2Bridge network is that of its subnet's gateway; of an Overlay network, HNS
    reports neither address nor MTU.
    """
    for network in networks:
        name, kind = str(network.get("Name", "")), str(network.get("Type", "")).lower()
        yield from make_device_items(LinkFacts(name, "hns", "", (), 0, up=True, carrier=True))
        if kind in _BRIDGES:
            yield make_attribute(name, KIND, "bridge")
            yield make_attribute(name, "mtu", str(mtus.get(name, 0)))
            for subnet in _subnets(network):
                if gateway := subnet.get("GatewayAddress"):
                    yield make_address(f"{gateway}/{_length(subnet.get('AddressPrefix'))}", name)
        elif kind == _OVERLAY:
            yield make_attribute(name, KIND, "vxlan")
            yield make_attribute(name, VNI, str(_vsid(network)))
            yield make_attribute(name, PORT, str(_port(network)))
            yield make_attribute(name, LOCAL, str(network.get("ManagementIP") or ""))
            yield make_attribute(name, "address", mac(network.get("DrMacAddress")))


def _length(prefix: object) -> str:
    return str(prefix or "").partition("/")[2] or "32"


def _vsid(network: Object) -> int:
    for subnet in _subnets(network):
        for policy in _policies(subnet, "VSID"):
            return int(policy.get("VSID", policy.get("IsolationId", 0)))
    return 0


def _port(network: Object) -> int:
    for policy in _policies(network, "VxlanPort"):
        return int(policy.get("Port", VXLAN_PORT))
    return VXLAN_PORT


def _remotes(networks: Iterable[Object]) -> Iterator[Item]:
    """RemoteSubnetRoute policies as flannel's three kinds of entries on Linux."""
    for network in networks:
        name = str(network.get("Name", ""))
        for policy in _policies(network, "RemoteSubnetRoute"):
            prefix = str(policy["DestinationPrefix"])
            owner = mac(policy.get("DistributedRouterMacAddress"))
            end = str(ip_network(prefix, strict=False).network_address)
            yield _route_item(Route(prefix, name, end, onlink=True))
            yield make_neighbour(end, name, owner)
            yield make_entry(owner, name, str(policy.get("ProviderAddress", "")))


def _route_item(line: Route) -> Item:
    return make_route(format_route(replace(line, device=f"'{line.device}'")))


def pods(endpoints: Iterable[Object]) -> tuple[PodFacts, ...]:
    """The endpoints of current or former pods: their names end with a network's name.

    A pod's endpoint that is marked as another node's has lost its network, and so has no carrier.
    """
    return tuple(_pod(endpoint) for endpoint in endpoints if _is_pods(endpoint))


def _is_pods(endpoint: Object) -> bool:
    network = str(endpoint.get("VirtualNetworkName") or "")
    own = str(endpoint.get("Name") or "").strip().endswith(f"_{network}") if network else False
    return own or bool(endpoint.get("SharedContainers"))


def _pod(endpoint: Object) -> PodFacts:
    alive = not endpoint.get("IsRemoteEndpoint") and endpoint.get("State", 3) in _ATTACHED
    gateway = endpoint.get("GatewayAddress")
    servers = str(endpoint.get("DNSServerList") or "").split(",")
    search = tuple(word for word in str(endpoint.get("DNSSuffix") or "").split(",") if word)
    card = LinkFacts(
        name=str(endpoint.get("ID", "")),
        kind="hns",
        mac=mac(endpoint.get("MacAddress")),
        addresses=(f"{endpoint.get('IPAddress')}/{endpoint.get('PrefixLength', 32)}",),
        mtu=0,
        up=True,
        carrier=alive,
    )
    way_out = [_route_item(Route("default", card.name, str(gateway)))] if gateway else []
    return PodFacts(
        name=str(endpoint.get("Name") or "").strip(),
        items=Items.of((*make_device_items(card), *way_out)),
        listening=None,
        resolver=Resolver(servers[0], search, 1) if servers[0] else None,
    )


def translations(
    policy_lists: Iterable[Object], endpoints: Sequence[Object], own: Iterable[str]
) -> Translations:
    """Load balancers and OutBoundNAT.

    ``policy_lists``: output of ``Get-HnsPolicyList``. ``endpoints``: all endpoints, to which load
    balancers refer by id. ``own``: the node's own addresses: a load balancer on one of them, or
    without an address, is a NodePort.
    """
    addresses = {
        str(endpoint.get("ID", "")).lower(): str(endpoint.get("IPAddress") or "")
        for endpoint in endpoints
    }
    nodes = set(own)
    balancers: dict[tuple[str, str | None, int], Translated] = {}
    for each in (it for policy in policy_lists for it in _balancers(policy, addresses, nodes)):
        key = (each.protocol, each.address, each.port)
        first = balancers.get(key)  # HNS takes the oldest
        balancers[key] = replace(first, behind=each.backends) if first else each
    ordered = sorted(
        balancers.values(),
        key=lambda translation: (translation.address or "", translation.port, translation.protocol),
    )
    return Translations(
        by="hns" if balancers else "",
        services=tuple(ordered),
        masquerades=tuple(dict.fromkeys(_masquerades(endpoints))),
        marked=True,
    )


def _balancers(listed: Object, addresses: Mapping[str, str], own: set[str]) -> Iterator[Translated]:
    ends = [
        addresses.get(str(reference).rpartition("/")[2].lower(), "")
        for reference in listed.get("References") or ()
    ]
    for policy in _policies(listed, "ELB"):
        protocol = _PROTOCOLS.get(policy.get("Protocol", 0))
        if protocol is None:
            continue
        inner = int(policy.get("InternalPort", 0))
        backends = tuple(End(end, inner) for end in sorted(set(ends)) if end)
        for address in policy.get("VIPs") or (None,):
            node_port = address is None or str(address) in own or not address
            yield Translated(
                protocol,
                None if node_port else str(address),
                int(policy.get("ExternalPort", 0)),
                backends,
                kept=policy.get("IsDSR") if node_port else False,
            )


def _masquerades(endpoints: Iterable[Object]) -> Iterator[Masquerade]:
    for endpoint in endpoints:
        if not _is_pods(endpoint) or endpoint.get("IsRemoteEndpoint"):
            continue
        length = endpoint.get("PrefixLength", 32)
        source = str(ip_interface(f"{endpoint.get('IPAddress')}/{length}").network)
        for policy in _policies(endpoint, "OutBoundNAT"):
            spared = policy.get("ExceptionList") or policy.get("Exceptions") or ()
            yield Masquerade(source, tuple(str(subnet) for subnet in spared))


_ANYWHERE = "0.0.0.0"  # noqa: S104  Windows' next hop of an on-link route
_DEFAULT = "0.0.0.0/0"
_EVERYWHERE = {"224.0.0.0/4", "255.255.255.255/32", "127.0.0.0/8"}
_VIRTUAL = "vEthernet ("
_BLOCK, _ALLOW = "block", "allow"
_RUNS = "Running"


def observe(
    shell: WindowsShell,
    script: bytes,
    module: bytes,
    settings: Mapping[str, Any],
    deadline: Deadline,
) -> NodeFacts:
    """Observe a node with one step.

    ``shell``: the node. ``script``, ``module``: ``observe.ps1`` and the module that it imports,
    from :mod:`lab.windows.images.image_steps`. ``settings``: of the step ``Observe``.
    ``deadline``: for the whole step.

    Raises StepError, DeadlineError, BrokenError when the node cannot be queried.
    """
    return facts(run_step(shell, script, module, "observe", settings, deadline).facts)


def facts(answer: Object) -> NodeFacts:
    """Parse the step's answer. Pure; parts that cannot be read are listed in ``absent``."""
    read = _Reading(answer)
    networks, endpoints = read.all("networks"), read.all("endpoints")
    behind = _find_behind(read.all("adapters"))
    links = tuple(_links(read, behind))
    mtus = {_find_inner(link.name, behind): link.mtu for link in links}
    own = [text.partition("/")[0] for link in links for text in link.addresses]
    return NodeFacts(
        os="windows",
        version=str(answer.get("version", "")),
        items=Items.of(
            (
                *(item for link in links for item in make_device_items(link)),
                *_networks(networks, mtus),
                *_routes(read.all("routes"), read.all("interfaces"), behind),
                *_remotes(networks),
                *_neighbours(read.all("neighbours"), behind),
                *_forwards(read.all("interfaces")),
            )
        ),
        translations=translations(read.all("policies"), endpoints, own),
        barriers=(*_barriers(read.all("rules")), *_lists(endpoints)),
        allowed_ports=tuple(_allowed_ports(read.all("rules"))) if read.knows("rules") else None,
        listening=tuple(sorted(set(_list_listening(read.all("listening"))))),
        pods=pods(endpoints) if read.knows("endpoints") else None,
        units=tuple(_units(read)),
        software=Software(dropped=tuple(_dropped(read))),
        counters=tuple(_counters(read.all("statistics"), behind)),
        absent=tuple(read.absent.items()),
    )


class _Reading:
    """The step's lists of JSON texts, and the parts that cannot be read."""

    def __init__(self, answer: Object) -> None:
        self._said = answer
        absent = answer.get("absent")
        self.absent = (
            {str(k): str(v) for k, v in absent.items()} if isinstance(absent, dict) else {}
        )
        # facts that have another name on Linux
        for ours, theirs in (("nftables", "policies"), ("route", "routes")):
            if theirs in self.absent:
                self.absent[ours] = self.absent[theirs]

    def knows(self, name: str) -> bool:
        """Whether that query was answered."""
        return name in self._said and name not in self.absent

    def all(self, name: str) -> list[Any]:
        """The objects of a list."""
        values = self._said.get(name) or []
        texts = [values] if isinstance(values, str) else values
        try:
            return [json.loads(text) for text in texts]
        except (TypeError, ValueError) as error:
            self.absent[name] = f"its answer cannot be read: {error}"
            return []


def _dropped(read: _Reading) -> Iterator[str]:
    for plugin in read.all("plugins"):
        try:
            yield from dropped_policies(json.loads(str(plugin.get("text", ""))))
        except ValueError as error:
            read.absent["plugins"] = f"{plugin.get('path')} cannot be read: {error}"


def _find_behind(adapters: Iterable[Object]) -> dict[str, str]:
    """Each physical adapter in a virtual switch, by the virtual adapter that has replaced it.

    The virtual one has the same MAC; its name need not be ``vEthernet (NAME)``, which a container's
    adapter may have (recorded: pjh/SDN, mtu-with-new-hnsnetwork.txt).
    """
    listed = [(str(adapter["name"]), mac(adapter.get("mac"))) for adapter in adapters]
    cards = {own: name for name, own in listed if own and not name.startswith(_VIRTUAL)}
    return {name: cards[own] for name, own in listed if name.startswith(_VIRTUAL) and own in cards}


def _links(read: _Reading, behind: Mapping[str, str]) -> Iterator[LinkFacts]:
    """The adapters with addresses and MTU; one behind a virtual switch keeps its name."""
    adapters = {str(item["name"]): item for item in read.all("adapters")}
    addresses: dict[str, list[str]] = {}
    for address in read.all("addresses"):
        addresses.setdefault(str(address["name"]), []).append(
            f"{address['address']}/{address['length']}"
        )
    states = {str(interface["name"]): interface for interface in read.all("interfaces")}
    switched = {card: name for name, card in behind.items()}
    for name, adapter in adapters.items():
        if name in behind:
            continue
        shown = switched.get(name, name)
        virtual = "hns" if name.startswith(_VIRTUAL) else ""
        status = str(adapter.get("status", "")).lower()
        yield LinkFacts(
            name=name,
            kind=SWITCHED if name in switched else virtual,
            mac=mac(adapters[shown].get("mac")),
            addresses=tuple(addresses.get(shown, ())),
            mtu=int(states.get(shown, {}).get("mtu") or 0),
            up=status not in {"disabled", "not present"},
            carrier=status == "up",
        )


def _find_inner(name: str, behind: Mapping[str, str]) -> str:
    if name in behind or not name.startswith(_VIRTUAL):
        return behind.get(name, name)
    return name.removeprefix(_VIRTUAL).removesuffix(")")


def _routes(
    entries: Iterable[Object], interfaces: Iterable[Object], behind: Mapping[str, str]
) -> Iterator[Item]:
    """The best route of each destination, by its own metric plus its interface's."""
    metrics = {
        str(interface["name"]): int(interface.get("metric") or 0) for interface in interfaces
    }
    best: dict[str, tuple[int, Route]] = {}
    for entry in entries:
        destination, device = str(entry["destination"]), str(entry["name"])
        if destination in _EVERYWHERE or destination.startswith("127."):
            continue
        via = str(entry.get("via") or _ANYWHERE)
        best_route = Route(
            "default" if destination == _DEFAULT else destination,
            _find_inner(device, behind),
            None if via == _ANYWHERE else via,
        )
        metric = int(entry.get("metric") or 0) + metrics.get(device, 0)
        if destination not in best or metric < best[destination][0]:
            best[destination] = (metric, best_route)
    yield from (_route_item(best_route) for _, best_route in best.values())


def _neighbours(entries: Iterable[Object], behind: Mapping[str, str]) -> Iterator[Item]:
    for known in entries:
        target, owner = str(known["address"]), mac(known.get("mac"))
        if target.startswith(("224.", "239.")) or target == "255.255.255.255":
            continue
        unknown = owner in {"", "00:00:00:00:00:00"}
        yield make_neighbour(
            target,
            _find_inner(str(known["name"]), behind),
            "" if unknown else owner,
            str(known.get("state", "")).upper(),
        )


def _forwards(interfaces: Iterable[Object]) -> Iterator[Item]:
    """Whether any of HNS' own interfaces forwards; nothing if there is none."""
    forwarding = [
        str(interface.get("forwarding", "")).lower() == "enabled"
        for interface in interfaces
        if str(interface.get("name", "")).startswith(_VIRTUAL)
    ]
    if forwarding:
        yield make_setting(FORWARDING.path, str(int(any(forwarding))))


def _barriers(rules: Iterable[Object]) -> Iterator[Barrier]:
    """Firewall rules that block; rules that allow are not barriers."""
    for rule in rules:
        for protocol, first, last in _ports(rule, _BLOCK):
            yield Barrier(
                subject=FirewallSubject(rule=str(rule.get("name"))),
                rule=f"blocks inbound {protocol.upper()} {first}"
                + (f"-{last}" if last != first else ""),
                protocol=protocol,
                ports=(first, last),
            )


def _lists(endpoints: Iterable[Object]) -> Iterator[Barrier]:
    """Access control lists of pods' endpoints that block; those that allow are not barriers."""
    for endpoint in endpoints:
        for policy in _policies(endpoint, "ACL") if _is_pods(endpoint) else ():
            if str(policy.get("Action", "")).lower() != _BLOCK:
                continue
            ports = [word.split("-") for word in str(policy.get("RemotePorts") or "").split(",")]
            for number in ports:
                first_last = (int(number[0]), int(number[-1])) if number[0].isdecimal() else None
                protocol = _PROTOCOLS.get(str(policy.get("Protocols") or ""), "")
                port = f" to port {'-'.join(number)}" if first_last else ""
                whose = str(endpoint.get("Name") or "").strip()
                yield Barrier(
                    subject=FirewallSubject("forward", f"ACL of endpoint {whose}"),
                    rule=f"blocks {str(policy.get('Direction', '')).lower()}bound "
                    f"{protocol.upper() or 'packets'}{port} of {endpoint.get('IPAddress')}",
                    protocol=protocol,
                    ports=first_last,
                    prefixes=(f"{endpoint.get('IPAddress')}/32",),
                    hook="forward",
                )


def _allowed_ports(rules: Iterable[Object]) -> Iterator[tuple[str, int, int]]:
    for rule in rules:
        yield from _ports(rule, _ALLOW)


def _ports(rule: Object, action: str) -> Iterator[tuple[str, int, int]]:
    """Protocol, first and last port of the active rules with this action."""
    does = str(rule.get("action", "")).lower() == action
    if not does or str(rule.get("enabled", "")).lower() != "true":
        return
    for port in rule.get("ports") or ():
        numbers = [int(word) for word in str(port).split("-") if word.isdecimal()]
        if numbers:
            yield str(rule.get("protocol", "")).lower(), numbers[0], numbers[-1]


def _list_listening(entries: Iterable[Object]) -> Iterator[tuple[str, int]]:
    for entry in entries:
        if not str(entry.get("address", "")).startswith(("127.", "::1")):
            yield str(entry["protocol"]), int(entry["port"])


def _units(read: _Reading) -> Iterator[Unit]:
    logs = {
        str(log["name"]): tuple(str(line) for line in log.get("lines") or ())
        for log in read.all("logs")
    }
    for service in read.all("services"):
        name, state = str(service["name"]), str(service.get("state", ""))
        start = str(service.get("start", ""))
        more = f", starts: {start}" if start and state != _RUNS else ""
        yield Unit(name, f"{state}{more}", logs.get(name, ()))


_DIRECTIONS: tuple[Literal["received", "sent"], ...] = ("received", "sent")


def _counters(entries: Iterable[Object], behind: Mapping[str, str]) -> Iterator[DeviceCounter]:
    by_device = {_find_inner(str(entry["name"]), behind): entry for entry in entries}
    for name, entry in by_device.items():
        for direction in _DIRECTIONS:
            yield DeviceCounter(name, direction, PACKETS, int(entry.get(direction) or 0))
            for event in ("discarded", "errors"):
                if value := entry.get(f"{direction}_{event}"):
                    yield DeviceCounter(name, direction, event, int(value))
