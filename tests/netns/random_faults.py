"""Faults that are composed at random, as no catalogue has them, and what explain says of each.

``make explain-drill RANDOM=20 SEED=1 SCENARIOS=overlay`` runs it.

The oracle is the matrix before, with and after a fault, and the injector's own record of place and
object. Explain knows neither.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from explain_drill import SAMPLE, brought_up, every_cell, explain_again, failures

from lab._deadline import Deadline
from lab._errors import LabError
from lab.lifecycle.interruption import terminable
from lab.lifecycle.session import OpenLab
from lab.matrix.cell import Cell
from lab.matrix.finding import Finding
from lab.topology.intent import MachineIntent, Pod

Judged = Literal["named", "right machine", "wrongly accused", "nothing"]


@dataclass(frozen=True)
class RandomFault:
    """One thing done to one place, how it is undone, and what names it."""

    place: str
    machine: str
    object: str
    """A part of the object's name, as any tool prints it."""
    do: str
    undo: str

    def __str__(self) -> str:
        return f"{self.place}: {self.do}"


Make = Callable[[random.Random, MachineIntent, Pod | None], RandomFault | None]


def _fault(machine: MachineIntent, pod: Pod | None, thing: str, do: str, undo: str) -> RandomFault:
    return RandomFault(pod.name if pod else machine.name, machine.name, thing, do, undo)


def _table(rng: random.Random, machine: MachineIntent, pod: Pod | None) -> RandomFault:
    name = f"{rng.choice(('site', 'audit', 'zone'))}{rng.randrange(100)}"
    family = rng.choice(("ip", "inet"))
    hooks = ("input", "output") if pod else ("prerouting", "input", "forward", "postrouting")
    hook, verdict = rng.choice(hooks), rng.choice(("drop", "reject"))
    if hook in {"prerouting", "postrouting"}:
        verdict = "drop"
    rules = (
        f"meta l4proto {rng.choice(('tcp', 'udp'))} {verdict}",
        f"{rng.choice(('tcp', 'udp'))} dport {{ 53, 8080, 4789 }} {verdict}",
        f"ip length > {rng.choice((100, 500))} drop",
        f"ip saddr @peers {verdict}",
        "meta l4proto vmap { tcp : drop, udp : drop }",
        "ct state new drop",
        "",  # the chain's policy drops all
    )
    rule = rng.choice(rules)
    policy = "accept" if rule else "drop"
    script = (
        f"table {family} {name} {{ set peers {{ type ipv4_addr; flags interval; "
        f"elements = {{ 10.0.0.0/8, 192.168.0.0/16 }}; }}; chain c {{ type filter hook {hook} "
        f"priority {rng.choice((-150, -5, 0, 50))}; policy {policy}; {rule}; }}; }}"
    )
    return _fault(
        machine, pod, f"{family} {name}", f"nft '{script}'", f"nft delete table {family} {name}"
    )


def _policy_route(rng: random.Random, machine: MachineIntent, pod: Pod | None) -> RandomFault:
    table = rng.randrange(70, 90)
    kind = rng.choice(("blackhole", "unreachable", "prohibit"))
    select = rng.choice(("from all", "from all ipproto udp", "from all ipproto tcp"))
    return _fault(
        machine, pod, str(table),
        f"ip route add {kind} default table {table} && ip rule add {select} priority {table} "
        f"lookup {table}",
        f"ip rule delete priority {table}; ip route flush table {table}",
    )  # fmt: skip


def _xfrm(rng: random.Random, machine: MachineIntent, pod: Pod | None) -> RandomFault:
    way = rng.choice(("in", "out") if pod else ("in", "out", "fwd"))
    what = f"dir {way} src 0.0.0.0/0 dst 0.0.0.0/0 proto {rng.choice(('tcp', 'udp'))}"
    return _fault(
        machine, pod, "xfrm policy", f"ip xfrm policy add {what} action block",
        f"ip xfrm policy delete {what}",
    )  # fmt: skip


def _setting(rng: random.Random, machine: MachineIntent, pod: Pod | None) -> RandomFault:
    of_pod = (("ip_default_ttl", "1"), ("ip_local_port_range", "8080 8080"))
    of_node = (
        ("ip_default_ttl", "1"), ("conf/all/rp_filter", "1"), ("conf/all/forwarding", "0"),
        ("conf/all/route_localnet", "0"), ("icmp_echo_ignore_all", "1"),
    )  # fmt: skip
    key, value = rng.choice(of_pod if pod else of_node)
    path = f"/proc/sys/net/ipv4/{key}"
    saved = f"/run/saved-{key.replace('/', '-')}"
    return _fault(
        machine, pod, key.rpartition("/")[2].removesuffix("ing"),  # ip_forward is the same
        f"cat {path} > {saved}; echo '{value}' > {path}", f"cat {saved} > {path}",
    )  # fmt: skip


def _port(rng: random.Random, machine: MachineIntent, pod: Pod | None) -> RandomFault | None:
    if pod or machine.bridge is None:
        return None
    port = rng.choice(machine.pods).port
    flag, back = rng.choice((("isolated on", "isolated off"), ("state 4", "state 3")))
    put = f"ip link set dev {port} type bridge_slave"
    return _fault(machine, pod, port, f"{put} {flag}", f"{put} {back}")


