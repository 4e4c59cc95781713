"""Links of machines that are slow or lose packets: the commands that make them so. Pure.

Packets that a machine sends wait in a queueing discipline of its card. Those that it receives are
led through a device of the kind ``ifb``, whose queueing discipline delays them. Packets are dropped
by nftables, because not every kernel has ``netem``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from itertools import pairwise

from lab._dataclass import dataclass
from lab._log import listed
from lab.scenario.terms import Impairment
from lab.topology.intent import Intent, MachineIntent

ARRIVALS = "ifb-arrivals"
"""The device through which received packets are led."""
_MAC = "0a:58:00:00:00:fb"
"""Of that device: no frame has it, and another each time would be a difference."""
LINK_TABLE = "slow-links"
"""The nftables table (of the family netdev) of a machine's link."""
_LEAST_KB = 16
_BURST_MS = 10
"""Milliseconds of the rate that are sent at once: a timer tick and more."""
_TENTHS = 1_000
"""Tenths of a per cent in a whole."""
_UNITS = (("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000))


def _written(rate: int) -> str:
    """The rate as tc writes it, in the largest unit that it is a whole number of."""
    size, name = next(((size, name) for name, size in _UNITS if not rate % size), (1_000, "kbit"))
    return f"{rate // size}{name}"


def shape_of(impairment: Impairment | None) -> str:
    """The queueing discipline of a delay and a rate; empty where there is neither.

    A delay needs ``netem``.
    """
    if impairment is None or not (impairment.delay or impairment.rate):
        return ""
    rate = _written(impairment.rate)
    if impairment.delay:
        return f"netem delay {impairment.delay}ms" + (f" rate {rate}" if impairment.rate else "")
    burst = max(_LEAST_KB, impairment.rate * _BURST_MS // 8 // 1_000_000)
    return f"tbf rate {rate} burst {burst}kb latency 100ms"


def shape_line(device: str, shape: str) -> str:
    """The shell line that gives the device a queueing discipline; an empty one takes it away."""
    if shape:
        return f"tc qdisc replace dev {device} root {shape}"
    condition = f"tc qdisc show dev {device} | grep -qE '^qdisc (tbf|netem)'"
    return f"if {condition}; then tc qdisc del dev {device} root; fi"


def link_line(device: str, impairment: Impairment | None) -> str:
    """The shell line that gives a device of a machine's link its queueing discipline.

    It has a number of its own, so that it is the same wherever it is made.
    """
    shape = shape_of(impairment)
    number = (
        2 if shape.startswith("netem") else 1
    )  # tc replaces none of another kind and this number
    return shape_line(device, f"handle {number}: {shape}" if shape else "")


def link_script(machine: MachineIntent) -> str:
    """The shell script that makes a machine's link as its Intent says; it can be repeated.

    It also undoes what an earlier Intent said.
    """
    exists = f"ip link show dev {ARRIVALS} > /dev/null 2>&1"
    device = (
        (
            f"if ! {exists}; then ip link add name {ARRIVALS} address {_MAC} type ifb; fi",
            f"ip link set dev {ARRIVALS} up",
            link_line(ARRIVALS, machine.receives),
        )
        if shape_of(machine.receives)
        else (f"if {exists}; then ip link delete dev {ARRIVALS}; fi",)
    )
    table = "\n".join(_table(machine))
    rules = f"printf '%s\\n' {shlex.quote(table)} | nft -f -"
    # a rule never leads to a device that does not exist
    arrivals = (*device, rules) if shape_of(machine.receives) else (rules, *device)
    leaving = link_line(machine.wire, machine.sends)
    return "\n".join(("set -e; PATH=$PATH:/usr/sbin:/sbin", leaving, *arrivals))


def link_scripts(intent: Intent) -> dict[str, str]:
    """The script of each machine whose link can be impaired, by name; none if no link is."""
    machines = intent.machines if impaired(intent) else ()
    return {
        machine.name: link_script(machine)
        for machine in machines
        if machine.kind in {"node", "services"}
    }


def _table(machine: MachineIntent) -> Iterator[str]:
    """A transaction of nftables that replaces the table, and leaves none if nothing is in it."""
    yield f"table netdev {LINK_TABLE} {{}}"
    yield f"delete table netdev {LINK_TABLE}"
    forward = [f'fwd to "{ARRIVALS}"'] if shape_of(machine.receives) else []
    chains = {
        "ingress": [*_drops(machine.receives), *forward],
        "egress": [*_drops(machine.sends)],
    }
    if not any(chains.values()):
        return
    yield f"table netdev {LINK_TABLE} {{"
    for hook, rules in chains.items():
        if rules:
            yield f"chain {hook} {{"
            yield f'type filter hook {hook} device "{machine.wire}" priority 0; policy accept;'
            yield from rules
            yield "}"
    yield "}"


def _drops(impairment: Impairment | None) -> Iterator[str]:
    if impairment and impairment.loss:
        drawn = round(impairment.loss * _TENTHS / 100)
        yield f"numgen random mod {_TENTHS} < {drawn} counter drop"


def impaired(intent: Intent) -> tuple[MachineIntent, ...]:
    """The machines whose links do something to packets, in the Intent's order."""
    return tuple(machine for machine in intent.machines if machine.sends or machine.receives)


def unfit_links(intent: Intent) -> str:
    """Why the lab's machines cannot have such links; empty if they can."""
    for machine in impaired(intent):
        if intent.kubernetes is not None and machine.os == "windows":
            return f"'{machine.name}' runs Windows, on which a link can be neither slow nor lossy"
        if machine.chassis and machine.receives:
            return (
                f"'{machine.name}' has a switch in user space, which takes received packets before "
                "anything can delay or drop them: write 'direction: sends'"
            )
    return ""


@dataclass(frozen=True, slots=True)
class LinkAbility:
    """Something of the kernel, or its tools, that links need."""

    name: str
    needs: str
    """For what: ``the delay of a link``."""
    line: str
    """A shell line that tries it in a network namespace, and fails where it is missing."""
    module: str


def _queue(shape: str) -> str:
    return f"tc qdisc add dev lo root {shape} && tc qdisc del dev lo root"


_NETEM = LinkAbility("netem", "the delay of a link", _queue("netem delay 1ms"), "sch_netem")
_TBF = LinkAbility(
    "tbf", "the rate of a link", _queue(shape_of(Impairment(rate=1_000_000))), "sch_tbf"
)
_IFB = LinkAbility(
    "ifb",
    "the delay or rate of received packets",
    f"ip link add name {ARRIVALS} type ifb && ip link delete dev {ARRIVALS}",
    "ifb nft_fwd_netdev",
)
_NETDEV = LinkAbility(
    "nftables at network cards",
    "the loss of a link, and received packets",
    "printf '%s\\n' 'table netdev tried {' 'chain tried {' "
    "'type filter hook egress device \"lo\" priority 0; policy accept;' "
    "'numgen random mod 1000 < 1 drop' '}' '}' | nft -f - && nft delete table netdev tried",
    "nf_tables nft_numgen",
)


def abilities(intent: Intent) -> tuple[LinkAbility, ...]:
    """What the lab's links need of the kernels of their machines."""
    machines = impaired(intent)
    every = [each for machine in machines for each in (machine.sends, machine.receives) if each]
    led = any(shape_of(machine.receives) for machine in machines)
    needed = (
        (_NETEM, any(each.delay for each in every)),
        (_TBF, any(each.rate and not each.delay for each in every)),
        (_IFB, led),
        (_NETDEV, led or any(each.loss for each in every)),
    )
    return tuple(ability for ability, is_needed in needed if is_needed)


def link_words(intent: Intent) -> str:
    """``link of worker1: sends at 10mbit``: what links do to packets; empty where none does."""
    names: dict[str, list[str]] = {}
    for machine in impaired(intent):
        names.setdefault(_describe(machine), []).append(machine.name)
    return "; ".join(
        f"link{'s' if len(of) > 1 else ''} of {listed(of)}: {words}" for words, of in names.items()
    )


def _describe(machine: MachineIntent) -> str:
    if machine.sends == machine.receives and machine.sends:
        return f"sends and receives {_figures_of(machine.sends)}"
    sends = f"sends {_figures_of(machine.sends)}" if machine.sends else ""
    receives = f"receives {_figures_of(machine.receives)}" if machine.receives else ""
    return ", ".join(filter(None, (sends, receives)))


def _figures_of(impairment: Impairment) -> str:
    parts = (
        f"{impairment.delay} ms late" if impairment.delay else "",
        f"with {impairment.loss:g} % lost" if impairment.loss else "",
        f"at {_written(impairment.rate)}" if impairment.rate else "",
    )
    return ", ".join(filter(None, parts))


def link_queues(machine: MachineIntent) -> dict[str, Impairment]:
    """What the queueing disciplines of a machine's link do, by device."""
    every = {machine.wire: machine.sends, ARRIVALS: machine.receives}
    return {device: each for device, each in every.items() if each and shape_of(each)}


def is_shape(queue: str, shape: str) -> bool:
    """Whether a queueing discipline, as tc prints it, is the one of :func:`shape_of`."""
    printed, wanted = queue.lower().split(), shape.split()
    return printed[:1] == wanted[:1] and _figures(printed) == _figures(wanted)


def _figures(words: Iterable[str]) -> dict[str, float]:
    """The figures of a delay (``20ms``) and a rate (``10Mbit``)."""
    named = [*words]
    units = {"us": 0.001, "ms": 1.0, "s": 1_000.0, "bit": 1.0, **dict(_UNITS)}
    return {
        name: float(number) * units[unit]
        for name, value in pairwise(named)
        if name in {"delay", "rate"}
        for number, unit in [_split(value)]
        if unit in units
    }


def _split(value: str) -> tuple[str, str]:
    number = value.rstrip("abcdefghijklmnopqrstuvwxyz")
    return number or "0", value.removeprefix(number)
