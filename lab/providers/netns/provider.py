"""The embedded provider: a lab's machines are network namespaces on this one.

Everything of a lab hangs on one holder process. Nothing is written anywhere else, so that
what carries the lab's token in /proc is all there is to find and to take away.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from lab._deadline import Deadline
from lab._errors import PreflightError, UsageError
from lab.providers.netns import capacity, holding, namespaces
from lab.providers.netns.abilities import abilities
from lab.providers.netns.compile import namespaces as names_of
from lab.providers.netns.entry import Tell
from lab.providers.netns.machine import NetnsMachine
from lab.providers.netns.processes import holders
from lab.providers.netns.steps import BringUp, ailment
from lab.providers.netns.windows import RULES, realise
from lab.providers.provider import (
    Evidence,
    LabHandle,
    Liveness,
    Mark,
    Outcome,
    Pods,
    Probe,
    ProbeSettings,
    Step,
)
from lab.topology.cost import Cost, cost
from lab.topology.intent import Intent

_EXCHANGES_A_TRY = 8
"""A DNS question is asked with up to four search domains, and may be repeated."""


class NetnsProvider:
    """Network namespaces of this machine, for root and for a plain user alike.

    Parameters
    ----------
    windows_rules_off
        Ids of Windows rules that the emulated Windows nodes are not to obey.
    python
        The interpreter that runs the holder and the responder.

    Raises
    ------
    UsageError
        If there is no Windows rule of one of those ids.

    """

    name = "netns"
    pods: Pods = "namespaces"

    def __init__(
        self, windows_rules_off: frozenset[str] = frozenset(), python: str = sys.executable
    ) -> None:
        known = [rule.id for rule in RULES]
        strange = sorted(windows_rules_off.difference(known))
        if strange:
            raise UsageError(
                f"switching off the Windows rule '{strange[0]}'",
                "there is no such rule",
                f"one of {', '.join(known)}",
            )
        self._off = windows_rules_off
        self._python = python

    def banner(self, intent: Intent | None) -> str:
        """One sentence: which provider, and what is emulated."""
        machines = intent.machines if intent else ()
        emulated = [machine.name for machine in machines if machine.os == "windows"]
        said = f"{self.name}: network namespaces on this machine"
        if not emulated:
            return said
        nodes, are = ("node", "is") if len(emulated) == 1 else ("nodes", "are")
        said += f"; Windows {nodes} {', '.join(emulated)} {are} emulated"
        if self._off:
            said += f", not obeying {', '.join(sorted(self._off))}"
        return said

    def node_mtu(self, asked: int) -> int:
        """What is asked: one kernel carries it all."""
        return asked

    def cost(self, intent: Intent) -> Cost:
        """What the lab is predicted to take here, from nothing."""
        return cost(intent)

    def preflight(self, lab: LabHandle, intent: Intent) -> None:
        """Try, in a scratch world, what the intent asks of the kernel, and see that it fits.

        Raises
        ------
        PreflightError
            Naming everything that is missing and its fix. Nothing has been created.

        """
        del lab
        tunnels = any(machine.tunnel for machine in intent.machines)
        missing = [one for one in abilities(tunnels=tunnels) if not one.there]
        if missing:
            raise PreflightError(
                f"checking this machine for scenario '{intent.scenario}'",
                "; ".join(
                    f"no {one.name}, needed for {one.needs}: {one.detail}" for one in missing
                ),
                "\n       ".join(dict.fromkeys(one.cure for one in missing)),
            )
        capacity.judge(capacity.need(intent), capacity.room())

    def steps(self, lab: LabHandle, intent: Intent) -> tuple[Step, ...]:
        """What brings the lab up, in order."""
        return BringUp(lab, realise(intent, self._off), self._python).steps()

    def liveness(self, lab: LabHandle, intent: Intent) -> Liveness:
        """Look at the holder's process, its namespaces and the responder."""
        holder = holding.find(lab.token)
        if holder is None:
            return Liveness("absent", "no holder process carries the lab's token")
        wrong = ailment(holder.pid, intent)
        if wrong:
            return Liveness("broken", wrong)
        return Liveness(
            "running", f"holder process {holder.pid}, {len(names_of(intent))} namespaces"
        )

    def destroy(self, lab: LabHandle) -> tuple[str, ...]:
        """End every holder that carries the lab's token, and wait until all has gone.

        Raises
        ------
        DeadlineError
            When one has not gone in time.

        """
        found = tuple(one for one in holders() if one.token == lab.token)
        holding.end(found)
        return tuple(f"process {one.pid} (holder) with its namespaces" for one in found)

    def marks(self) -> tuple[Mark, ...]:
        """Every holder of this user's; root sees everybody's."""
        return tuple(
            Mark(one.lab, one.token, one.directory, f"process {one.pid} (holder)", one.age())
            for one in holders()
        )

    def machine(self, lab: LabHandle, intent: Intent, name: str) -> NetnsMachine:
        """The pod or machine of that name.

        Raises
        ------
        UsageError
            If there is none; names the nearest.
        BrokenError
            If the lab is not up.

        """
        pods = {pod.name for machine in intent.machines for pod in machine.pods}
        known = [*(machine.name for machine in intent.machines), *pods]
        if name not in known:
            raise UsageError(
                f"looking for '{name}' in lab '{lab.name}'",
                "there is no pod or machine of that name",
                _nearest(name, known),
            )
        return NetnsMachine(name, holding.entry(lab), name in pods)

    def probe(
        self,
        lab: LabHandle,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        """Try every probe; ``progress`` is told how many have ended.

        Raises
        ------
        BrokenError
            When the lab's holder is not there.

        """
        del intent
        from lab.providers.netns import prober  # noqa: PLC0415  not on the way of 'lab up' alone

        def inside(tell: Tell) -> Mapping[int, Outcome]:
            capacity.raise_descriptors()
            return prober.probe(namespaces.enter, probes, settings, tell)

        return holding.entry(lab).call(
            f"probing lab '{lab.name}'", inside, _patience(probes, settings), heard=progress
        )

    def evidence(self, lab: LabHandle, intent: Intent) -> Iterator[Evidence]:
        """The holder's state, and the network of every namespace as its own tools show it."""
        from lab.providers.netns.evidence import evidence  # noqa: PLC0415  only where it is asked for

        return evidence(lab, intent)


def _patience(probes: Sequence[Probe], settings: ProbeSettings) -> Deadline:
    """Longer than the probes can take, each exchange with its own timeout: a last resort."""
    exchanges = sum(probe.tries for probe in probes) * _EXCHANGES_A_TRY
    return Deadline(60.0 + exchanges * (settings.timeout / max(1, settings.in_flight) + 0.01))


def _nearest(name: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  only for a wrong name

    near = get_close_matches(name, known, n=1, cutoff=0.4)
    return f"did you mean '{near[0]}'?" if near else f"one of {', '.join(known)}"
