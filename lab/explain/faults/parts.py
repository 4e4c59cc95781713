"""What faults have in common: choosing machines, and commands that restore them. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from lab.cluster.addons.addon import RULES, TABLE
from lab.cluster.addons.calico import POOL_KIND, TOPOLOGIES, node_pool, pool_spec
from lab.cluster.linux.api import ADMIN
from lab.cluster.observed import NAMESPACE
from lab.explain.faults.fault import FaultChange, FaultSite, change
from lab.topology.commands import remade_tunnel
from lab.topology.intent import Intent, Interface, MachineIntent, Pod, Tunnel
from lab.topology.machines import CLUSTER

MANY = 400
"""Elements of a map per command: a shell line has at most 128 KiB (MAX_ARG_STRLEN)."""


def nodes(intent: Intent) -> Iterator[MachineIntent]:
    """The nodes, without router and client."""
    return (machine for machine in intent.machines if machine.kind == "node")


def hosts(intent: Intent) -> Iterator[MachineIntent]:
    """The nodes with pods that are probed."""
    return (machine for machine in nodes(intent) if probes(machine))


def carriers(intent: Intent) -> Iterator[MachineIntent]:
    """Nodes and the scenario's own hypervisors: all whose interfaces carry node traffic."""
    yield from nodes(intent)
    yield from intent.hypervisors


def kubelets(intent: Intent) -> Iterator[MachineIntent]:
    """The cluster's Linux nodes with a kubelet; none if pods are the lab's own."""
    for machine in nodes(intent) if intent.kubernetes else ():
        if machine.os == "linux" and machine.kubelet and machine.kubelet.pod_cidr:
            yield machine


def probes(machine: MachineIntent) -> tuple[Pod, ...]:
    """The machine's pods that are probed under their own names."""
    return tuple(pod for pod in machine.pods if pod.role == "probe")


def tunnelled(intent: Intent) -> Iterator[FaultSite]:
    """The nodes and hypervisors that have a tunnel."""
    return (FaultSite(one.name) for one in carriers(intent) if one.tunnel)


def tunnel_remade(machine: MachineIntent, wrong: Callable[[Tunnel], Tunnel]) -> FaultChange:
    """Replace the machine's tunnel by a wrong one, derived from the right one."""
    right = _tunnel(machine)
    return change(machine.name, remade_tunnel(machine, wrong(right)), remade_tunnel(machine, right))


def tunnel_barred(machine: MachineIntent, what: str, verdict: str) -> FaultChange:
    """Block the tunnel's packets in the machine's firewall: ``"drop"`` or ``"reject"``."""
    rule = f"udp dport {_tunnel(machine).port} counter {verdict}"
    return barred(machine.name, what, "input", -150, [rule])


def _tunnel(machine: MachineIntent) -> Tunnel:
    assert machine.tunnel is not None, "a site has one"
    return machine.tunnel


def with_others(machines: Iterable[MachineIntent]) -> Iterator[FaultSite]:
    """Each machine with all others as peers; empty if there are no others."""
    names = [one.name for one in machines]
    for name in names:
        peers = tuple(one for one in names if one != name)
        if peers:
            yield FaultSite(name, peers)


def card(machine: MachineIntent) -> Interface:
    """The interface on the nodes' network."""
    found = [one for one in machine.interfaces if one.segment == CLUSTER]
    return (found or list(machine.interfaces))[0]


def wire(machine: MachineIntent) -> str:
    """The device by which frames of that interface leave, behind a virtual switch too."""
    return card(machine).card or card(machine).name


def central(intent: Intent) -> str:
    """The machine with the logical network's databases."""
    assert intent.logical is not None, "asked where there is one"
    return intent.logical.central


def bare(address: str) -> str:
    """An address without its prefix length."""
    return address.partition("/")[0]


def without_address(address: str, device: str) -> str:
    """The command that removes an address, whether it exists or not."""
    return (
        f"if ip -o address show dev {device} | grep -qF ' {address} '; "
        f"then ip address del {address} dev {device}; fi"
    )


def while_up(device: str, lines: Iterable[str]) -> str:
    """Run the lines if the device is up; if another fault has it down, its undo restores them."""
    return f"if ip -o link show up dev {device} | grep -q .; then {' && '.join(lines)}; fi"


