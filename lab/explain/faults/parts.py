"""What faults have in common: which machines, and the commands that put a machine right. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256

from lab.explain.faults.fault import FaultChange, FaultSite, change
from lab.topology.commands import remade_tunnel
from lab.topology.intent import Intent, Interface, MachineIntent, Pod, Tunnel
from lab.topology.machines import CLUSTER

MANY = 400
"""Elements of a map in one command: a shell line has at most 128 KiB (MAX_ARG_STRLEN)."""


def nodes(intent: Intent) -> Iterator[MachineIntent]:
    """The nodes, without router and client."""
    return (machine for machine in intent.machines if machine.kind == "node")


def hosts(intent: Intent) -> Iterator[MachineIntent]:
    """The nodes that have pods to be probed."""
    return (machine for machine in nodes(intent) if probes(machine))


def carriers(intent: Intent) -> Iterator[MachineIntent]:
    """Nodes, and the scenario's own hypervisors: all whose cards carry what nodes send."""
    yield from nodes(intent)
    yield from intent.hypervisors


def kubelets(intent: Intent) -> Iterator[MachineIntent]:
    """The Linux nodes of a cluster that run a kubelet; none where pods are the lab's own."""
    for machine in nodes(intent) if intent.kubernetes else ():
        if machine.os == "linux" and machine.kubelet and machine.kubelet.pod_cidr:
            yield machine


def probes(machine: MachineIntent) -> tuple[Pod, ...]:
    """The machine's pods that take part in the matrix as themselves."""
    return tuple(pod for pod in machine.pods if pod.role == "probe")


def tunnelled(intent: Intent) -> Iterator[FaultSite]:
    """The nodes and hypervisors that have a tunnel."""
    return (FaultSite(one.name) for one in carriers(intent) if one.tunnel)


def tunnel_remade(machine: MachineIntent, wrong: Callable[[Tunnel], Tunnel]) -> FaultChange:
    """The machine's tunnel as another one, made of the right one."""
    right = _tunnel(machine)
    return change(machine.name, remade_tunnel(machine, wrong(right)), remade_tunnel(machine, right))


def tunnel_barred(machine: MachineIntent, what: str, verdict: str) -> FaultChange:
    """The tunnel's packets at the machine's own firewall: ``"drop"`` or ``"reject"``."""
    rule = f"udp dport {_tunnel(machine).port} counter {verdict}"
    return barred(machine.name, what, "input", -150, [rule])


def _tunnel(machine: MachineIntent) -> Tunnel:
    assert machine.tunnel is not None, "a site has one"
    return machine.tunnel


def with_others(machines: Iterable[MachineIntent]) -> Iterator[FaultSite]:
    """Each of the machines, with all the others as peers; none where there are no others."""
    names = [one.name for one in machines]
    for name in names:
        peers = tuple(one for one in names if one != name)
        if peers:
            yield FaultSite(name, peers)


def card(machine: MachineIntent) -> Interface:
    """The card on the nodes' own network."""
    found = [one for one in machine.interfaces if one.segment == CLUSTER]
    return (found or list(machine.interfaces))[0]


def wire(machine: MachineIntent) -> str:
    """The device of that card that frames leave by, also where a virtual switch has it."""
    return card(machine).card or card(machine).name


def central(intent: Intent) -> str:
    """The machine with the databases of the lab's logical network."""
    assert intent.logical is not None, "asked where there is one"
    return intent.logical.central


def bare(address: str) -> str:
    """An address without its prefix length."""
    return address.partition("/")[0]


def without_address(address: str, device: str) -> str:
    """What takes an address away, there or not."""
    return (
        f"if ip -o address show dev {device} | grep -qF ' {address} '; "
        f"then ip address del {address} dev {device}; fi"
    )


def while_up(device: str, lines: Iterable[str]) -> str:
    """The lines where the device is up; where another fault has it down, its own mending does."""
    return f"if ip -o link show up dev {device} | grep -q .; then {' && '.join(lines)}; fi"


def nft(*lines: str) -> str:
    """One transaction of nftables."""
    return f"printf '%s\\n' {' '.join(shlex.quote(line) for line in lines)} | nft -f -"


def barred(  # noqa: PLR0913, PLR0917  a table of netfilter is all of these
    node: str, what: str, hook: str, priority: int, rules: Iterable[str], family: str = "ip"
) -> FaultChange:
    """A machine's own firewall with these rules, in a table of their own.

    Parameters
    ----------
    node
        The machine.
    what
        Of which the table's name is made, so that each fault has one of its own.
    hook, priority
        Of netfilter: ``"prerouting"``, -300 is before connection tracking.
    rules
        In nft's language.
    family
        Of the table: ``"ip"`` or ``"arp"``.

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
    """What adds elements to a map, in as many commands as it takes."""
    there = list(elements)
    for first in range(0, len(there), MANY):
        listed = ", ".join(there[first : first + MANY])
        yield nft(f"add element {into} {{ {listed} }}")
