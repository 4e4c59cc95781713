"""Upstream router with VRRP: Linux nodes hold the Windows pods' gateway as a keepalived address.

Every node has two interfaces: one on the office network with the default route, one on the
cluster's network, which has no router. The Linux nodes share an overlay, and a Windows node joins
without touching it: the first address of its pod range is held by one of three Linux nodes, which
announces the range to the others. Windows pods are on the cluster's network (l2bridge).

Source: a field report of adding a Windows node with wincni to a cluster with Calico's IPIP between
its Linux nodes. VXLAN replaces IPIP here, because many kernels do not have it, and BIRD replaces
Calico, which uses BIRD.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import IPv4Network

from lab.plan.plan import FIRST_NODE_OFFSET, Plan, PlannedNode, mac
from lab.plan.planner import VXLAN_OVERHEAD, node_mtu
from lab.scenario.findings import Problem
from lab.scenario.scenario import Scenario
from lab.topology import bird, gateways, machines, vxlan, windows_limits
from lab.topology.daemon import READY_SECONDS, Daemon, File, Ready
from lab.topology.intent import (
    Gateway,
    Intent,
    Interface,
    MachineIntent,
    Neighbour,
    ProxyNeighbour,
    Route,
    Segment,
    Session,
    Speaker,
)
from lab.topology.kinds import l2bridge
from lab.topology.registry import Parameter, Topology, in_range, one_of, parameter

KEEPALIVED = "keepalived"
_FIRST_PRIORITY = 150
"""VRRP priority of the first candidate; each further one has ten less. Two that wait for the same
silence then do not take over at the same moment (RFC 5798: the skew is a 256th of the interval
per step of priority).
"""
_PRIORITY_STEP = 10
_LABEL_LENGTH = 15
_SILENT_INTERVALS = 4
"""A backup takes over after three intervals without an advertisement, and a skew of at most one
(RFC 5798, 6.1).
"""
_LEAST_PATH_MTU = 552
"""Linux takes no smaller path MTU from an ICMP error (ip-sysctl: min_pmtu)."""


def keepalived_daemon(
    machine: str,
    gateways: tuple[Gateway, ...],
    addresses: Mapping[str, str],
    advert_seconds: float,
) -> Daemon:
    """The keepalived daemon of one candidate.

    It is ready when it holds its own gateways and is backup for the rest. All candidates start as
    backups without preemption, so the first to start becomes the holder: it starts a stage before
    the others.

    Parameters
    ----------
    machine
        The candidate's name.
    gateways
        The gateways that it may hold.
    addresses
        Address of every candidate on the segment, by name.
    advert_seconds
        Seconds between two advertisements; a backup takes over after three missing ones.

    """
    first = all(gateway.holder == machine for gateway in gateways)
    state = "MASTER" if first else "BACKUP"
    awaited = (rf"\({gateway.node}\) Entering {state} STATE" for gateway in gateways)
    lines = _configuration(machine, gateways, addresses, advert_seconds)
    ready = Ready(
        r"\A" + "".join(rf"(?=[\s\S]*{line})" for line in awaited),
        seconds=READY_SECONDS + _SILENT_INTERVALS * advert_seconds,
    )
    return Daemon(
        name=KEEPALIVED,
        package=KEEPALIVED,
        command=(KEEPALIVED, "--dont-fork", "--log-console", "--log-detail", "--vrrp", *_FILE),
        ready=ready,
        files=(File("keepalived.conf", "".join(f"{line}\n" for line in lines)),),
        stage=0 if first else 1,
    )


_FILE = (f"--use-file=/run/{KEEPALIVED}/keepalived.conf",)


def _configuration(
    machine: str,
    gateways: tuple[Gateway, ...],
    addresses: Mapping[str, str],
    advert_seconds: float,
) -> Iterator[str]:
    version = 2 if float(advert_seconds).is_integer() else 3  # VRRP 2 has whole seconds only
    yield "global_defs {"
    yield f"  router_id {machine}"
    yield f"  vrrp_version {version}"
    yield "  vrrp_skip_check_adv_addr"
    yield "  vrrp_garp_interval 0"
    yield "  vrrp_gna_interval 0"
    yield "}"
    for number, gateway in enumerate(gateways, start=1):
        rank = gateway.candidates.index(machine)
        yield f"vrrp_instance {gateway.node} {{"
        yield "  state BACKUP"
        yield f"  interface {gateway.device}"
        yield f"  virtual_router_id {gateway.router_id}"
        yield f"  priority {_FIRST_PRIORITY - rank * _PRIORITY_STEP}"
        yield "  nopreempt"
        yield f"  advert_int {advert_seconds:g}"
        yield f"  unicast_src_ip {addresses[machine]}"
        yield "  unicast_peer {"
        for other in gateway.candidates:
            if other != machine:
                yield f"    {addresses[other]}"
        yield "  }"
        yield "  virtual_ipaddress {"
        label = f"{gateway.device}:{number}"[:_LABEL_LENGTH]
        yield f"    {gateway.address} dev {gateway.device} label {label}"
        yield "  }"
        yield "}"


SEGMENT = "office"
CARD = "eth0"
"""Default office network, from the report."""
DEFAULT = "172.16.126.0/24"


def office_network(plan: Plan) -> IPv4Network:
    """The office network that the scenario asks for."""
    return IPv4Network(parameter(plan, "office_cidr"))


def office_card(office: IPv4Network, number: int, mtu: int) -> Interface:
    """A node's office interface, with the same host number as on the cluster's network."""
    address = office[number]
    return Interface(CARD, SEGMENT, mac(address), (f"{address}/{office.prefixlen}",), mtu)


def check_office(scenario: Scenario) -> Iterator[Problem]:
    """Check that the office network is separate and has room for every node."""
    written = scenario.topology.parameters.get("office_cidr", DEFAULT)
    key = ("topology", "office_cidr")
    try:
        office = IPv4Network(str(written))
    except ValueError:  # reported with the other parameters
        return
    others = {
        "network.cidr": scenario.network.cidr,
        "kubernetes.pod_cidr": scenario.kubernetes.pod_cidr,
        "kubernetes.service_cidr": scenario.kubernetes.service_cidr,
    }
    for name, other in others.items():
        if office.overlaps(other):
            yield Problem(key, f"{office} overlaps {name} ({other})", "use a network of its own")
    first = int(scenario.network.cidr.network_address)
    numbers = [int(group.address) - first for group in scenario.nodes if group.address]
    numbers.append(FIRST_NODE_OFFSET + sum(group.count for group in scenario.nodes))
    highest = max(numbers)
    if highest >= office.num_addresses - 1:
        yield Problem(
            key,
            f"a node has the same host number on both networks, and {office} has no number "
            f"{highest}",
            "use a larger network, or give nodes lower addresses",
        )


CLUSTER_CARD = "eth1"
OVERLAY = vxlan.Overlay(device="vxlan0", vni=4096, port=4789)
CANDIDATES = 3
FIRST_ROUTER_ID = 188
"""Virtual router id in the report; each further Windows node gets the next one."""
LAST_ROUTER_ID = 255
GATEWAY_OFFSET = 1
ASN = 64_512
HOLD_SECONDS = 9
BFD_MILLISECONDS = 300
"""Three missing BFD packets are noticed in 0.9 s, before a backup takes over."""
WINDOWS, WORKERS = "windows", "workers"
_BIRD_STAGE = 2
"""Stage after keepalived: a gateway has a holder before it is announced."""


def build(plan: Plan) -> Intent:
    """Plan to Intent."""
    network = office_network(plan)
    nodes = tuple(_node(plan, node, network) for node in plan.nodes)
    bare = machines.assemble(plan, nodes, _make_router(plan, network))
    cluster, outside = bare.segments
    intent = replace(
        bare,
        segments=(cluster, Segment(SEGMENT, str(network), plan.node_mtu), outside),
        gateways=tuple(_list_gateways(plan)),
    )
    first = {gateway.node: gateway.candidates[0] for gateway in intent.gateways}
    return _with_daemons(plan, gateways.held(intent, first))


def _is_behind(plan: Plan, node: PlannedNode) -> bool:
    """Whether the node joins without touching the overlay, behind its own gateway."""
    workers = parameter(plan, "behind_gateways") == WORKERS
    return node.os == "windows" or (workers and node.role == "worker")


def _in_overlay(plan: Plan) -> tuple[PlannedNode, ...]:
    return tuple(node for node in plan.nodes if node.pod_cidr and not _is_behind(plan, node))


def _list_gateways(plan: Plan) -> Iterator[Gateway]:
    candidates = tuple(node.name for node in _in_overlay(plan)[:CANDIDATES])
    behind = [node for node in plan.nodes if node.pod_cidr and _is_behind(plan, node)]
    for number, node in enumerate(behind):
        assert node.pod_cidr is not None, "chosen by it"
        yield Gateway(
            node=node.name,
            address=f"{node.pod_cidr[GATEWAY_OFFSET]}/{node.pod_cidr.prefixlen}",
            device=CLUSTER_CARD,
            router_id=FIRST_ROUTER_ID + number,
            candidates=candidates,
            holder=None,
        )


# Nodes


def _node(plan: Plan, planned: PlannedNode, network: IPv4Network) -> MachineIntent:
    behind = _is_behind(plan, planned)
    of_pods = _behind_gateway(plan, planned) if behind else _make_overlay(plan, planned)
    node = machines.node(plan, planned, of_pods)
    card = office_card(network, _number(plan, planned), plan.node_mtu)
    router = str(network[GATEWAY_OFFSET])
    lost = str(plan.router_address)
    node = replace(
        node,
        interfaces=(card, *node.interfaces),
        routes=(
            Route("default", CARD, router),
            *(route for route in node.routes if route.destination != "default"),
        ),
        neighbours=(
            Neighbour(router, mac(network[GATEWAY_OFFSET]), CARD),
            *(neighbour for neighbour in node.neighbours if neighbour.address != lost),
        ),
    )
    if behind and planned.pod_cidr:
        gateway = ProxyNeighbour(str(planned.pod_cidr[GATEWAY_OFFSET]), l2bridge.BRIDGE)
        return replace(node, proxies=(*node.proxies, gateway))
    return node


def _behind_gateway(plan: Plan, planned: PlannedNode) -> machines.NodeNetwork:
    """The network of a node whose pods' gateway is on the cluster's network.

    Windows pods use that gateway directly. Linux pods use the node, which alone has the route,
    because no network add-on creates it in a cluster.
    """
    gateway = str(planned.pod_cidr[GATEWAY_OFFSET]) if planned.pod_cidr else ""
    linux = planned.os == "linux"
    routes = (
        Route(f"{gateway}/32", CLUSTER_CARD, requested=linux),
        Route(str(plan.pod_cidr), CLUSTER_CARD, gateway, requested=linux),
    )
    return machines.NodeNetwork(
        bridge=l2bridge.BRIDGE,
        gateway_offset=l2bridge.WINCNI_GATEWAY_OFFSET,
        mtu=plan.node_mtu,
        not_masqueraded=_not_masqueraded(plan),
        routes=routes if planned.pod_cidr else (),
        answers_for_pods=True,
        uplink=CLUSTER_CARD,
        gateway_elsewhere=None if linux else GATEWAY_OFFSET,
    )


def _make_overlay(plan: Plan, planned: PlannedNode) -> machines.NodeNetwork:
    """The network of a node in the overlay; routes into it are learned."""
    others = [node for node in _in_overlay(plan) if node.name != planned.name]
    if planned.pod_cidr is None:
        others = []
    return machines.NodeNetwork(
        bridge=l2bridge.BRIDGE,
        gateway_offset=l2bridge.LINUX_GATEWAY_OFFSET,
        mtu=plan.node_mtu - VXLAN_OVERHEAD,
        not_masqueraded=_not_masqueraded(plan),
        routes=tuple(
            Route(
                str(other.pod_cidr), OVERLAY.device, str(other.address), onlink=True, by=bird.NAME
            )
            for other in others
        ),
        tunnel=vxlan.tunnel(plan, planned, OVERLAY, CLUSTER_CARD),
        neighbours=tuple(
            Neighbour(str(other.address), mac(vxlan.end(other)), OVERLAY.device) for other in others
        ),
        forwarding=vxlan.forwarding(others, OVERLAY),
        uplink=CLUSTER_CARD,
    )


def _not_masqueraded(plan: Plan) -> tuple[str, ...]:
    return (str(plan.pod_cidr), str(plan.service_cidr))


def _make_router(plan: Plan, network: IPv4Network) -> MachineIntent:
    """The office's router, which is on no other network."""
    router = machines.router(plan)
    card = replace(
        office_card(network, GATEWAY_OFFSET, plan.node_mtu), name=router.interfaces[0].name
    )
    cluster = {str(node.address) for node in plan.nodes}
    nodes = [office_card(network, _number(plan, node), plan.node_mtu) for node in plan.nodes]
    return replace(
        router,
        interfaces=(card, *router.interfaces[1:]),
        neighbours=(
            *(Neighbour(node.addresses[0].split("/")[0], node.mac, card.name) for node in nodes),
            *(neighbour for neighbour in router.neighbours if neighbour.address not in cluster),
        ),
    )


