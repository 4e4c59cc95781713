"""Plan, Intent and known limits of an existing cluster, from what was found. Pure.

Service addresses, node ports and pod addresses are the cluster's to choose: until they are
observed, they are stand-ins, and :func:`bind_pods` replaces them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network

from lab._log import listed
from lab.machines.attached.recognise import SOURCES_KNOWN
from lab.machines.attached.record import PODS, AttachedRecord, ClusterFound, NodeFound
from lab.plan.plan import Plan, PlannedNode, PlannedPod, PlannedService
from lab.providers.provider import Decided
from lab.scenario.reserved import POD_PORT, SERVICE_PORT
from lab.scenario.scenario import Limit
from lab.scenario.terms import PROTOCOLS, Family, ProxyMode, ServicePort
from lab.topology import windows_limits
from lab.topology.intent import (
    NODE_SEGMENT,
    Backend,
    Intent,
    Interface,
    Kubelet,
    KubernetesIntent,
    MachineIntent,
    Obstacle,
    Pod,
    ProxiedService,
    Resolver,
    Segment,
    Translation,
)
from lab.topology.observed import ObservedPod

TOPOLOGY = "attached"
NONE = IPv4Address("0.0.0.0")  # noqa: S104  a stand-in, never bound
HERE = "this_machine"
"""This machine; no node has such a name."""
_NOWHERE = IPv4Network("0.0.0.0/0")
LEAST_MTU = 1280
"""Bytes that every path carries; used until a pod's own is read."""
_NDOTS = 5
_SHARED = "shared"
_SHARED_BACKENDS = 3
_DNS_PORT = 53
_MOVED = ("see its affinity", "look for a webhook that changes the affinity of pods")
_LONGEST = 40
"""Characters of a pod's name before its number: the names of Services are DNS labels of 63."""


def decide(record: AttachedRecord) -> Decided:
    """Plan, Intent and limits of a lab."""
    plan = make_plan(record)
    return Decided(plan, _make_intent(record, plan), limits(record.cluster))


def limits(cluster: ClusterFound) -> tuple[Limit, ...]:
    """What is documented not to work from Windows nodes, everywhere and with the CNI found."""
    if not any(node.os == "windows" for node in cluster.nodes):
        return ()
    own = (windows_limits.OVERLAY_NODE_POD,) if cluster.cni == "flannel" else ()
    return (*own, *windows_limits.EVERYWHERE)


def families(record: AttachedRecord) -> tuple[Family, ...]:
    """The families that can be probed on these terms."""
    return (
        *("pod-pod", "pod-service", "hairpin"),
        *(("node-pod", "node-service") if record.terms.host_network else ()),
        *(("nodeport",) if record.terms.node_ports else ()),
        *(("dns",) if record.cluster.dns else ()),
    )


def make_plan(record: AttachedRecord) -> Plan:
    """The plan: which pods and Services there are, and the matrix."""
    cluster = record.cluster
    nodes = tuple(_plan_nodes(cluster.nodes, record.prefix))
    pods = [pod for node in nodes for pod in node.pods]
    return Plan(
        scenario=record.address.context,
        summary=f"the cluster of context '{record.address.context}'",
        topology=TOPOLOGY,
        parameters={},
        version=cluster.version,
        domain=cluster.dns.domain if cluster.dns else "cluster.local",
        pod_cidr=_range(cluster.pod_cidrs),
        service_cidr=_range(cluster.service_cidrs),
        dns_address=IPv4Address(cluster.dns.address) if cluster.dns else NONE,
        proxy_mode=_proxy_mode(cluster),
        node_cidr=_NOWHERE,
        node_mtu=LEAST_MTU,
        router_address=NONE,
        outside_cidr=_NOWHERE,
        outside_router_address=NONE,
        client_address=NONE,
        nodes=nodes,
        services=tuple(_plan_services(record, pods)),
        families=families(record),
        protocols=PROTOCOLS,
        sizes=("small", "large"),
        exceptions=(),
    )


def _range(texts: Iterable[str]) -> IPv4Network:
    return IPv4Network(next(iter(texts), str(_NOWHERE)))


def _proxy_mode(cluster: ClusterFound) -> ProxyMode:
    return "nftables" if cluster.proxy_mode == "nftables" else "iptables"


