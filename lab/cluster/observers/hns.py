"""What the Host Networking Service of a Windows node says, in the Intent's words. Pure.

Its first schema, as ``Get-HnsNetwork``, ``Get-HnsEndpoint`` and ``Get-HnsPolicyList`` print it:
an Overlay network is a tunnel (VSID of its subnet, its ManagementIP), its RemoteSubnetRoute
policies are routes, neighbours and forwarding entries at once; an L2Bridge network is a bridge;
OutBoundNAT policies of pods' endpoints masquerade; ELB policies are Services. Sources: hcsshim
(internal/hns), flannel (pkg/backend/vxlan/vxlan_network_windows.go), kube-proxy
(pkg/proxy/winkernel), and outputs in issues of calico and sig-windows-tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_interface, ip_network
from typing import Any

from lab.cluster.observers.facts import Link, PodFacts, SeenNeighbour
from lab.cluster.observers.passage import End, Masquerade, Translated, Translations
from lab.topology.intent import (
    Bridge,
    ForwardingEntry,
    Neighbour,
    Resolver,
    Route,
    Tunnel,
)

Object = Mapping[str, Any]

VXLAN_PORT = 4789
"""The only one that HNS does (facts of flannel on Windows)."""
_OVERLAY = "overlay"
_BRIDGES = {"l2bridge", "l2tunnel"}
_PROTOCOLS = {6: "tcp", 17: "udp", "6": "tcp", "17": "udp", "TCP": "tcp", "UDP": "udp"}
_ATTACHED = {2, 3}
"""States of an endpoint that a container has (hcsshim: Attached, AttachedSharing)."""


def mac(text: object) -> str:
    """``00-15-5D-D3-D8-DE`` as the Intent writes it."""
    return str(text or "").replace("-", ":").lower()


def _policies(owner: Object, kind: str) -> Iterator[Object]:
    """Those of a kind, their settings laid flat where the second schema keeps them apart."""
    for policy in owner.get("Policies") or ():
        if isinstance(policy, Mapping) and str(policy.get("Type", "")).lower() == kind.lower():
            inner = policy.get("Settings")
            yield {**policy, **inner} if isinstance(inner, Mapping) else policy


def _subnets(network: Object) -> list[Object]:
    return [one for one in network.get("Subnets") or () if isinstance(one, Mapping)]


def bridges(networks: Iterable[Object], mtus: Mapping[str, int]) -> tuple[Bridge, ...]:
    """The L2Bridge networks; their address is that of the subnet's gateway."""
    found = []
    for network in networks:
        if str(network.get("Type", "")).lower() in _BRIDGES:
            addresses = tuple(
                f"{one['GatewayAddress']}/{_length(one.get('AddressPrefix'))}"
                for one in _subnets(network)
                if one.get("GatewayAddress")
            )
            name = str(network.get("Name", ""))
            found.append(Bridge(name, "", addresses, mtus.get(name, 0)))
    return tuple(found)


def _length(prefix: object) -> str:
    return str(prefix or "").partition("/")[2] or "32"


def tunnels(networks: Iterable[Object]) -> tuple[Tunnel, ...]:
    """The Overlay networks. Their MTU and address nobody says."""
    return tuple(
        Tunnel(
            name=str(network.get("Name", "")),
            vni=_vsid(network),
            port=_port(network),
            local=str(network.get("ManagementIP") or ""),
            device=str(network.get("NetworkAdapterName") or ""),
            mac=mac(network.get("DrMacAddress")),
            addresses=(),
            mtu=0,
        )
        for network in networks
        if str(network.get("Type", "")).lower() == _OVERLAY
    )


def _vsid(network: Object) -> int:
    for subnet in _subnets(network):
        for policy in _policies(subnet, "VSID"):
            return int(policy.get("VSID", policy.get("IsolationId", 0)))
    return 0


def _port(network: Object) -> int:
    for policy in _policies(network, "VxlanPort"):
        return int(policy.get("Port", VXLAN_PORT))
    return VXLAN_PORT


