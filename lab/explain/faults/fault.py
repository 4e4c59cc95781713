"""A fault: where it can be injected, how, and how to undo it; what faults have in common. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from lab.topology.intent import NODE_SEGMENT, Intent, Interface, MachineIntent, Pod

Peer = Literal["node", "pod"]


@dataclass(frozen=True, slots=True)
class FaultCommand:
    """One shell line, and the pod or machine on which it runs as root."""

    place: str
    line: str


@dataclass(frozen=True, slots=True)
class FaultChange:
    """The commands that inject a fault and those that undo it.

    ``undo`` restores what the Intent says, however much of ``do`` was done, and can be repeated.
    """

    do: tuple[FaultCommand, ...]
    undo: tuple[FaultCommand, ...]


@dataclass(frozen=True, slots=True)
class FaultSite:
    """A machine for a fault, and the possible peers."""

    node: str
    peers: tuple[str, ...] = ()
    """The first is the default; empty for a fault of a single machine."""


Sites = Callable[[Intent], Iterable[FaultSite]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to break a lab."""

    name: str
    title: str
    """One sentence for people."""
    needs: str
    """What a machine needs for it, as text: ``"a tunnel"``."""
    sites: Sites
    change: Callable[[Intent, str, str], FaultChange]
    """Takes the Intent, the machine, and the peer (or an empty text)."""
    peer: Peer | None = None
    """Kind of the peer; None for a fault of a single machine."""
    also: tuple[str, ...] = ()
    """Other names for it, for the hint of an error."""
    asks: str = ""
    """A shell line that fails on a machine whose kernel or tools do not support the fault."""
    figures: str = ""
    """Accepted figures, as text; empty if there are none."""
    with_figures: Callable[[Sequence[str]], Fault] | None = None
    """The fault with figures, which are then part of its name. ValueError for invalid ones.
    ``undo`` is the same for all figures.
    """


def change(place: str, do: Iterable[str], undo: Iterable[str]) -> FaultChange:
    """A change on one machine or pod."""
    return FaultChange(
        tuple(FaultCommand(place, line) for line in do),
        tuple(FaultCommand(place, line) for line in undo),
    )


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


def sites_on(
    machines: Callable[[Intent], Iterable[MachineIntent]],
    fits: Callable[[Intent, MachineIntent], object] = lambda *_: True,
) -> Sites:
    """A site on each of these machines that fits, without peers."""
    return lambda intent: (FaultSite(one.name) for one in machines(intent) if fits(intent, one))


def with_peers(
    machines: Iterable[MachineIntent], peers: Callable[[MachineIntent], Iterable[str]]
) -> Iterator[FaultSite]:
    """A site on each of these machines that has peers."""
    for machine in machines:
        if names := tuple(peers(machine)):
            yield FaultSite(machine.name, names)


def with_others(machines: Iterable[MachineIntent]) -> Iterator[FaultSite]:
    """Each machine with all others as peers; empty if there are no others."""
    there = list(machines)
    return with_peers(there, lambda one: (other.name for other in there if other is not one))


def probes(machine: MachineIntent) -> tuple[Pod, ...]:
    """The machine's pods that are probed under their own names."""
    return tuple(pod for pod in machine.pods if pod.role == "probe")


def card(machine: MachineIntent) -> Interface:
    """The interface on the nodes' network."""
    found = [one for one in machine.interfaces if one.segment == NODE_SEGMENT]
    return (found or list(machine.interfaces))[0]


def wire(machine: MachineIntent) -> str:
    """The device by which frames of that interface leave, behind a virtual switch too."""
    return card(machine).card or card(machine).name


def central(intent: Intent) -> str:
    """The machine with the logical network's databases."""
    assert intent.logical is not None, "asked where there is one"
    return intent.logical.central


def without_address(address: str, device: str) -> str:
    """The command that removes an address, whether it exists or not."""
    return (
        f"if ip -o address show dev {device} | grep -qF ' {address} '; "
        f"then ip address del {address} dev {device}; fi"
    )


def until(condition: str, seconds: int) -> str:
    """The commands that wait for a condition, and fail if it does not hold in time."""
    return f"for second in $(seq {seconds}); do ! {condition} || break; sleep 1; done; {condition}"


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
