"""A node sends slowly or with delay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import carriers, wire
from lab.topology.intent import Intent

_DELAY = re.compile(r"(\d{1,5})ms")
_RATE = re.compile(r"(\d{1,4})(kbit|mbit|gbit)")
_KBIT = {"kbit": 1, "mbit": 1_000, "gbit": 1_000_000}
_LEAST_KB = 16
_BURST_MS = 10
"""Milliseconds of the rate that are sent at once: a timer tick and more."""


def _shape(delay: int, number: int, unit: str) -> str:
    """The queueing discipline; ``delay`` in milliseconds, which needs ``netem``."""
    rate = f"{number}{unit}"
    if delay:
        return f"netem delay {delay}ms" + (f" rate {rate}" if number else "")
    burst = max(_LEAST_KB, number * _KBIT[unit] * _BURST_MS // 8 // 1_000)
    return f"tbf rate {rate} burst {burst}kb latency 100ms"


def _change(shape: str, intent: Intent, node: str, _: str) -> FaultChange:
    device = wire(intent.machine(node))
    there = f"tc qdisc show dev {device} | grep -qE '^qdisc (tbf|netem)'"
    return change(
        node,
        [f"tc qdisc replace dev {device} root {shape}"],
        [f"if {there}; then tc qdisc del dev {device} root; fi"],
    )


def _fault(shape: str, title: str, figures: str = "") -> Fault:
    return Fault(
        name=f"slow-link {figures}".rstrip(),
        title=title,
        needs="to be a node, or a hypervisor of the lab's own",
        sites=lambda intent: (FaultSite(one.name) for one in carriers(intent)),
        change=partial(_change, shape),
        also=("slow", "bandwidth", "delay", "latency"),
        asks=f"tc qdisc add dev lo root {shape} && tc qdisc del dev lo root",
        figures="a rate, such as 100mbit, and a delay, such as 20ms, for which the kernel must "
        "have netem",
        with_figures=_with_figures,
    )


def _with_figures(figures: Sequence[str]) -> Fault:
    delays = [found for word in figures if (found := _DELAY.fullmatch(word))]
    rates = [found for word in figures if (found := _RATE.fullmatch(word))]
    delay = int(delays[0][1]) if delays else 0
    number, unit = (int(rates[0][1]), rates[0][2]) if rates else (0, "mbit")
    wrong = len(delays) > 1 or len(rates) > 1 or len(delays) + len(rates) < len(figures)
    if wrong or (delays and not delay) or (rates and not number):
        raise ValueError(" ".join(figures))
    late = f"{delay} ms late" if delay else ""
    rate = f"at {number} {unit} a second" if number else ""
    return _fault(
        _shape(delay, number, unit),
        f"a node's card sends {' and '.join(filter(None, (late, rate)))}",
        " ".join(found[0] for found in (*delays, *rates)),
    )


FAULT = _fault(_shape(0, 1, "mbit"), "a node's card sends one megabit a second")
"""A large probe of 64 KiB then takes half a second."""
