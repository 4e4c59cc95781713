"""Faults of links: down, too small, lossy, or slow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from lab.explain.faults.registry import (
    Fault,
    FaultChange,
    FaultSite,
    barred,
    carriers,
    change,
    hosts,
    nft,
    probes,
    sites_on,
)
from lab.scenario.terms import Impairment
from lab.scenario.values import RATE_UNITS
from lab.topology.commands import tables
from lab.topology.intent import Intent, MachineIntent
from lab.topology.links import link_line, shape_line, shape_of

_CARRIER = "a card on the nodes' network, which nodes and the lab's own hypervisors have"


def _down(machine: MachineIntent, device: str) -> FaultChange:
    set_link = f"ip link set dev {device}"
    return change(machine.name, [f"{set_link} down"], [f"{set_link} up", *tables(machine, device)])


def _node_link_down(intent: Intent, node: str, _: str) -> FaultChange:
    machine = intent.machine(node)
    return _down(machine, machine.wire)


def _pod_link_down(intent: Intent, node: str, peer: str) -> FaultChange:
    machine = intent.machine(node)
    return _down(machine, next(pod.port for pod in machine.pods if pod.name == peer))


NODE_LINK_DOWN = Fault(
    name="node-link-down",
    title="a node's card on the nodes' network is down",
    needs=_CARRIER,
    sites=sites_on(carriers),
    change=_node_link_down,
    also=("link-down", "cable-pulled"),
)
POD_LINK_DOWN = Fault(
    name="pod-link-down",
    title="a pod's port on its node is down",
    needs="pods",
    sites=lambda intent: (
        FaultSite(host.name, tuple(pod.name for pod in probes(host))) for host in hosts(intent)
    ),
    change=_pod_link_down,
    peer="pod",
    also=("pod-down",),
)

_LESS = 200
"""Bytes removed; both sizes are far from those of small probes and of full packets."""


def _small(node: str, device: str, mtu: int) -> FaultChange:
    by_mtu = f"ip link set dev {device} mtu"
    return change(node, [f"{by_mtu} {mtu - _LESS}"], [f"{by_mtu} {mtu}"])


def _mtu_black_hole(intent: Intent, node: str, _: str) -> FaultChange:
    machine = intent.machine(node)
    bridge, tunnel = machine.bridge, machine.tunnel
    if machine.switch and tunnel:  # a bridge sends no error for what it cannot forward
        return _small(node, tunnel.name, tunnel.mtu)
    assert bridge is not None, "a site has one"
    if bridge.switch:  # a user-space switch drops what its interface does not take
        return _small(node, str(machine.card.card), machine.card.mtu)
    error = "icmp type destination-unreachable icmp code frag-needed counter drop"
    silent = barred(node, "mtu-black-hole", "output", -150, [error])
    small = _small(node, bridge.name, bridge.mtu)
    return FaultChange((*small.do, *silent.do), (*small.undo, *silent.undo))


MTU_BLACK_HOLE = Fault(
    name="mtu-black-hole",
    title="the MTU of a node's bridge or a hypervisor's tunnel is too small, without ICMP errors",
    needs="pods, or a tunnel to another hypervisor of the lab",
    sites=sites_on(
        carriers,
        lambda _, machine: (
            (machine.bridge and probes(machine)) or (machine.switch and machine.tunnel)
        ),
    ),
    change=_mtu_black_hole,
    also=("black-hole", "mtu", "pmtu"),
)

_PERCENT = re.compile(r"(\d{1,3}(?:\.\d)?) ?%")
_TENTHS = 10


def _packet_loss(percent: float, intent: Intent, node: str, _: str) -> FaultChange:
    """Drop packets at random in the node's firewall, because not every kernel has ``netem``."""
    machine = intent.machine(node)
    of, lost = (100, percent) if percent.is_integer() else (100 * _TENTHS, percent * _TENTHS)
    drawn = f"< {lost:.0f}" if lost < of else f"<= {of - 1}"  # nft refuses a number beyond these
    chance = f"numgen random mod {of} {drawn} counter drop"
    if machine.chassis:
        return _lost_behind_a_switch(node, machine.wire, chance)
    rule = f'iifname "{machine.card.name}" {chance}'
    return barred(node, "packet-loss", "prerouting", -400, [rule])


