"""Faults of a node's translations: Services, NodePorts, and what pods send to the outside.

On namespaces the rules are the lab's own; on clusters those of kube-proxy's nftables mode, which
are kept in a file before they are broken; in a logical network OVN's load balancers.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from ipaddress import ip_network

from lab.explain.faults.registry import (
    Fault,
    FaultChange,
    FaultSite,
    barred,
    central,
    change,
    hosts,
    nft,
    sites_on,
    with_peers,
)
from lab.providers.netns.services import (
    GATEWAY_TABLE,
    LEAVING,
    SERVICE_TABLE,
    gateway_leaving_rules,
    leaving_rules,
    service_rules,
)
from lab.topology.footprint import POD_RULES, POD_TABLE, cluster_footprint
from lab.topology.intent import Intent, MachineIntent, ProxiedService, Translation
from lab.topology.observed import NAMESPACE
from lab.topology.ovn_daemons import BALANCERS, balancer_name

_OVN = "ovn-nbctl --no-leader-only --timeout=10"
_PROXY = "ip kube-proxy"
_MAPS = ("service-ips", "service-nodeports")
_MANY = 400
"""Elements of a map per command: a shell line has at most 128 KiB (MAX_ARG_STRLEN)."""


def _translation(intent: Intent, node: str) -> Translation:
    translation = intent.machine(node).translation
    assert translation is not None, "a site has one"
    return translation


def _translates(intent: Intent) -> bool:
    """Whether the Service rules are known here: the lab's own, or those of nftables mode."""
    return intent.kubernetes is None or intent.kubernetes.proxy_mode == "nftables"


def _kept(  # noqa: PLR0913, PLR0917  what is kept, and where, is all of these
    node: str, fault: str, kind: str, names: str, breaks: str, service: str = ""
) -> FaultChange:
    file = _file(fault, service)
    listed = f'echo "flush {kind} {_PROXY} $one"; nft list {kind} {_PROXY} "$one"'
    nothing = "{ echo 'kube-proxy has nothing of it here' >&2; exit 1; }"
    keep: Iterable[str] = (
        f"for one in {names}; do {listed}; done > {file}.new",
        f"[ -s {file}.new ] || {nothing}",
        f"mv {file}.new {file}",
    )
    back = f"nft -f {file} || pkill -x kube-proxy || true"
    return change(
        node,
        [f"[ -s {file} ] || {{ {'; '.join(keep)}; }}", breaks],
        [f"[ ! -e {file} ] || {{ {back}; }}", f"rm -f {file} {file}.new"],
    )


def _file(fault: str, service: str) -> str:
    return f"/run/hybridlab-{'-'.join(filter(None, (fault, service)))}.nft"


def without_services(node: str, fault: str) -> FaultChange:
    """Translate no address or port of a Service of a cluster."""
    emptied = "; ".join(f"flush map {_PROXY} {name}" for name in _MAPS)
    return _kept(node, fault, "map", " ".join(_MAPS), f"nft {shlex.quote(emptied)}")


def _without_rules(intent: Intent, node: str, _: str) -> FaultChange:
    translation = _translation(intent, node)
    if intent.logical:
        return _without_balancers(intent, node)
    if intent.kubernetes is not None:
        return without_services(node, "service-rules-missing")
    rules = service_rules(translation, node)
    maps = dict(zip(_MAPS, (rules.by_address, rules.by_node_port), strict=True))
    empty = nft(*(f"flush map ip {SERVICE_TABLE} {name}" for name in maps))
    filled = [
        nft(f"add element ip {SERVICE_TABLE} {name} {{ {', '.join(listed[at : at + _MANY])} }}")
        for name, elements in maps.items()
        for listed in [list(elements)]
        for at in range(0, len(listed), _MANY)
    ]
    return change(node, [empty], [empty, *filled])


def _without_balancers(intent: Intent, node: str) -> FaultChange:
    """Remove the load balancer group, which each node's logical switch has, from this one's."""
    group = f"$({_OVN} --bare --columns=_uuid find Load_Balancer_Group name={BALANCERS})"
    column = f'Logical_Switch {node} load_balancer_group "{group}"'
    return change(
        central(intent),
        [f"{_OVN} --wait=hv remove {column}"],
        [f"{_OVN} --wait=hv add {column}"],
    )


SERVICE_RULES_MISSING = Fault(
    name="service-rules-missing",
    title="a node has no Service rules, as if kube-proxy had not run",
    needs="Services (on a cluster: kube-proxy in nftables mode)",
    sites=sites_on(
        hosts,
        lambda intent, machine: (
            machine.translation and machine.translation.services and _translates(intent)
        ),
    ),
    change=_without_rules,
    also=("no-services", "kube-proxy-down"),
)


