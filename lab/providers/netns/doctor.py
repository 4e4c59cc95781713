"""What this machine can do of what labs in network namespaces need."""

from __future__ import annotations

from lab.providers.diagnosis import Diagnosis, Level
from lab.providers.netns.abilities import FOR_SWITCHES, Ability, abilities

SUBJECT = "this machine, for network namespaces"


def examine() -> tuple[Diagnosis, ...]:
    """Every ability, tried in a scratch world that is gone a moment later."""
    return tuple(_told(one) for one in abilities(tunnels=True, switches=True))


def _told(ability: Ability) -> Diagnosis:
    if ability.there:
        return Diagnosis(SUBJECT, ability.name, "ok", f"tried, for {ability.needs}")
    seen = f"needed for {ability.needs}: {ability.detail}"
    level: Level = "warn" if ability.name in FOR_SWITCHES else "fail"
    return Diagnosis(SUBJECT, ability.name, level, seen, ability.hint)