def nft(*lines: str) -> str:
    """One transaction of nftables."""
    return f"printf '%s\\n' {' '.join(shlex.quote(line) for line in lines)} | nft -f -"


def barred(  # noqa: PLR0913, PLR0917  a table of netfilter is all of these
    node: str, what: str, hook: str, priority: int, rules: Iterable[str], family: str = "ip"
) -> FaultChange:
    """Firewall rules of a machine in a separate table.

    Parameters
    ----------
    node
        The machine.
    what
        Part of the table's name, so that each fault has its own.
    hook, priority
        Netfilter hook and priority: ``"prerouting"``, -300 is before connection tracking.
    rules
        In nft's syntax.
    family
        Family of the table: ``"ip"`` or ``"arp"``.

    """
    table = f"{family} firewall-{sha256(f'{what} {node}'.encode()).hexdigest()[:8]}"
    gone = (f"table {table} {{}}", f"delete table {table}")
    chain = f"type filter hook {hook} priority {priority}; policy accept;"
    return change(
        node,
        [nft(*gone, f"table {table} {{", f"chain {hook} {{", chain, *rules, "}", "}")],
        [nft(*gone)],
    )


def many(elements: Iterable[str], into: str) -> Iterator[str]:
    """The commands that add elements to a map, as few as possible."""
    there = list(elements)
    for first in range(0, len(there), MANY):
        listed = ", ".join(there[first : first + MANY])
        yield nft(f"add element {into} {{ {listed} }}")


CALICO_KUBECTL = f"kubectl --kubeconfig={ADMIN} --request-timeout=20s"
NEEDS_CALICO = "Calico, as a cluster's network"


def calico_nodes(intent: Intent) -> Iterator[FaultSite]:
    """The Linux nodes of a cluster with Calico."""
    if intent.topology in TOPOLOGIES:
        yield from (FaultSite(one.name) for one in kubelets(intent))


def pool_changed(intent: Intent, node: str, wrong: Mapping[str, Any]) -> FaultChange:
    """Set wrong values in a node's pool."""
    kubelet = intent.machine(node).kubelet
    assert kubelet is not None, "a site is a node"
    own = node_pool(node, str(kubelet.pod_cidr))
    right = {key: pool_spec(intent.topology, own)[key] for key in wrong}
    return change(intent.control_plane(), [_patched(own.name, wrong)], [_patched(own.name, right)])


def _patched(name: str, spec: Mapping[str, Any]) -> str:
    patch = json.dumps({"spec": dict(spec)}, separators=(",", ":"))
    return f"{CALICO_KUBECTL} patch {POOL_KIND} {name} --type=merge -p {shlex.quote(patch)}"


_PROXY = "ip kube-proxy"
_MAPS = ("service-ips", "service-nodeports")


def translates(intent: Intent) -> bool:
    """Whether the Service rules are known here: the lab's own, or those of nftables mode."""
    return intent.kubernetes is None or intent.kubernetes.proxy_mode == "nftables"


def without_services(node: str, fault: str) -> FaultChange:
    """Translate no address or port of a Service."""
    emptied = "; ".join(f"flush map {_PROXY} {name}" for name in _MAPS)
    return _kept(node, fault, "map", " ".join(_MAPS), f"nft {shlex.quote(emptied)}")


def stale_backend(node: str, fault: str, service: str, address: str, nobody: str) -> FaultChange:
    """Translate to ``nobody`` instead of the backend ``address``."""
    own = rf"s#^\tchain \([^ ]*-{NAMESPACE}/{service}/[^ ]*\) {{$#\1#p"
    chains = f"$(nft list table {_PROXY} | sed -n {shlex.quote(own)})"
    wrong = f"/dnat/s/\\b{address.replace('.', '[.]')}\\b/{nobody}/g"
    written = f"sed {shlex.quote(wrong)} {_file(fault, service)} | nft -f -"
    return _kept(node, fault, "chain", chains, written, service)


def without_masquerading(node: str) -> FaultChange:
    """Do not masquerade pods' packets to the outside."""
    return change(
        node,
        [f"nft flush chain ip {TABLE} postrouting"],
        [f"[ ! -e {RULES} ] || nft -f {RULES}"],
    )


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