def _number(plan: Plan, node: PlannedNode) -> int:
    return int(node.address) - int(plan.node_cidr.network_address)


# Daemons


def _with_daemons(plan: Plan, intent: Intent) -> Intent:
    """The Intent with keepalived on the candidates and BIRD on every node in the overlay."""
    addresses = {node.name: str(node.address) for node in _in_overlay(plan)}
    speaking = replace(
        intent,
        machines=tuple(
            replace(machine, speaker=_make_speaker(machine.name, addresses))
            if machine.name in addresses
            else machine
            for machine in intent.machines
        ),
    )
    settled = gateways.held(speaking, {})
    return replace(
        settled,
        machines=tuple(
            replace(machine, daemons=tuple(_list_daemons(plan, settled, machine, addresses)))
            for machine in settled.machines
        ),
    )


def _make_speaker(name: str, addresses: Mapping[str, str]) -> Speaker:
    return Speaker(
        address=addresses[name],
        asn=ASN,
        sessions=tuple(
            Session(other, address, ASN) for other, address in addresses.items() if other != name
        ),
        announces=(l2bridge.BRIDGE, CLUSTER_CARD),
        hold_seconds=HOLD_SECONDS,
        tunnel=OVERLAY.device,
        bfd_milliseconds=BFD_MILLISECONDS,
    )


