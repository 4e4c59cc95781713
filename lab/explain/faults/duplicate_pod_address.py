"""Two pods have the same address."""

from __future__ import annotations

from collections.abc import Iterator

from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import bare, hosts, probes, without_address
from lab.topology.intent import Intent

_CARD = "eth0"


def _change(intent: Intent, node: str, peer: str) -> FaultChange:
    taken = next(
        f"{bare(pod.address)}/32" for one in intent.machines for pod in one.pods if pod.name == peer
    )
    thief = next(pod.name for pod in probes(intent.machine(node)) if pod.name != peer)
    return change(
        thief,
        [f"ip address replace {taken} dev {_CARD}"],
        [without_address(taken, _CARD)],
    )


def _sites(intent: Intent) -> Iterator[FaultSite]:
    every = [(one.name, pod.name) for one in hosts(intent) for pod in probes(one)]
    for machine in hosts(intent):
        own = [pod.name for pod in probes(machine)]
        peers = [pod for where, pod in every if where != machine.name]
        peers += own if len(own) > 1 else []
        if peers:
            yield FaultSite(machine.name, tuple(peers))


FAULT = Fault(
    name="duplicate-pod-address",
    title="a pod of the node has the address of another pod",
    needs="pods",
    sites=_sites,
    change=_change,
    peer="pod",
    also=("duplicate-address", "duplicate-ip"),
)
