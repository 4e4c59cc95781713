"""Packets of a node's pods leave the cluster with the pod's address, which is unknown there."""

from __future__ import annotations

from lab.explain.faults import parts
from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import hosts, nft
from lab.providers.netns import services
from lab.providers.netns.services import GATEWAY_TABLE, LEAVING, SERVICE_TABLE, leaving_rules
from lab.topology.intent import Intent, MachineIntent, Translation


def _change(intent: Intent, node: str, _: str) -> FaultChange:
    translation = intent.machine(node).translation
    assert translation is not None, "a site has one"
    machine = intent.machine(node)
    if machine.chassis and machine.bridge:
        return _of_gateway(node, translation, machine.bridge.name)
    if intent.kubernetes is not None:
        return parts.without_masquerading(node)
    chain, rules = f"ip {SERVICE_TABLE} {LEAVING}", leaving_rules(translation)
    kept = rules[:-1]  # packets with kube-proxy's mark are still masqueraded
    return change(
        node,
        [nft(f"flush chain {chain}", *(f"add rule {chain} {rule}" for rule in kept))],
        [nft(f"flush chain {chain}", *(f"add rule {chain} {rule}" for rule in rules))],
    )


def _of_gateway(node: str, translation: Translation, port: str) -> FaultChange:
    chain = f"ip {GATEWAY_TABLE} {LEAVING}"
    marked, pods = services.gateway_leaving_rules(translation, port)
    flushed = f"flush chain {chain}"
    return change(
        node,
        [nft(flushed, f"add rule {chain} {marked}")],
        [nft(flushed, f"add rule {chain} {marked}", f"add rule {chain} {pods}")],
    )


def _is_site(intent: Intent, machine: MachineIntent) -> bool:
    """In a logical network the gateways masquerade."""
    gates = intent.logical.gateways().values() if intent.logical else (machine.name,)
    there = machine.translation
    known = there and there.local_cidr and there.not_masqueraded
    return bool(known) and machine.name in gates


FAULT = Fault(
    name="masquerade-missing",
    title="packets of a node's pods leave the cluster with the pod's address",
    needs="to masquerade what pods send to the outside",
    sites=lambda intent: (FaultSite(one.name) for one in hosts(intent) if _is_site(intent, one)),
    change=_change,
    also=("no-masquerade", "ip-masq-missing", "snat-missing"),
)