def stale_backend(node: str, fault: str, service: str, address: str, nobody: str) -> FaultChange:
    """Translate to ``nobody`` instead of the backend ``address`` of a cluster's Service."""
    own = rf"s#^\tchain \([^ ]*-{NAMESPACE}/{service}/[^ ]*\) {{$#\1#p"
    chains = f"$(nft list table {_PROXY} | sed -n {shlex.quote(own)})"
    wrong = f"/dnat/s/\\b{address.replace('.', '[.]')}\\b/{nobody}/g"
    written = f"sed {shlex.quote(wrong)} {_file(fault, service)} | nft -f -"
    return _kept(node, fault, "chain", chains, written, service)


def _stale(intent: Intent, node: str, peer: str) -> FaultChange:
    where = next(
        machine for machine in intent.machines if peer in {pod.name for pod in machine.pods}
    )
    nobody = str(ip_network(str(_translation(intent, where.name).local_cidr))[-2])
    if intent.logical:
        return _stale_balancer(intent, peer, nobody)
    machine = intent.machine(node)
    service = next(_single(machine, peer))
    if intent.kubernetes is not None:
        right_address = service.backends[0].address
        return stale_backend(node, "service-backend-stale", service.name, right_address, nobody)
    stale = replace(service, backends=(replace(service.backends[0], address=nobody),))
    right, wrong = _chains(machine, service), _chains(machine, stale)
    names = [name for name in right if right[name] != wrong.get(name)]
    return change(node, [_chains_script(wrong, names)], [_chains_script(right, names)])


def _stale_balancer(intent: Intent, peer: str, nobody: str) -> FaultChange:
    """In the databases, so for every node: each load balancer of the pod's Service."""
    service = next(_balanced(intent, peer))
    backend = service.backends[0].address
    do, undo = [], []
    for protocol in sorted({protocol for port in service.ports for protocol in port.protocols}):
        name = balancer_name(service, protocol)
        balancer = f"$({_OVN} --bare --columns=_uuid find Load_Balancer name={name})"
        for port in service.ports:
            if protocol in port.protocols:
                vip = f'\'vips:"{service.address}:{port.port}"='
                set_vip = f'{_OVN} --wait=hv set Load_Balancer "{balancer}" {vip}'
                do.append(f'{set_vip}"{nobody}:{port.target_port}"\'')
                undo.append(f'{set_vip}"{backend}:{port.target_port}"\'')
    return change(central(intent), do, undo)


def _of_pod(machine: MachineIntent, pod: str) -> Iterator[ProxiedService]:
    """The machine's Services whose only backend is this pod."""
    for service in machine.translation.services if machine.translation else ():
        if [backend.pod for backend in service.backends] == [pod]:
            yield service


def _balanced(intent: Intent, pod: str) -> Iterator[ProxiedService]:
    """The Services of the whole cluster whose only backend is this pod."""
    services = _of_pod(intent.machine(central(intent)), pod)
    return (service for service in services if service.inside == "cluster")


def _single(machine: MachineIntent, pod: str) -> Iterator[ProxiedService]:
    """The Services that the machine translates and whose only backend is this pod."""
    return (service for service in _of_pod(machine, pod) if _chains(machine, service))


def _chains(machine: MachineIntent, service: ProxiedService) -> dict[str, list[str]]:
    """The rules of every chain for a Service."""
    assert machine.translation is not None, "a site has one"
    alone: Translation = replace(machine.translation, services=(service,))
    chains: dict[str, list[str]] = {}
    name = ""
    for line in service_rules(alone, machine.name).chains:
        words = line.split()
        if words[0] in {"chain", "set"}:
            name = words[1] if words[0] == "chain" else ""
        elif name and words != ["}"]:
            chains.setdefault(name, []).append(line.strip())
    return chains


def _chains_script(chains: dict[str, list[str]], names: Sequence[str]) -> str:
    """In one transaction, so that no packet meets an empty chain."""
    table = f"ip {SERVICE_TABLE}"
    return nft(
        *(f"flush chain {table} {name}" for name in names),
        *(f"add rule {table} {name} {rule}" for name in names for rule in chains[name]),
    )


