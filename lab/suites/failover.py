"""One failover of one lab: the holder of a gateway is cut off, and joins again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError, UsageError
from lab._log import say
from lab.explain.explainer import compare_lab, list_unlearned
from lab.matrix.failover import Failover, Turn, beats, holder_to_lose
from lab.providers.failover import BeatPace, FailoverProvider, resolve_gateways
from lab.providers.provider import FAILOVER
from lab.suites.running_lab import RunningLab
from lab.topology import gateways
from lab.topology.intent import Intent

_SETTLE_SECONDS = 30.0
"""For routes to follow after pods get answers again; BGP recovers in 2 to 5 s."""
_LOOK_SECONDS = 20.0
_PACE = BeatPace()


class FailoverTest:
    """One failover of one lab.

    Raises UsageError when the provider cannot cut machines off, or the lab has no gateway to fail
    over.
    """

    def __init__(self, lab: RunningLab, intent: Intent) -> None:
        if FAILOVER not in lab.provider.abilities:
            raise UsageError(
                f"testing the failover of lab '{lab.name}'",
                f"provider '{lab.provider.name}' cannot take a machine off its networks",
                "'--provider netns' and '--provider nspawn' can",
            )
        self._lab = lab
        self._failing = cast(FailoverProvider, lab.provider)
        self._intent = resolve_gateways(lab.provider, lab.handle, intent)
        self._lost = holder_to_lose(self._intent, lab.name)

    def run(self) -> Failover:
        """Cut off the holder, reconnect it, and return what was seen.

        Raises BrokenError when pods do not answer at the start, or the lab's machines do not exist.
        """
        lab, lost = self._lab, self._lost
        before = self._holders()
        say(f"failover: disconnecting {lost} from its networks")
        try:
            away = self._turn(lambda: lab.cut_off(lost), away=True)
            say(f"failover: no answer for {away.longest:.1f} s; reconnecting {lost}")
            back = self._turn(lambda: lab.reconnect(lost), away=False)
        finally:
            lab.reconnect(lost)
        return Failover(lost, before, away, back)

    def _turn(self, change: Callable[[], None], *, away: bool) -> Turn:
        watched = beats(self._intent, self._lost)
        silences = self._failing.pulse(self._lab.handle, watched, change, _PACE)
        wrong = self._wrong(away=away)
        return Turn(silences, self._holders(), wrong)

    def _wrong(self, *, away: bool) -> tuple[str, ...]:
        """Differences from the Intent with the current holders, after time to settle."""
        try:
            Deadline(_SETTLE_SECONDS).wait(
                "waiting for every route to follow",
                lambda: self._differences(away=away),
                until=lambda differences: not differences,
                every=0.5,
            )
        except DeadlineError:
            return self._differences(away=away)
        return ()

    def _differences(self, *, away: bool) -> tuple[str, ...]:
        lab = self._lab
        now = resolve_gateways(lab.provider, lab.handle, self._intent)
        wanted = gateways.without(now, self._lost) if away else now
        places = {machine.name: [pod.name for pod in machine.pods] for machine in wanted.machines}
        answers = lab.provider.observe(lab.handle, wanted, places, Deadline(_LOOK_SECONDS))
        facts_of = {
            name: answer for name, answer in answers.items() if not isinstance(answer, LabError)
        }
        silent = [
            f"{name}: {answer}" for name, answer in answers.items() if isinstance(answer, LabError)
        ]
        silent += [
            f"{unread.pod or name}: {unread.part} cannot be read: {unread.reason}"
            for name, facts in facts_of.items()
            for unread in facts.unread
        ]
        # a cluster removes a lost node from Services with a delay
        compare = list_unlearned if wanted.kubernetes else compare_lab
        return (*silent, *(str(difference) for difference in compare(wanted, facts_of)))

    def _holders(self) -> Mapping[str, str | None]:
        """The holder of each gateway; None unless there is exactly one."""
        holders = self._failing.gateway_holders(self._lab.handle, self._intent)
        return {node: names[0] if len(names) == 1 else None for node, names in holders.items()}
