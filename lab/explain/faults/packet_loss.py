"""A part of the packets that arrive at a node is lost.

The node's firewall drops them at random, because not every kernel has ``netem``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import barred, card, carriers, nft, wire
from lab.topology.intent import Intent

_PERCENT = re.compile(r"(\d{1,3}(?:\.\d)?) ?%")
_TENTHS = 10


def _change(percent: float, intent: Intent, node: str, _: str) -> FaultChange:
    machine = intent.machine(node)
    of, lost = (100, percent) if percent.is_integer() else (100 * _TENTHS, percent * _TENTHS)
    chance = f"numgen random mod {of} < {lost:.0f} counter drop"
    if machine.chassis:
        return _behind_a_switch(node, wire(machine), chance)
    rule = f'iifname "{card(machine).name}" {chance}'
    return barred(node, FAULT.name, "prerouting", -400, [rule])


def _behind_a_switch(node: str, device: str, chance: str) -> FaultChange:
    """On egress: a user-space switch has its own copy of arriving packets."""
    table = "netdev firewall-packet-loss"
    hook = f"type filter hook egress device {device} priority 0; policy accept;"
    gone = (f"table {table} {{}}", f"delete table {table}")
    return change(
        node,
        [nft(*gone, f"table {table} {{", "chain egress {", hook, chance, "}", "}")],
        [nft(*gone)],
    )


def _with_figures(figures: Sequence[str]) -> Fault:
    found = _PERCENT.fullmatch(" ".join(figures))
    percent = float(found[1]) if found else 0.0
    if not 0 < percent <= 100:  # noqa: PLR2004  per cent
        raise ValueError(" ".join(figures))
    return replace(
        FAULT,
        name=f"{FAULT.name} {percent:g}%",
        title=f"{percent:g} % of the packets that arrive at a node's card are lost",
        change=partial(_change, percent),
    )


FAULT = Fault(
    name="packet-loss",
    title="30 % of the packets that arrive at a node's card are lost",
    needs="to be a node, or a hypervisor of the lab's own",
    sites=lambda intent: (FaultSite(one.name) for one in carriers(intent)),
    change=partial(_change, 30.0),
    also=("loss", "lossy"),
    figures="a share from 0.1% to 100%, such as 5%",
    with_figures=_with_figures,
)
