"""A Windows node translates packets between pods, which it must not."""

from __future__ import annotations

from dataclasses import replace

from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import hosts, nft
from lab.providers.netns.services import LEAVING, SERVICE_TABLE, leaving_rules
from lab.topology.intent import Intent, MachineIntent, Translation


def _change(intent: Intent, node: str, _: str) -> FaultChange:
    translation = intent.machine(node).translation
    assert translation is not None, "a site has one"
    wrong = replace(translation, not_masqueraded=translation.not_masqueraded[1:])
    return change(node, [_rewritten(wrong)], [_rewritten(translation)])


def _rewritten(translation: Translation) -> str:
    chain, rules = f"ip {SERVICE_TABLE} {LEAVING}", leaving_rules(translation)
    return nft(f"flush chain {chain}", *(f"add rule {chain} {rule}" for rule in rules))


def _is_site(machine: MachineIntent) -> bool:
    there = machine.translation
    ours = machine.os == "windows" and machine.chassis is None
    return ours and there is not None and bool(there.not_masqueraded)


FAULT = Fault(
    name="outboundnat-exception-missing",
    title="a Windows node's OutBoundNAT lacks the exception for the pods' range",
    needs="Windows, and an OutBoundNAT with exceptions",
    sites=lambda intent: (FaultSite(one.name) for one in hosts(intent) if _is_site(one)),
    change=_change,
    also=("outbound-nat", "outboundnat"),
)
