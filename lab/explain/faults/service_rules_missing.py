"""One node does not translate the addresses of Services."""

from __future__ import annotations

from lab.explain.faults import parts
from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import central, hosts, many, nft
from lab.providers.netns.services import SERVICE_TABLE, service_rules
from lab.topology.intent import Intent
from lab.topology.ovn_daemons import BALANCERS


def _change(intent: Intent, node: str, _: str) -> FaultChange:
    translation = intent.machine(node).translation
    assert translation is not None, "a site has one"
    if intent.logical:
        return _of_switch(intent, node)
    if intent.kubernetes is not None:
        return parts.without_services(node, FAULT.name)
    rules = service_rules(translation, node)
    maps = {"service-ips": rules.by_address, "service-nodeports": rules.by_node_port}
    empty = nft(*(f"flush map ip {SERVICE_TABLE} {name}" for name in maps))
    filled = [
        line
        for name, elements in maps.items()
        for line in many(elements, f"ip {SERVICE_TABLE} {name}")
    ]
    return change(node, [empty], [empty, *filled])


def _of_switch(intent: Intent, node: str) -> FaultChange:
    """Remove the load balancer group, which each node's logical switch has, from this one's."""
    does = "ovn-nbctl --no-leader-only --timeout=10"
    found = f"$({does} --bare --columns=_uuid find Load_Balancer_Group name={BALANCERS})"
    column = f'Logical_Switch {node} load_balancer_group "{found}"'
    return change(
        central(intent),
        [f"{does} --wait=hv remove {column}"],
        [f"{does} --wait=hv add {column}"],
    )


FAULT = Fault(
    name="service-rules-missing",
    title="a node has no Service rules, as if kube-proxy had not run",
    needs="Services, on a cluster by kube-proxy's nftables mode",
    sites=lambda intent: (
        FaultSite(one.name)
        for one in hosts(intent)
        if one.translation and one.translation.services and parts.translates(intent)
    ),
    change=_change,
    also=("no-services", "kube-proxy-down"),
)