def _plan_nodes(nodes: Iterable[NodeFound], prefix: str) -> Iterator[PlannedNode]:
    taken: set[str] = set()
    for node in nodes:
        base = _pod_base(node.name, taken)
        taken.add(base)
        yield PlannedNode(
            name=node.name,
            os=node.os,
            role=node.role,
            address=IPv4Address(node.addresses[0]),
            mac="",
            pod_cidr=IPv4Network(node.pod_cidr) if node.pod_cidr else _NOWHERE,
            pods=tuple(
                PlannedPod(f"{prefix}{base}-p{number}", node.name, "probe", NONE, "")
                for number in range(1, PODS + 1)
            ),
            version=node.version,
            image=node.build,
            memory_mib=0,
            vcpus=0,
            disk_gib=0,
            hypervisor=None,
        )


def _pod_base(node: str, taken: set[str]) -> str:
    """The beginning of the names of a node's pods: that of the node, as a DNS label."""
    whole = re.sub(r"[^a-z0-9]+", "-", node.lower()).strip("-") or "node"
    short = re.sub(r"[^a-z0-9]+", "-", node.lower().partition(".")[0]).strip("-")
    for name in (short, whole):
        if name and len(name) <= _LONGEST and name not in taken:
            return name
    number = 1
    while (name := f"{whole[: _LONGEST - 4].rstrip('-')}-{number}") in taken:
        number += 1
    return name


def _plan_services(record: AttachedRecord, pods: list[PlannedPod]) -> Iterator[PlannedService]:
    node_port = 1 if record.terms.node_ports else None
    port = ServicePort("", PROTOCOLS, SERVICE_PORT, POD_PORT, node_port)
    for pod in pods:
        yield PlannedService(f"to-{pod.name}", "single", NONE, (port,), (pod.name,))
    firsts = [pod.name for pod in pods if pod.name.endswith("-p1")]
    if len(firsts) > 1:
        inside = replace(port, node_port=None)
        backends = tuple(firsts[:_SHARED_BACKENDS])
        yield PlannedService(f"{record.prefix}{_SHARED}", "shared", NONE, (inside,), backends)


def _make_intent(record: AttachedRecord, plan: Plan) -> Intent:
    cluster = record.cluster
    of_pod = {pod.name: pod.node for pod in plan.pods()}
    services = [
        ProxiedService(
            service.name,
            str(service.address),
            service.ports,
            tuple(Backend(name, str(NONE), of_pod[name]) for name in service.backends),
        )
        for service in plan.services
    ]
    if cluster.dns:
        port = ServicePort("", PROTOCOLS, _DNS_PORT, _DNS_PORT, None)
        ends = tuple(Backend(name, address, node) for name, node, address in cluster.dns.pods)
        services.append(ProxiedService(cluster.dns.service, cluster.dns.address, (port,), ends))
    machines = tuple(
        _make_machine(record, plan, planned, node, tuple(services))
        for planned, node in zip(plan.nodes, cluster.nodes, strict=True)
    )
    if record.terms.from_here:
        card = Interface("", NODE_SEGMENT, "", (f"{NONE}/32",), LEAST_MTU)
        machines += (MachineIntent(name=HERE, kind="client", os="linux", interfaces=(card,)),)
    return Intent(
        scenario=plan.scenario,
        topology=TOPOLOGY,
        domain=plan.domain,
        segments=(Segment(NODE_SEGMENT, str(plan.node_cidr), plan.node_mtu),),
        machines=machines,
        pod_mtu=LEAST_MTU,
        node_mtu=LEAST_MTU,
        kubernetes=KubernetesIntent(
            plan.version,
            str(plan.pod_cidr),
            str(plan.service_cidr),
            str(plan.dns_address),
            plan.proxy_mode,
        ),
        cni=cluster.cni if cluster.cni in SOURCES_KNOWN else "",
        existing=True,
        disclaimer=_disclaim(cluster),
    )


def _disclaim(cluster: ClusterFound) -> str | None:
    """Which nodes are not Windows, though they are Windows nodes; None if there are none."""
    names = [node.name for node in cluster.nodes if node.wine]
    programs = "no Windows, but Kubernetes' Windows programs on Wine; HNS is emulated"
    return f"{listed(names)}: {programs}" if names else None