def _list_daemons(
    plan: Plan, intent: Intent, machine: MachineIntent, addresses: Mapping[str, str]
) -> Iterator[Daemon]:
    gateways = tuple(gateway for gateway in intent.gateways if machine.name in gateway.candidates)
    if gateways:
        seconds = parameter(plan, "advert_seconds")
        yield keepalived_daemon(machine.name, gateways, addresses, seconds)
    if machine.speaker:
        learned = [route for route in machine.routes if route.by == bird.NAME]
        yield bird.daemon(machine.speaker, str(plan.pod_cidr), learned, _BIRD_STAGE)


# Checks of a scenario


def check(scenario: Scenario) -> Iterator[Problem]:
    """Check the office network, the MTU, and that there is a router id for each gateway."""
    yield from check_office(scenario)
    behind = scenario.topology.parameters.get("behind_gateways")
    count = sum(
        group.count
        for group in scenario.nodes
        if group.os == "windows" or (behind == WORKERS and group.role == "worker")
    )
    most = LAST_ROUTER_ID - FIRST_ROUTER_ID + 1
    if count > most:
        yield Problem(
            ("nodes",),
            f"{count} nodes behind gateways need as many virtual router ids, but there are {most}",
            f"use at most {most} such nodes",
        )
    mtu, least = node_mtu(scenario), _LEAST_PATH_MTU + VXLAN_OVERHEAD
    if count and mtu < least:
        yield Problem(
            ("network", "mtu"),
            f"an MTU of {mtu} leaves {mtu - VXLAN_OVERHEAD} bytes in the tunnel to the nodes "
            f"behind gateways, and their pods learn no path MTU below {_LEAST_PATH_MTU}",
            f"use {least} or more",
        )


TOPOLOGY = Topology(
    kind="upstream-vrrp",
    title="Upstream router by VRRP: Windows pods' gateway is a keepalived address on Linux nodes",
    parameters={
        "office_cidr": Parameter(
            {
                "type": "string",
                "default": DEFAULT,
                "description": "The office network, the target of every node's default route",
            },
            "is not a network",
            f'write it like "{DEFAULT}"',
            IPv4Network,
        ),
        "behind_gateways": one_of(
            "does not say which nodes are behind gateways",
            "The nodes whose pods' gateway is a virtual address: Windows nodes, or all workers, so "
            "that the gateways can be tested without Windows",
            {WINDOWS: "Windows nodes", WORKERS: "Linux workers, too"},
        ),
        "advert_seconds": in_range(
            "a VRRP advertisement interval",
            "Time between two VRRP advertisements; a backup takes over after three",
            1,
            least=0.1,
            most=10,
            whole=False,
            unit="seconds",
        ),
    },
    build=build,
    also=("vrrp", "keepalived", "vip"),
    limits=windows_limits.WITHOUT_POD_DNS,
    check=check,
)