def _queue(_: random.Random, machine: MachineIntent, pod: Pod | None) -> RandomFault | None:
    if pod is None:
        return None
    return _fault(
        machine, pod, "queue", "tc qdisc add dev eth0 root tbf rate 8bit burst 10 limit 10",
        "tc qdisc delete dev eth0 root",
    )  # fmt: skip


def _resolver(rng: random.Random, machine: MachineIntent, pod: Pod | None) -> RandomFault | None:
    if pod is None or not pod.resolver:
        return None
    wrong = rng.choice(("nameserver 192.0.2.9", "options ndots:0"))
    return _fault(
        machine, pod, "resolv", f"cp /etc/resolv.conf /run/saved-{pod.name}; "
        f"echo '{wrong}' > /etc/resolv.conf", f"cat /run/saved-{pod.name} > /etc/resolv.conf",
    )  # fmt: skip


PRIMITIVES: Sequence[Make] = (
    *(_table, _table, _table, _policy_route, _xfrm, _setting, _setting, _port, _queue, _resolver),
)


def compose(opened: OpenLab, rng: random.Random) -> RandomFault:
    """One fault at a random place of the lab."""
    there = [one for one in opened.intent.machines if one.pods]
    while True:
        machine = rng.choice(there)
        pod = rng.choice(machine.pods) if rng.random() < 0.5 else None
        found = rng.choice(PRIMITIVES)(rng, machine, pod)
        if found is not None:
            return found


def run_in(opened: OpenLab, place: str, command: str) -> bool:
    machine = opened.provider.machine(opened.handle, opened.intent, place)
    return machine.run(("sh", "-c", command), Deadline(30)).code == 0


def near(opened: OpenLab, fault: RandomFault, rng: random.Random) -> list[Cell]:
    """Cells of every family that concern the place or its machine."""
    ends = {fault.place, fault.machine}
    families: dict[str, list[Cell]] = {}
    for cell in every_cell(opened):
        if ends & {cell.source.name, cell.target.name, cell.source.node, cell.target.node}:
            families.setdefault(cell.family, []).append(cell)
    return [
        cell for there in families.values() for cell in rng.sample(there, min(len(there), SAMPLE))
    ]


def judged(fault: RandomFault, finding: Finding | None) -> Judged:
    if finding is None:
        return "nothing"
    said = f"{finding.object} {finding.observed}"
    if finding.place == fault.place and fault.object in said:
        return "named"
    return "right machine" if finding.node == fault.machine else "wrongly accused"


@dataclass(frozen=True)
class Scored:
    """What came of one fault."""

    verdict: str
    """One of ``Judged``; or why the fault does not count."""
    said: str = ""
    seconds: float = 0.0


def score(opened: OpenLab, fault: RandomFault, rng: random.Random) -> Scored:
    """Put the fault in, explain a cell that it turns red, and take it out."""
    if not run_in(opened, fault.place, fault.do):
        return Scored("refused")
    try:
        red = failures(opened, near(opened, fault, rng))
        if not red:
            return Scored("no red cell")
        cell = rng.choice(red)
        begun = time.monotonic()
        finding = explain_again(opened, cell).finding
        seconds = time.monotonic() - begun
    except LabError as error:  # the matrix itself could not be asked
        return Scored("not judged", str(error))
    finally:
        run_in(opened, fault.place, fault.undo)
    said = f"{finding.node}: {finding.object}: {finding.observed}" if finding else "nothing"
    if failures(opened, [cell]):
        return Scored("not well after", f"{cell.id}: {said}", seconds)
    return Scored(judged(fault, finding), f"{cell.id}: {said}", seconds)


def drill(opened: OpenLab, count: int, rng: random.Random) -> Counter[str]:
    """So many faults that turn a cell red, one after another, each printed."""
    counts: Counter[str] = Counter()
    longest = 0.0
    while sum(counts[one] for one in get_args(Judged)) < count:
        fault = compose(opened, rng)
        scored = score(opened, fault, rng)
        counts[scored.verdict] += 1
        longest = max(longest, scored.seconds)
        print(f"  {scored.verdict:<16} {fault}", flush=True)
        if scored.said:
            print(f"      said of {scored.said}; {scored.seconds:.1f} s", flush=True)
    listed = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
    print(f"{opened.name}: {listed}; at most {longest:.1f} s", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", default=["overlay"])
    parser.add_argument("--count", type=int, default=20, help="faults that turn a cell red")
    parser.add_argument("--seed", type=int, default=None)
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}; the same again: --seed {seed}")
    counts: Counter[str] = Counter()
    with terminable():
        for name in asked.scenarios or ["overlay"]:
            with tempfile.TemporaryDirectory() as place, brought_up(name, Path(place)) as opened:
                counts += drill(opened, asked.count, random.Random(f"{seed} {name}"))
    print(", ".join(f"{number} {verdict}" for verdict, number in counts.most_common()))
    return 0 if counts["named"] == sum(counts[one] for one in get_args(Judged)) else 1


if __name__ == "__main__":
    sys.exit(main())