def remotes(
    networks: Iterable[Object],
) -> tuple[tuple[Route, ...], tuple[SeenNeighbour, ...], tuple[ForwardingEntry, ...]]:
    """What RemoteSubnetRoute policies say, as flannel's three kinds of entries on Linux."""
    routes, neighbours, entries = [], [], []
    for network in networks:
        name = str(network.get("Name", ""))
        for policy in _policies(network, "RemoteSubnetRoute"):
            prefix, owner = (
                str(policy["DestinationPrefix"]),
                mac(policy.get("DistributedRouterMacAddress")),
            )
            end = str(ip_network(prefix, strict=False).network_address)
            routes.append(Route(prefix, name, end, onlink=True))
            neighbours.append(SeenNeighbour(Neighbour(end, owner, name), "PERMANENT"))
            entries.append(ForwardingEntry(owner, name, str(policy.get("ProviderAddress", ""))))
    return tuple(routes), tuple(neighbours), tuple(entries)


def pods(endpoints: Iterable[Object]) -> tuple[PodFacts, ...]:
    """The endpoints that pods have, or had: those with a network's name behind their own.

    One of them that is marked as another node's has lost its network, and so has no carrier.
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
    search = tuple(one for one in str(endpoint.get("DNSSuffix") or "").split(",") if one)
    card = Link(
        name=str(endpoint.get("ID", "")),
        kind="hns",
        mac=mac(endpoint.get("MacAddress")),
        addresses=(f"{endpoint.get('IPAddress')}/{endpoint.get('PrefixLength', 32)}",),
        mtu=0,
        up=True,
        carrier=alive,
    )
    return PodFacts(
        name=str(endpoint.get("Name") or "").strip(),
        links=(card,),
        routes=(Route("default", card.name, str(gateway)),) if gateway else (),
        neighbours=(),
        listening=None,
        resolver=Resolver(servers[0], search, 1) if servers[0] else None,
    )


def translations(
    policy_lists: Iterable[Object], endpoints: Sequence[Object], own: Iterable[str]
) -> Translations:
    """Load balancers and OutBoundNAT.

    Parameters
    ----------
    policy_lists
        What ``Get-HnsPolicyList`` says.
    endpoints
        All endpoints, to which load balancers refer by id.
    own
        The node's own addresses: a load balancer on one of them, or on none, is a NodePort.

    """
    addresses = {
        str(one.get("ID", "")).lower(): str(one.get("IPAddress") or "") for one in endpoints
    }
    nodes = set(own)
    found = [it for one in policy_lists for it in _balancers(one, addresses, nodes)]
    ordered = sorted(found, key=lambda one: (one.address or "", one.port, one.protocol))
    return Translations(
        by="hns" if found else "",
        services=tuple(ordered),
        masquerades=tuple(dict.fromkeys(_masquerades(endpoints))),
        marked=True,
    )


def _balancers(listed: Object, addresses: Mapping[str, str], own: set[str]) -> Iterator[Translated]:
    ends = [
        addresses.get(str(one).rpartition("/")[2].lower(), "")
        for one in listed.get("References") or ()
    ]
    for policy in _policies(listed, "ELB"):
        protocol = _PROTOCOLS.get(policy.get("Protocol", 0))
        if protocol is None:
            continue
        inner = int(policy.get("InternalPort", 0))
        backends = tuple(End(one, inner) for one in sorted(set(ends)) if one)
        for address in policy.get("VIPs") or (None,):
            node_port = address is None or str(address) in own or not address
            yield Translated(
                protocol,
                None if node_port else str(address),
                int(policy.get("ExternalPort", 0)),
                backends,
            )


def _masquerades(endpoints: Iterable[Object]) -> Iterator[Masquerade]:
    for endpoint in endpoints:
        if not _is_pods(endpoint) or endpoint.get("IsRemoteEndpoint"):
            continue
        length = endpoint.get("PrefixLength", 32)
        source = str(ip_interface(f"{endpoint.get('IPAddress')}/{length}").network)
        for policy in _policies(endpoint, "OutBoundNAT"):
            spared = policy.get("ExceptionList") or policy.get("Exceptions") or ()
            yield Masquerade(source, tuple(str(one) for one in spared))
