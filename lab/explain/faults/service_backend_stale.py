"""A node's rules send a Service's packets to an address that no pod has any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from ipaddress import ip_network

from lab.explain.faults import parts
from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import central, hosts, nft
from lab.providers.netns.services import SERVICE_TABLE, service_rules
from lab.topology.intent import Intent, MachineIntent, ProxiedService, Translation
from lab.topology.ovn_daemons import balancer_name


def _change(intent: Intent, node: str, peer: str) -> FaultChange:
    where = next(one for one in intent.machines if peer in {pod.name for pod in one.pods})
    assert where.translation is not None, "it has pods"
    nobody = str(ip_network(str(where.translation.local_cidr))[-2])
    if intent.logical:
        return _of_balancer(intent, peer, nobody)
    machine = intent.machine(node)
    service = next(_single(machine, peer))
    if intent.kubernetes is not None:
        right_address = service.backends[0].address
        return parts.stale_backend(node, FAULT.name, service.name, right_address, nobody)
    stale = replace(service, backends=(replace(service.backends[0], address=nobody),))
    right, wrong = _chains(machine, service), _chains(machine, stale)
    names = [name for name in right if right[name] != wrong.get(name)]
    return change(node, [_written(wrong, names)], [_written(right, names)])


def _of_balancer(intent: Intent, peer: str, nobody: str) -> FaultChange:
    """In the databases, so for every node: each load balancer of the pod's Service."""
    service = next(_balanced(intent, peer))
    backend = service.backends[0].address
    does = "ovn-nbctl --no-leader-only --timeout=10 --wait=hv set Load_Balancer"
    do, undo = [], []
    for protocol in sorted({one for port in service.ports for one in port.protocols}):
        found = (
            "$(ovn-nbctl --no-leader-only --timeout=10 --bare --columns=_uuid find Load_Balancer "
            f"name={balancer_name(service, protocol)})"
        )
        for port in service.ports:
            if protocol in port.protocols:
                vip = f'\'vips:"{service.address}:{port.port}"='
                do.append(f'{does} "{found}" {vip}"{nobody}:{port.target_port}"\'')
                undo.append(f'{does} "{found}" {vip}"{backend}:{port.target_port}"\'')
    return change(central(intent), do, undo)


def _balanced(intent: Intent, pod: str) -> Iterator[ProxiedService]:
    """The Services of the whole cluster whose only backend is this pod."""
    translation = intent.machine(central(intent)).translation
    for service in translation.services if translation else ():
        if [one.pod for one in service.backends] == [pod] and service.inside == "cluster":
            yield service


def _chains(machine: MachineIntent, service: ProxiedService) -> dict[str, list[str]]:
    """The rules of every chain for a Service."""
    assert machine.translation is not None, "a site has one"
    alone: Translation = replace(machine.translation, services=(service,))
    found: dict[str, list[str]] = {}
    name = ""
    for line in service_rules(alone, machine.name).chains:
        words = line.split()
        if words[0] in {"chain", "set"}:
            name = words[1] if words[0] == "chain" else ""
        elif name and words != ["}"]:
            found.setdefault(name, []).append(line.strip())
    return found


def _written(chains: dict[str, list[str]], names: Sequence[str]) -> str:
    """In one transaction, so that no packet meets an empty chain."""
    table = f"ip {SERVICE_TABLE}"
    return nft(
        *(f"flush chain {table} {name}" for name in names),
        *(f"add rule {table} {name} {rule}" for name in names for rule in chains[name]),
    )


def _single(machine: MachineIntent, pod: str) -> Iterator[ProxiedService]:
    """The Services that the machine translates and whose only backend is this pod."""
    for service in machine.translation.services if machine.translation else ():
        if [one.pod for one in service.backends] == [pod] and _chains(machine, service):
            yield service


def _sites(intent: Intent) -> Iterator[FaultSite]:
    if intent.logical:
        every = [pod.name for one in hosts(intent) for pod in one.pods]
        peers = tuple(pod for pod in every if any(_balanced(intent, pod)))
        yield from [FaultSite(central(intent), peers)] if peers else []
        return
    for machine in hosts(intent) if parts.translates(intent) else ():
        pods = (pod.name for one in hosts(intent) for pod in one.pods)
        peers = tuple(pod for pod in pods if any(_single(machine, pod)))
        if peers:
            yield FaultSite(machine.name, peers)


FAULT = Fault(
    name="service-backend-stale",
    title="on a node, a pod's Service still leads to an address that the pod no longer has",
    needs="Services of single pods, on a cluster by kube-proxy's nftables mode",
    sites=_sites,
    change=_change,
    peer="pod",
    also=("stale-backend", "stale-endpoint"),
)
