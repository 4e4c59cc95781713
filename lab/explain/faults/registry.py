"""Faults: where each can be injected, how, and how to undo it; the registry of them. Pure.

The registry has every :class:`Fault` of a plug-in; they share what is here.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from typing import Literal

from lab._errors import UsageError, did_you_mean
from lab._plugins import objects
from lab.topology.intent import Intent, MachineIntent, Pod

Peer = Literal["node", "pod"]


@dataclass(frozen=True, slots=True)
class FaultCommand:
    """One shell line, and the pod or machine on which it runs as root.

    On a Windows node it is a line of :func:`~lab.facts.command_lines.in_powershell`.
    """

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
    kind: str = ""
    """Kind of difference by which explain finds it, if none names this fault: ``"not-as-made"``."""
    asks: str = ""
    """A shell line that fails on a machine whose kernel or tools do not support the fault."""
    figures: str = ""
    """Accepted figures, as text; empty if there are none."""
    with_figures: Callable[[Sequence[str]], Fault] | None = None
    """The fault with figures, which are then part of its name. ValueError for invalid ones.
    ``undo`` is the same for all figures.
    """
    windows: bool = False
    """Whether it can be done on a cluster's Windows nodes; of one that a plug-in registers,
    whether it is done there alone. A fault of that name for other machines is then the same fault.
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
    return lambda intent: (
        FaultSite(machine.name) for machine in machines(intent) if fits(intent, machine)
    )


def with_peers(
    machines: Iterable[MachineIntent], peers: Callable[[MachineIntent], Iterable[str]]
) -> Iterator[FaultSite]:
    """A site on each of these machines that has peers."""
    for machine in machines:
        if names := tuple(peers(machine)):
            yield FaultSite(machine.name, names)


def with_others(machines: Iterable[MachineIntent]) -> Iterator[FaultSite]:
    """Each machine with all others as peers; empty if there are no others."""
    listed = list(machines)
    return with_peers(
        listed, lambda machine: (other.name for other in listed if other is not machine)
    )


def probes(machine: MachineIntent) -> tuple[Pod, ...]:
    """The machine's pods that are probed under their own names."""
    return tuple(pod for pod in machine.pods if pod.role == "probe")


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
    node: str, fault: str, hook: str, priority: int, rules: Iterable[str], family: str = "ip"
) -> FaultChange:
    """Firewall rules of a machine in a separate table.

    Parameters
    ----------
    node
        The machine.
    fault
        Part of the table's name, so that each fault has its own.
    hook, priority
        Netfilter hook and priority: ``"prerouting"``, -300 is before connection tracking.
    rules
        In nft's syntax.
    family
        Family of the table: ``"ip"`` or ``"arp"``.

    """
    table = f"{family} firewall-{sha256(f'{fault} {node}'.encode()).hexdigest()[:8]}"
    gone = (f"table {table} {{}}", f"delete table {table}")
    chain = f"type filter hook {hook} priority {priority}; policy accept;"
    return change(
        node,
        [nft(*gone, f"table {table} {{", f"chain {hook} {{", chain, *rules, "}", "}")],
        [nft(*gone)],
    )


_LEAST = 3
"""Prefix length that distinguishes one name from the others."""


@cache
def faults() -> Mapping[str, Fault]:
    """Every fault by name, in alphabetical order."""
    by_name: dict[str, Fault] = {}
    for fault in sorted(objects("faults", Fault), key=lambda fault: fault.windows):
        elsewhere = by_name.get(fault.name) if fault.windows else None
        by_name[fault.name] = _joined(elsewhere, fault) if elsewhere else fault
    return dict(sorted(by_name.items()))


def _joined(elsewhere: Fault, windows: Fault) -> Fault:
    """One fault of what is done on Windows nodes of clusters and what is done on other machines."""

    def change(intent: Intent, node: str, peer: str) -> FaultChange:
        chosen = windows if runs_windows(intent, node) else elsewhere
        return chosen.change(intent, node, peer)

    return replace(
        elsewhere,
        sites=lambda intent: (*sites(elsewhere, intent), *sites(windows, intent)),
        change=change,
        windows=True,
    )


def runs_windows(intent: Intent, node: str) -> bool:
    """Whether a machine takes Windows' commands: network namespaces emulate it with Linux's."""
    machines = (machine for machine in intent.everything() if machine.name == node)
    return intent.kubernetes is not None and any(machine.os == "windows" for machine in machines)


def find(action: str, name: str) -> Fault:
    """The fault of this name, with its figures if any: ``packet-loss 5%``.

    Raises
    ------
    UsageError
        If there is none, with the nearest name, or if the figures are invalid.

    """
    known = faults()
    word, *figures = name.split() or [name]
    if word not in known:
        raise UsageError(action, f"there is no fault '{word}'", _nearest(word, known))
    fault = known[word]
    if not figures:
        return fault
    if fault.with_figures is None:
        given = " or ".join(f"'{fault.name}'" for fault in known.values() if fault.figures)
        raise UsageError(action, f"'{word}' takes no value", f"leave it out, or use {given}")
    try:
        return fault.with_figures(figures)
    except ValueError as error:
        raise UsageError(
            action, f"'{error}' is not a valid value for '{word}'", fault.figures
        ) from None