def _make_machine(
    record: AttachedRecord,
    plan: Plan,
    planned: PlannedNode,
    node: NodeFound,
    services: tuple[ProxiedService, ...],
) -> MachineIntent:
    domain, dns = plan.domain, record.cluster.dns
    search = (f"{record.namespace}.svc.{domain}", f"svc.{domain}", domain)
    resolver = Resolver(str(plan.dns_address), search, _NDOTS)

    def pod(name: str, address: str, *, probe: bool) -> Pod:
        return Pod(
            name, "probe" if probe else "dns", "", "", f"{address}/32", "", LEAST_MTU, (), resolver
        )

    servers = list(dns.pods) if dns else []
    known = {each.name for each in record.cluster.nodes}
    if dns and not any(place in known for _, place, _ in servers):
        servers = [(dns.service, record.cluster.nodes[0].name, dns.address)]
    return MachineIntent(
        name=node.name,
        kind="node",
        os=node.os,
        interfaces=(
            Interface("", NODE_SEGMENT, "", tuple(f"{a}/32" for a in node.addresses), LEAST_MTU),
        ),
        pods=(
            *(pod(own.name, str(own.address), probe=True) for own in planned.pods),
            *(
                pod(name, address, probe=False)
                for name, place, address in servers
                if place == node.name
            ),
        ),
        translation=Translation(None, (), services),
        forwards=True,
        kubelet=Kubelet(node.role, node.version, None),
    )


def host_pod(machine: MachineIntent) -> str:
    """The pod in a node's own network that sends for it; named like the node's other pods.

    Empty for a machine that is no node, and for a Windows node: it sends nothing.
    """
    if not machine.pods or machine.os == "windows":
        return ""
    return f"{machine.pods[0].name.removesuffix('-p1')}-host"


def debug_pod(machine: MachineIntent) -> str:
    """The privileged pod by which a node's own state is read; empty for what is no Linux node."""
    host = host_pod(machine)
    return f"{host.removesuffix('-host')}-debug" if host else ""


def bind_pods(
    intent: Intent,
    pods: Iterable[ObservedPod],
    services: Mapping[str, tuple[str, Mapping[int, int]]],
    obstacles: Mapping[str, Obstacle],
    mtu: int,
) -> Intent:
    """The Intent with the addresses that the cluster has chosen.

    ``pods``: the probe pods that have an address; one on another node than its own cannot be used.
    ``services``: address and node ports by port, of each Service that exists. ``obstacles``: why
    other pods do not run. ``mtu``: bytes, of pods.
    """
    homes = {pod.name: machine.name for machine in intent.machines for pod in machine.pods}
    running = [pod for pod in pods if pod.address]
    obstacles = {
        **{
            pod.name: Obstacle(
                f"Pod {pod.name}", f"runs on {pod.node}, not on {homes[pod.name]}", *_MOVED
            )
            for pod in running
            if pod.name in homes and pod.node != homes[pod.name]
        },
        **obstacles,
    }
    addresses = {pod.name: pod.address for pod in running}

    def bound(pod: Pod) -> Pod:
        if pod.name in obstacles:
            return replace(pod, obstacle=obstacles[pod.name])
        if pod.name in addresses:
            return replace(pod, address=f"{addresses[pod.name]}/32", mtu=mtu)
        return pod

    def served(service: ProxiedService) -> ProxiedService:
        address, node_ports = services.get(service.name, (service.address, {}))
        return replace(
            service,
            address=address,
            ports=tuple(
                replace(port, node_port=node_ports.get(port.port, port.node_port))
                for port in service.ports
            ),
            backends=tuple(
                replace(end, address=addresses.get(end.pod) or end.address)
                for end in service.backends
            ),
        )

    proxied = tuple(
        map(served, intent.machines[0].translation.services)
        if intent.machines and intent.machines[0].translation
        else ()
    )
    return replace(
        intent,
        pod_mtu=mtu,
        machines=tuple(
            replace(
                machine,
                obstacle=obstacles.get(host_pod(machine), machine.obstacle),
                pods=tuple(map(bound, machine.pods)),
                translation=Translation(None, (), proxied),
            )
            for machine in intent.machines
        ),
    )