def _lost_behind_a_switch(node: str, device: str, chance: str) -> FaultChange:
    """On egress: a user-space switch has its own copy of arriving packets."""
    table = "netdev firewall-packet-loss"
    hook = f"type filter hook egress device {device} priority 0; policy accept;"
    gone = (f"table {table} {{}}", f"delete table {table}")
    return change(
        node,
        [nft(*gone, f"table {table} {{", "chain egress {", hook, chance, "}", "}")],
        [nft(*gone)],
    )


def _packet_loss_of(figures: Sequence[str]) -> Fault:
    match = _PERCENT.fullmatch(" ".join(figures))
    percent = float(match[1]) if match else 0.0
    if not 0 < percent <= 100:  # noqa: PLR2004  per cent
        raise ValueError(" ".join(figures))
    return replace(
        PACKET_LOSS,
        name=f"{PACKET_LOSS.name} {percent:g}%",
        title=f"{percent:g} % of the packets that arrive at a node's card are lost",
        change=partial(_packet_loss, percent),
    )


PACKET_LOSS = Fault(
    name="packet-loss",
    title="30 % of the packets that arrive at a node's card are lost",
    needs=_CARRIER,
    sites=sites_on(carriers),
    change=partial(_packet_loss, 30.0),
    also=("loss", "lossy"),
    figures="a share from 0.1% to 100%, such as 5%",
    with_figures=_packet_loss_of,
)

_DELAY = re.compile(r"(\d{1,5})ms")
_RATE = re.compile(r"(\d{1,4})(kbit|mbit|gbit)")


def _slow(shape: str, intent: Intent, node: str, _: str) -> FaultChange:
    machine = intent.machine(node)
    return change(node, [shape_line(machine.wire, shape)], [link_line(machine.wire, machine.sends)])


def _slow_link(shape: str, title: str, figures: str = "") -> Fault:
    return Fault(
        name=f"slow-link {figures}".rstrip(),
        title=title,
        needs=_CARRIER,
        sites=sites_on(carriers),
        change=partial(_slow, shape),
        also=("slow", "bandwidth", "delay", "latency"),
        asks=f"tc qdisc add dev lo root {shape} && tc qdisc del dev lo root",
        figures="a rate, such as 100mbit, and a delay, such as 20ms, for which the kernel must "
        "have netem",
        with_figures=_slow_link_of,
    )


def _slow_link_of(figures: Sequence[str]) -> Fault:
    delays = [match for word in figures if (match := _DELAY.fullmatch(word))]
    rates = [match for word in figures if (match := _RATE.fullmatch(word))]
    delay = int(delays[0][1]) if delays else 0
    number, unit = (int(rates[0][1]), rates[0][2]) if rates else (0, "mbit")
    wrong = len(delays) > 1 or len(rates) > 1 or len(delays) + len(rates) < len(figures)
    if wrong or (delays and not delay) or (rates and not number):
        raise ValueError(" ".join(figures))
    late = f"{delay} ms late" if delay else ""
    rate = f"at {number} {unit} a second" if number else ""
    return _slow_link(
        shape_of(Impairment(delay, rate=number * RATE_UNITS[unit])),
        f"a node's card sends {' and '.join(filter(None, (late, rate)))}",
        " ".join(match[0] for match in (*delays, *rates)),
    )


SLOW_LINK = _slow_link(
    shape_of(Impairment(rate=1_000_000)), "a node's card sends one megabit a second"
)
"""A large probe of 64 KiB then takes half a second."""
