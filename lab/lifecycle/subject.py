"""A lab as evidence is gathered of it."""

from __future__ import annotations

from dataclasses import dataclass

from lab.plan.plan import Plan
from lab.providers.provider import LabHandle, Provider
from lab.state.rows import LabRow
from lab.state.store import Store
from lab.topology.intent import Intent


@dataclass(frozen=True, slots=True)
class EvidenceSubject:
    """All that is known of one lab, whole, half up, or broken."""

    handle: LabHandle
    row: LabRow
    plan: Plan
    intent: Intent
    provider: Provider
    store: Store
    trouble: str = ""
    """What went wrong, in words, where evidence is gathered because of it."""