def _with_backends(intent: Intent) -> Iterator[FaultSite]:
    pods = [pod.name for host in hosts(intent) for pod in host.pods]
    if intent.logical:
        return with_peers(
            [intent.machine(central(intent))],
            lambda _: (pod for pod in pods if any(_balanced(intent, pod))),
        )
    return with_peers(
        hosts(intent) if _translates(intent) else (),
        lambda machine: (pod for pod in pods if any(_single(machine, pod))),
    )


SERVICE_BACKEND_STALE = Fault(
    name="service-backend-stale",
    title="on a node, a pod's Service still leads to an address that the pod no longer has",
    needs="Services of single pods (on a cluster: kube-proxy in nftables mode)",
    sites=_with_backends,
    change=_stale,
    peer="pod",
    also=("stale-backend", "stale-endpoint"),
)


def _ports(machine: MachineIntent) -> list[int]:
    services = machine.translation.services if machine.translation else ()
    return [port for service in services for port in service.node_ports()]


def _block_node_ports(intent: Intent, node: str, _: str) -> FaultChange:
    ports = _ports(intent.machine(node))
    bars = (
        f"meta l4proto {{ tcp, udp }} th dport {min(ports)}-{max(ports)} "
        "fib daddr type local counter drop"
    )
    return barred(node, "nodeport-blocked", "prerouting", -300, [bars])


NODEPORT_BLOCKED = Fault(
    name="nodeport-blocked",
    title="a node's firewall drops packets to its NodePorts",
    needs="NodePorts",
    sites=sites_on(  # Windows nodes of a logical network serve no NodePorts anyway
        hosts,
        lambda _, machine: _ports(machine) and (machine.chassis is None or machine.os == "linux"),
    ),
    change=_block_node_ports,
    also=("nodeports-blocked", "node-port-blocked"),
)


def _chain(chain: str, rules: Iterable[str]) -> str:
    return nft(f"flush chain {chain}", *(f"add rule {chain} {rule}" for rule in rules))


def without_masquerading(node: str) -> FaultChange:
    """Do not masquerade what pods of a cluster send to the outside."""
    return change(
        node,
        [f"nft flush chain ip {POD_TABLE} postrouting"],
        [f"[ ! -e {POD_RULES} ] || nft -f {POD_RULES}"],
    )


def _without_masquerade(intent: Intent, node: str, _: str) -> FaultChange:
    machine, translation = intent.machine(node), _translation(intent, node)
    if machine.chassis and machine.bridge:
        chain = f"ip {GATEWAY_TABLE} {LEAVING}"
        rules: tuple[str, ...] = gateway_leaving_rules(translation, machine.bridge.name)
    elif intent.kubernetes is not None:
        return without_masquerading(node)
    else:
        chain, rules = f"ip {SERVICE_TABLE} {LEAVING}", leaving_rules(translation)
    kept = rules[:-1]  # packets with kube-proxy's mark are still masqueraded
    return change(node, [_chain(chain, kept)], [_chain(chain, rules)])


def _masquerades(intent: Intent, machine: MachineIntent) -> bool:
    """In a logical network the gateways masquerade; on a cluster with Calico, Felix does."""
    if cluster_footprint(intent).own_macs:
        return False
    gates = intent.logical.gateways().values() if intent.logical else (machine.name,)
    translation = machine.translation
    known = translation and translation.local_cidr and translation.not_masqueraded
    return bool(known) and machine.name in gates


MASQUERADE_MISSING = Fault(
    name="masquerade-missing",
    title="packets of a node's pods leave the cluster with the pod's address",
    needs="masquerading of what its pods send to the outside",
    sites=sites_on(hosts, _masquerades),
    change=_without_masquerade,
    also=("no-masquerade", "ip-masq-missing", "snat-missing"),
)


def _without_exception(intent: Intent, node: str, _: str) -> FaultChange:
    right = _translation(intent, node)
    wrong = replace(right, not_masqueraded=right.not_masqueraded[1:])
    chain = f"ip {SERVICE_TABLE} {LEAVING}"
    return change(
        node, [_chain(chain, leaving_rules(wrong))], [_chain(chain, leaving_rules(right))]
    )


def _has_exceptions(_: Intent, machine: MachineIntent) -> bool:
    translation = machine.translation
    ours = machine.os == "windows" and machine.chassis is None
    return ours and translation is not None and bool(translation.not_masqueraded)


OUTBOUNDNAT_EXCEPTION_MISSING = Fault(
    name="outboundnat-exception-missing",
    title="a Windows node's OutBoundNAT lacks the exception for the pods' range",
    needs="Windows, and an OutBoundNAT with exceptions",
    sites=sites_on(hosts, _has_exceptions),
    change=_without_exception,
    also=("outbound-nat", "outboundnat"),
)