def plain_name(name: str) -> str:
    """The name without figures."""
    return name.partition(" ")[0]


def _nearest(name: str, known: Mapping[str, Fault]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  only a wrong name pays for it

    meant = {alias: fault.name for fault in known.values() for alias in (fault.name, *fault.also)}
    close = [meant[match] for match in get_close_matches(name, meant, n=3, cutoff=0.5)]
    if len(name) >= _LEAST:
        close += [candidate for candidate in known if name in candidate or candidate in name]
    listed = " or ".join(f"'{close_name}'" for close_name in dict.fromkeys(close))
    hint = f"did you mean {listed}? " if listed else ""
    return f"{hint}'lab fault --list' shows every fault"


def sites(fault: Fault, intent: Intent) -> tuple[FaultSite, ...]:
    """Where the fault can be injected in a lab, in the Intent's order."""
    return tuple(
        site for site in fault.sites(intent) if fault.windows or not runs_windows(intent, site.node)
    )


def choose(fault: Fault, intent: Intent, action: str, node: str = "", peer: str = "") -> FaultSite:
    """The machine for the fault, and the one peer.

    Parameters
    ----------
    fault, intent, action
        The fault, the lab's Intent, and the activity for error messages.
    node, peer
        As requested; empty for the first possible one.

    Raises
    ------
    UsageError
        If it is not possible in this lab, on this machine, or with this peer: why, and where it is
        possible.

    """
    possible = sites(fault, intent)
    if not possible:
        raise UsageError(
            action,
            f"it needs {fault.needs}, and no machine of a lab with topology "
            f"'{intent.topology}' has that",
            f"{_describe_fitting_labs(fault)}; in this lab there can be {', '.join(_here(intent))}",
        )
    chosen = [site for site in possible if node in {"", site.node}]
    if not chosen:
        names = [machine.name for machine in intent.everything()]
        why = f"there is no machine '{node}'"
        if node in names and runs_windows(intent, node) and not fault.windows:
            why = f"'{node}' runs Windows, where it cannot be done"
        elif node in names:
            why = f"it needs {fault.needs}, and '{node}' does not have that"
        known = [site.node for site in possible]
        raise UsageError(
            action, why, f"{did_you_mean(node, known)} --node {_list_some(known)}".strip()
        )
    return _with_peer(fault, intent, chosen, action, peer)


def _here(intent: Intent) -> list[str]:
    return [fault.name for fault in faults().values() if sites(fault, intent)]


def _with_peer(
    fault: Fault, intent: Intent, chosen: list[FaultSite], action: str, peer: str
) -> FaultSite:
    if fault.peer is None:
        if peer:
            raise UsageError(action, "it concerns one machine only", "leave '--peer' out")
        return FaultSite(chosen[0].node)
    fitting = [site for site in chosen if peer in {"", *site.peers}]
    if not fitting:
        known = list(dict.fromkeys(name for site in chosen for name in site.peers))
        where = f" of '{chosen[0].node}'" if len(chosen) == 1 else ""
        why = f"'{peer}' can be no peer{where} in it"
        if peer not in _named(intent):
            why = f"there is no {fault.peer} '{peer}'"
        raise UsageError(
            action, why, f"{did_you_mean(peer, known)} --peer {_list_some(known)}".strip()
        )
    return FaultSite(fitting[0].node, (peer or fitting[0].peers[0],))


def _named(intent: Intent) -> set[str]:
    """All names that a peer could have."""
    machines = [*intent.everything()]
    return {machine.name for machine in machines} | {
        pod.name for machine in machines for pod in machine.pods
    }


def _list_some(names: list[str]) -> str:
    shown = names[:12]
    return ", ".join(shown) + (f" (and {len(names) - 12} more)" if len(names) > 12 else "")  # noqa: PLR2004  a line's worth


def _describe_fitting_labs(fault: Fault) -> str:
    """The shipped scenarios in which it is possible."""
    from lab.plan.planner import make_plan  # noqa: PLC0415  only this error pays for it
    from lab.scenario.loader import find as find_scenario  # noqa: PLC0415  the same
    from lab.scenario.loader import load, shipped  # noqa: PLC0415  the same
    from lab.topology import registry  # noqa: PLC0415  the same

    fitting = [
        name
        for name in shipped()
        if sites(fault, registry.intent(make_plan(load(find_scenario(name)))))
    ]
    return f"a lab of scenario {_list_some(fitting)}" if fitting else "no shipped scenario has it"
