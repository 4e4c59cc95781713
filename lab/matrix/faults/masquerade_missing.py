"""What a node's pods send to the outside keeps the pod's address, which nobody there knows."""

from __future__ import annotations

from lab.matrix.faults.fault import Change, Fault, Site, change
from lab.matrix.faults.parts import hosts, nft
from lab.providers.netns.services import LEAVING, SERVICE_TABLE, leaving_rules
from lab.topology.intent import Intent


def _change(intent: Intent, node: str, _: str) -> Change:
    translation = intent.machine(node).translation
    assert translation is not None, "a site has one"
    chain, rules = f"ip {SERVICE_TABLE} {LEAVING}", leaving_rules(translation)
    kept = rules[:-1]  # what kube-proxy has marked is still masqueraded
    return change(
        node,
        [nft(f"flush chain {chain}", *(f"add rule {chain} {rule}" for rule in kept))],
        [nft(f"flush chain {chain}", *(f"add rule {chain} {rule}" for rule in rules))],
    )


FAULT = Fault(
    name="masquerade-missing",
    title="packets of a node's pods leave the cluster with the pod's own address",
    needs="pods whose packets to the outside are masqueraded",
    sites=lambda intent: (
        Site(one.name)
        for one in hosts(intent)
        if one.translation and one.translation.local_cidr and one.translation.not_masqueraded
    ),
    change=_change,
    also=("no-masquerade", "ip-masq-missing", "snat-missing"),
)
