"""The failover test: the holder of a gateway is lost and comes back, while pods keep asking."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, cast

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError, UsageError
from lab.explain.comparison import compare_lab, unlearned
from lab.matrix.failover import Failover, Turn, beats, holder_to_lose
from lab.providers.failing import BeatPace, Failing
from lab.providers.provider import FAILOVER, LabHandle, Provider
from lab.providers.settling import settled
from lab.topology import gateways
from lab.topology.intent import Intent

_SETTLE_SECONDS = 30.0
"""For routes to follow, after pods are answered again; BGP comes back in 2 to 5 s."""
_LOOK_SECONDS = 20.0
_PACE = BeatPace()

Say = Callable[[str], None]


class Cables(Protocol):
    """Takes machines off their networks and puts them back, whatever comes between."""

    def cut_off(self, machine: str) -> None:
        """Take the machine off every network."""

    def join_again(self, machine: str) -> None:
        """Put it back; it may be there already."""


class FailoverTest:
    """One failover of one lab.

    Raises
    ------
    UsageError
        When the provider cannot take machines away, or the lab has no gateway to fail over.

    """

    def __init__(
        self, provider: Provider, lab: LabHandle, intent: Intent, say: Say, cables: Cables
    ) -> None:
        if FAILOVER not in provider.abilities:
            raise UsageError(
                f"testing the failover of lab '{lab.name}'",
                f"provider '{provider.name}' cannot take a machine off its networks",
                "'--provider netns' and '--provider nspawn' can",
            )
        self._provider, self._lab, self._say, self._cables = provider, lab, say, cables
        self._failing = cast(Failing, provider)
        self._intent = settled(provider, lab, intent)
        self._lost = holder_to_lose(self._intent, lab.name)

    def run(self) -> Failover:
        """Lose the holder, have it back, and say what was seen.

        Raises
        ------
        BrokenError
            When pods do not answer to begin with, or the lab's machines are not there.

        """
        cables, lost = self._cables, self._lost
        before = self._holders()
        self._say(f"failover: {lost} is taken off its networks")
        try:
            away = self._turn(lambda: cables.cut_off(lost), away=True)
            self._say(f"failover: {away.longest:.1f} s of silence; {lost} is put back")
            back = self._turn(lambda: cables.join_again(lost), away=False)
        finally:
            cables.join_again(lost)
        return Failover(lost, before, away, back)

    def _turn(self, change: Callable[[], None], *, away: bool) -> Turn:
        watched = beats(self._intent, self._lost)
        silences = self._failing.pulse(self._lab, watched, change, _PACE)
        wrong = self._wrong(away=away)
        return Turn(silences, self._holders(), wrong)

    def _wrong(self, *, away: bool) -> tuple[str, ...]:
        """What is not as it must be with the holders of now, once there has been time."""
        try:
            Deadline(_SETTLE_SECONDS).wait(
                "waiting for every route to follow",
                lambda: self._differences(away=away),
                until=lambda found: not found,
                every=0.5,
            )
        except DeadlineError:
            return self._differences(away=away)
        return ()

    def _differences(self, *, away: bool) -> tuple[str, ...]:
        now = settled(self._provider, self._lab, self._intent)
        wanted = gateways.without(now, self._lost) if away else now
        asked = {one.name: [pod.name for pod in one.pods] for one in wanted.machines}
        answers = self._provider.observe(self._lab, wanted, asked, Deadline(_LOOK_SECONDS))
        seen = {name: one for name, one in answers.items() if not isinstance(one, LabError)}
        silent = [f"{name}: {one}" for name, one in answers.items() if isinstance(one, LabError)]
        # a cluster takes Services from a lost node in its own time
        compare = unlearned if wanted.kubernetes else compare_lab
        return (*silent, *(str(one) for one in compare(wanted, seen)))

    def _holders(self) -> Mapping[str, str | None]:
        """Who alone holds each gateway."""
        found = self._failing.gateway_holders(self._lab, self._intent)
        return {node: names[0] if len(names) == 1 else None for node, names in found.items()}
