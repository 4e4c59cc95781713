"""Faults that are habits of a Wine node's HNS: what Windows' HNS was seen to do on some machines.

:data:`lab.windows.wine.hns.service.HABITS` has what each does, and its sources. Windows has no
command that switches one on, so these are for Wine nodes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from lab.explain.check import REMOVE_POLICIES
from lab.explain.faults.registry import Fault, FaultChange, FaultSite, nodes, probes
from lab.facts.command_lines import in_powershell
from lab.topology.intent import Intent
from lab.topology.routing import bare
from lab.windows.faults import ON_EACH, on_node, windows_kubelets
from lab.windows.faults.hns import OF_FLANNEL, delete_pods, make_network_again, on_each_pod
from lab.windows.wine.hns import service

_ASKS = in_powershell("$null = Get-Command -Name Set-HnsHabit")
_NEEDS = "a Windows node of a cluster"
_STOP, _START = "Stop-Service -Name kube-proxy -Force", "Start-Service -Name kube-proxy"


def _switch(habit: str, *, on: bool) -> str:
    return f"Set-HnsHabit -Name {habit} -On ${str(on).lower()}"


def _with_habit(node: str, habit: str, do: Iterable[str], undo: Iterable[str]) -> FaultChange:
    """A habit switched on and its occasion; off again, and what it left made again."""
    return on_node(node, [_switch(habit, on=True), *do], [_switch(habit, on=False), *undo])


def _restarted(intent: Intent, node: str, _: str) -> FaultChange:
    again = make_network_again(intent.machine(node))
    change = _with_habit(node, service.NETWORKS_LOST, ["Restart-Hns"], [again])
    return FaultChange(change.do, (*change.undo, delete_pods(intent, node)))


HNS_RESTARTED = Fault(
    name="hns-restarted",
    title="HNS of a Wine node has restarted, and lost flannel's overlay with every endpoint",
    needs="flannel's overlay, as a cluster's network",
    sites=OF_FLANNEL,
    change=_restarted,
    kind="tunnel-missing",
    asks=_ASKS,
    windows=True,
)


def _on_other_card(intent: Intent, node: str, _: str) -> FaultChange:
    machine = intent.machine(node)
    address = bare(machine.interfaces[0].addresses[0])
    right, wrong = (f"$_.ManagementIP -{word} '{address}'" for word in ("eq", "ne"))
    do, undo = ([make_network_again(machine, each)] for each in (right, wrong))
    change = _with_habit(node, service.OTHER_CARD, do, undo)
    return FaultChange(
        (*change.do, delete_pods(intent, node)),
        (*change.undo, delete_pods(intent, node, again=True)),
    )


HNS_NETWORK_ON_OTHER_CARD = Fault(
    name="hns-network-on-other-card",
    title="HNS of a Wine node has made flannel's overlay on a card that leads to no other node",
    needs="flannel's overlay, as a cluster's network",
    sites=OF_FLANNEL,
    change=_on_other_card,
    kind="tunnel-local",
    asks=_ASKS,
    windows=True,
)


def _attach_refused(intent: Intent, node: str, peer: str) -> FaultChange:
    change = _with_habit(node, service.ATTACH_REFUSED, [], [])
    return replace(change, do=(*change.do, delete_pods(intent, node, peer)))


HNS_ATTACH_REFUSED = Fault(
    name="hns-attach-refused",
    title="HNS of a Wine node attaches no endpoint: a pod that is made again gets no network",
    needs="pods on a Windows node of a cluster",
    sites=on_each_pod,
    change=_attach_refused,
    peer="pod",
    kind="pod-missing",
    asks=_ASKS,
    windows=True,
)

_ANEW = f"{_STOP}; {REMOVE_POLICIES}; {_START}"
_AGAIN = (
    f"{_ANEW}; foreach ($second in 1..30) {{ "
    "if (@(Get-HnsPolicyList | Where-Object -FilterScript { $_ }).Count) { break }; "
    "Start-Sleep -Seconds 1 }"
)
"""kube-proxy makes every load balancer anew; until the first is there, or 30 s are over."""


def _balancers_kept(intent: Intent, node: str, peer: str) -> FaultChange:
    home = next(each for each in nodes(intent) if any(pod.name == peer for pod in probes(each)))
    change = _with_habit(node, service.BALANCERS_KEPT, [], [_AGAIN])
    return replace(change, do=(*change.do, delete_pods(intent, home.name, peer)))


def _behind_services(intent: Intent) -> Iterator[FaultSite]:
    """Pods of other nodes first: a pod of the node itself also loses its endpoint."""
    for machine in windows_kubelets(intent):
        others = [other for other in nodes(intent) if other.name != machine.name]
        names = [pod.name for other in (*others, machine) for pod in probes(other)]
        if names:
            yield FaultSite(machine.name, tuple(names))


HNS_BALANCERS_KEPT = Fault(
    name="hns-balancers-kept",
    title="HNS of a Wine node deletes no load balancer: a pod is made again, and its Services "
    "lead to the one before",
    needs=_NEEDS,
    sites=_behind_services,
    change=_balancers_kept,
    peer="pod",
    asks=_ASKS,
    windows=True,
)


def _made_again(habit: str, do: str) -> Callable[[Intent, str, str], FaultChange]:
    """With the habit, kube-proxy makes every load balancer anew; and without it again."""
    return lambda _, node, __: _with_habit(node, habit, [do], [_AGAIN])


HNS_BALANCERS_REFUSED = Fault(
    name="hns-balancers-refused",
    title="HNS of a Wine node makes no load balancer for kube-proxy: their ports are said to exist",
    needs=_NEEDS,
    sites=ON_EACH,
    change=_made_again(service.BALANCERS_REFUSED, _ANEW),
    kind="service-rules-missing",
    asks=_ASKS,
    windows=True,
)

HNS_DSR_IGNORED = Fault(
    name="hns-dsr-ignored",
    title="HNS of a Wine node does no Direct Server Return: clients' addresses do not reach pods",
    needs=_NEEDS,
    sites=ON_EACH,
    change=_made_again(service.DSR_IGNORED, _AGAIN),
    kind="wrong-policy",
    asks=_ASKS,
    windows=True,
)
