"""The embedded provider: a lab's machines are network namespaces on this machine.

Every object of a lab depends on one holder process. Nothing is stored anywhere else, so finding
and removing a lab means finding the processes in /proc that carry its token.

The kernel handles hundreds of probes at once. Open vSwitch in user space has one thread per node,
which also learns each new connection: with more than some tens of probes in flight its port
buffers overflow, and the losses say nothing about the lab (measured on 2 cores with 2,300 probes:
256 at once, 481 had to be retried; 32 at once, 9, all of them UDP sent beside TCP; UDP and TCP
separately, none).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lab._deadline import Deadline
from lab._errors import LabError, PreflightError, UsageError, did_you_mean
from lab._log import listed, quantity
from lab.plan.step import Step
from lab.providers.failover import Beat, BeatPace, Silence
from lab.providers.netns import daemons, holders, isolation, namespaces
from lab.providers.netns.child_calls import Tell
from lab.providers.netns.machine import NetnsMachine, gather_evidence
from lab.providers.netns.marks import BANNER
from lab.providers.netns.windows import RULES, realise
from lab.providers.provider import (
    CAPTURE,
    FAILOVER,
    KERNEL_TRACE,
    ON_CLUSTER,
    Diagnosis,
    Evidence,
    LabHandle,
    Liveness,
    Mark,
    Outcome,
    Probe,
    ProbeSettings,
    ProbesInterrupted,
    Provider,
)
from lab.providers.setup import ProviderSetup
from lab.scenario.terms import Protocol, Size
from lab.topology.intent import Intent

if TYPE_CHECKING:
    from lab.facts.difference import Difference
    from lab.facts.node import NodeFacts  # large, and few commands observe
    from lab.providers.capture import KernelTrace, RouteQuestion, Taken, Tap, TracedFlow
    from lab.providers.netns.bring_up import NetnsBringUp

_PACED_MTU = 1500
_PACES: Mapping[tuple[Protocol, Size | None], tuple[int, int]] = {
    ("udp", "small"): (32, 2),
    ("udp", "large"): (12, 2),
    ("tcp", None): (12, 4),
}
"""By protocol and size (None for any): probes in flight, and the factor for the timeout. A large
TCP probe is a burst by itself and retransmits losses. A large UDP probe is three packets of up to
1,500 bytes; about 90 such packets would fill a port's buffer (212,992 bytes, 2.3 KiB per packet,
calculated) while the switch's thread is not scheduled; with larger packets, fewer of them."""


def batches(
    intent: Intent, probes: Sequence[Probe], settings: ProbeSettings
) -> Iterator[tuple[Sequence[Probe], ProbeSettings]]:
    """Split probes into batches to send one after another, each with its own settings.

    UDP is sent separately: TCP retransmits what its bursts make a port drop, UDP does not.
    Probes that expect no answer put no load on a switch and go together, with ``settings``.
    """
    if intent.logical is None:
        yield probes, settings
        return
    larger = max(_PACED_MTU, intent.node_mtu)
    for (protocol, size), (at_once, patience) in _PACES.items():
        own = [
            probe
            for probe in probes
            if probe.protocol == protocol and size in {None, probe.size} and not probe.unanswered
        ]
        if own:
            fitting = max(1, at_once * _PACED_MTU // larger) if size == "large" else at_once
            pace = min(fitting, settings.in_flight)
            yield own, ProbeSettings(settings.timeout * patience, pace)
    unanswered = [probe for probe in probes if probe.unanswered]
    if unanswered:
        yield unanswered, settings


_COMPUTING_SECONDS = 0.01


class NetnsProvider(Provider):
    """Network namespaces on this machine, for root and for unprivileged users.

    Parameters
    ----------
    windows_rules_off
        Ids of Windows rules that the emulated Windows nodes do not obey.
    python
        The interpreter that runs the holder and the responder.

    Raises UsageError if an id is unknown.
    """

    name = "netns"
    abilities = frozenset({CAPTURE, FAILOVER, KERNEL_TRACE})

    def __init__(
        self, windows_rules_off: frozenset[str] = frozenset(), python: str = sys.executable
    ) -> None:
        strange = sorted(windows_rules_off.difference(RULES))
        if strange:
            raise UsageError(
                f"switching off the Windows rule '{strange[0]}'",
                "there is no such rule",
                f"one of {', '.join(RULES)}",
            )
        self._off = windows_rules_off
        self._python = python

    def banner(self, intent: Intent | None) -> str:
        """One sentence: which provider, what is emulated, and what links do."""
        parts, plural = _list_emulated(intent) if intent else ([], False)
        words = BANNER
        links = f"; {clause}" if intent and (clause := self.disclaimer(intent)) else ""
        if not parts:
            return f"{words}{links}"
        listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
        words += f"; {listed} {'are' if plural else 'is'} emulated"
        windows = any(machine.os == "windows" for machine in intent.machines) if intent else False
        if self._off and windows:
            words += f", without rule {', '.join(sorted(self._off))}"
        return f"{words}{links}"

    def labs_at_once(self, intents: Sequence[Intent]) -> int:
        """Limited by the processors; memory is rarely the limit."""
        from lab.providers.netns import preflight  # noqa: PLC0415  imported only when used

        del intents
        return preflight.labs_at_once()

    def examine(self, state: Path) -> tuple[Diagnosis, ...]:
        """Check this machine's kernel and programs."""
        del state
        from lab.providers.netns import preflight  # noqa: PLC0415  used only by 'lab doctor'

        return preflight.try_abilities(tunnels=True, switches=True)

    def preflight(self, lab: LabHandle, intent: Intent) -> None:
        """Try what the intent needs of the kernel in scratch namespaces, and check the capacity.

        Raises PreflightError: names everything that is missing and its fix. Nothing has been
        created.
        """
        from lab.providers.netns import preflight  # noqa: PLC0415  imported only when used

        del lab
        if why := self.unfit(intent):
            raise PreflightError(f"checking scenario '{intent.scenario}'", why, ON_CLUSTER)
        preflight.require_programs(intent)
        tunnels = any(machine.tunnel for machine in intent.everything())
        switches = any(machine.chassis for machine in intent.everything())
        diagnoses = preflight.try_abilities(tunnels=tunnels, switches=switches)
        diagnoses += preflight.try_links(intent)
        missing = [diagnosis for diagnosis in diagnoses if diagnosis.level != "ok"]
        if missing:
            raise PreflightError(
                f"checking this machine for scenario '{intent.scenario}'",
                "; ".join(f"no {diagnosis.check}, {diagnosis.seen}" for diagnosis in missing),
                "\n       ".join(dict.fromkeys(diagnosis.hint for diagnosis in missing)),
            )
        preflight.check_capacity(preflight.lab_need(intent), preflight.machine_room())

    def steps(self, lab: LabHandle, intent: Intent) -> tuple[Step, ...]:
        """The steps that bring the lab up, in order."""
        return self._bring_up(lab, intent).steps()

    def _bring_up(self, lab: LabHandle, intent: Intent) -> NetnsBringUp:
        from lab.providers.netns.bring_up import NetnsBringUp  # noqa: PLC0415  imported only when used

        return NetnsBringUp(lab, self.realised(intent), self._python)

    def realised(self, intent: Intent) -> Intent:
        """The intent with the Windows rules applied to its emulated Windows nodes. Pure."""
        return realise(intent, self._off)

    def liveness(self, lab: LabHandle, intent: Intent) -> Liveness:
        """Check the holder's process, its namespaces and the responder."""
        holder = holders.find_holder(lab)
        if holder is None:
            return Liveness("absent", "no holder process carries the lab's token")
        wrong = daemons.find_ailment(holder.pid, intent)
        if wrong:
            return Liveness("broken", wrong)
        count = len(namespaces.namespace_names(intent))
        return Liveness("running", f"holder process {holder.pid}, {count} namespaces")

    def destroy(self, lab: LabHandle, *, owner: str = "") -> tuple[str, ...]:
        """Kill the owner's holders with the lab's token, and wait until all have exited.

        Raises DeadlineError when a holder does not exit in time.
        """
        ended = holders.destroy_holders(lab, owner)
        return tuple(f"process {holder.pid} (holder) with its namespaces" for holder in ended)

    def marks(self, *, all_users: bool = False) -> tuple[Mark, ...]:
        """A mark for each of the caller's holders; for root with ``all_users``, everybody's."""
        return holders.list_marks(all_users=all_users)

    def machine(self, lab: LabHandle, intent: Intent, name: str) -> NetnsMachine:
        """The pod or machine of that name.

        Raises UsageError if there is none; suggests the closest name. Raises BrokenError if the lab
        is not up.
        """
        pods = {pod.name for machine in intent.machines for pod in machine.pods}
        known = [*(machine.name for machine in intent.everything()), *pods]
        if name not in known:
            raise UsageError(
                f"looking for '{name}' in lab '{lab.name}'",
                "there is no pod or machine of that name",
                f"{did_you_mean(name, known, 0.4)} there are {listed(known)}".strip(),
            )
        return NetnsMachine(name, holders.enter_holder(lab), name in pods)

    def probe(
        self,
        lab: LabHandle,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        """Run every probe; ``progress`` gets the number that have finished.

        Raises BrokenError when the lab's holder is not running. Raises ProbesInterrupted.
        """
        from lab.providers.netns import prober  # noqa: PLC0415  not needed by 'lab up'

        paced = tuple(batches(intent, probes, settings))
        holder = holders.enter_holder(lab)
        attended = daemons.responder_is_alive(holder.pid)

        outcomes: dict[int, Outcome] = {}

        def inside(tell: Tell) -> None:
            isolation.raise_descriptors()
            pulse = None
            if attended:
                with suppress(OSError):  # it has ended since, or is one of an older version
                    pulse = prober.Pulse(isolation.PULSE_SOCKET)
            for batch, pace in paced:
                prober.probe(namespaces.enter, batch, pace, tell, pulse=pulse)

        def heard(fresh: Sequence[Outcome]) -> None:
            outcomes.update({outcome.key: outcome for outcome in fresh})
            progress(len(outcomes))

        longest = sum(pace.longest(batch, _COMPUTING_SECONDS) for batch, pace in paced)
        try:
            holder.call(
                f"probing lab '{lab.name}'",
                inside,
                Deadline(longest),
                told=list[Outcome],
                heard=heard,
            )
        except KeyboardInterrupt as stop:
            raise ProbesInterrupted(outcomes) from stop
        return outcomes

    def observe(
        self,
        lab: LabHandle,
        intent: Intent,
        places: Mapping[str, Collection[str]],
        deadline: Deadline,
    ) -> Mapping[str, NodeFacts | LabError]:
        """Observe the machines in ``places``, and the pods named for each.

        Raises BrokenError if the lab is not up.
        """
        from lab.providers.observe import observe_machine  # noqa: PLC0415  imported only when used

        holders.enter_holder(lab)
        return {
            name: observe_machine(
                name,
                pods,
                lambda machine_name: self.machine(lab, intent, machine_name),
                deadline,
                namespace=True,
            )
            for name, pods in places.items()
        }

    def deviations(
        self, lab: LabHandle, intent: Intent, places: Sequence[str], deadline: Deadline
    ) -> Mapping[str, tuple[Difference, ...] | LabError]:
        """Create the namespaces a second time, separately, and compare the lab's with them."""
        try:
            return self._bring_up(lab, intent).deviations(places, deadline)
        except OSError as error:
            action = f"making the namespaces of lab '{lab.name}' again"
            raise holders.refused_namespaces(action, error) from error

    def capture(  # noqa: PLR0913, PLR0917  the interface's signature
        self,
        lab: LabHandle,
        intent: Intent,
        taps: Sequence[Tap],
        limit: int,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[Taken, ...]:
        """Capture all packets at the taps while ``during`` runs.

        Raises BrokenError if the lab is not up. Raises DeadlineError when the capture does not
        finish in time.
        """
        from lab.providers.capture import Taken  # noqa: PLC0415  imported only when used
        from lab.providers.netns import capture  # noqa: PLC0415  the same

        del intent
        with capture.Stop() as stop:
            taken = holders.enter_holder(lab).call(
                f"capturing packets in lab '{lab.name}'",
                lambda tell: capture.take_packets(namespaces.enter, taps, limit, tell, stop.reader),
                deadline,
                answer=list[Taken],
                told=str,
                heard=lambda _: stop.after(during),
            )
        return tuple(taken)

    def stream_packets(
        self,
        lab: LabHandle,
        intent: Intent,
        tap: Tap,
        heard: Callable[[Taken], None],
        deadline: Deadline,
    ) -> None:
        """Capture all packets at a tap, as they come; see :class:`Capturing`."""
        from lab.providers.capture import Taken  # noqa: PLC0415  imported only when used
        from lab.providers.netns import capture  # noqa: PLC0415  the same

        del intent
        holders.enter_holder(lab).call(
            f"capturing packets in lab '{lab.name}'",
            lambda tell: capture.stream_packets(namespaces.enter, tap, tell),
            deadline,
            told=Taken,
            heard=heard,
        )

    def trace_kernel(  # noqa: PLR0913, PLR0917  the interface's signature
        self,
        lab: LabHandle,
        intent: Intent,
        places: Mapping[str, Sequence[RouteQuestion]],
        flow: TracedFlow,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[KernelTrace, ...]:
        """Trace packets in each of ``places`` while ``during`` runs, then query routes.

        Raises BrokenError if the lab is not up. Raises DeadlineError when the trace does not finish
        in time.
        """
        from lab.providers.capture import KernelTrace  # noqa: PLC0415  imported only when used
        from lab.providers.netns import capture  # noqa: PLC0415  the same

        del intent
        with capture.Stop() as stop:
            answers = holders.enter_holder(lab).call(
                f"tracing packets in lab '{lab.name}'",
                lambda tell: capture.trace_apart(
                    namespaces.enter, places, flow.table, tell, stop.reader
                ),
                deadline,
                answer=list[KernelTrace],
                told=str,
                heard=lambda _: stop.after(during),
                apart=True,
            )
        return tuple(answers)

    def gateway_holders(self, lab: LabHandle, intent: Intent) -> Mapping[str, Sequence[str]]:
        """The machines that hold each node's virtual gateway now, by node."""
        from lab.providers.netns import failover  # noqa: PLC0415  imported only when used

        return failover.gateway_holders(holders.enter_holder(lab), intent)

    def cut_off(self, lab: LabHandle, intent: Intent, machine: str) -> None:
        """Unplug every cable of the machine."""
        from lab.providers.netns import failover  # noqa: PLC0415  imported only when used

        failover.plug(holders.enter_holder(lab), intent, machine, plugged=False)

    def reconnect(self, lab: LabHandle, intent: Intent, machine: str) -> None:
        """Plug in every cable of the machine."""
        from lab.providers.netns import failover  # noqa: PLC0415  imported only when used

        failover.plug(holders.enter_holder(lab), intent, machine, plugged=True)

    def pulse(
        self, lab: LabHandle, beats: Sequence[Beat], change: Callable[[], None], pace: BeatPace
    ) -> tuple[Silence, ...]:
        """Send datagrams at a fixed interval; call ``change`` once all are answered."""
        from lab.providers.netns import failover  # noqa: PLC0415  imported only when used

        return holders.enter_holder(lab).call(
            f"measuring in lab '{lab.name}'",
            lambda tell: failover.measure_silences(namespaces.enter, beats, pace, tell),
            Deadline(3 * pace.patience),
            answer=tuple[Silence, ...],
            told=str,
            heard=lambda _: change(),
        )

    def logs(
        self, lab: LabHandle, intent: Intent, names: Collection[str], deadline: Deadline
    ) -> Iterator[Evidence]:
        """The logs of the daemons on the machines in ``names``."""
        del deadline  # the files are local and in memory
        with suppress(LabError, OSError):
            holder = holders.find_holder(lab)
            if holder is not None:
                for path, content in daemons.daemon_logs(holder.pid, intent, names):
                    yield Evidence(path, content)

    def evidence(self, lab: LabHandle, intent: Intent) -> Iterator[Evidence]:
        """The holder's state, and the network state of every namespace."""
        return gather_evidence(lab, intent)


def _list_emulated(intent: Intent) -> tuple[list[str], bool]:
    """Phrases for the emulated parts, and whether the verb is plural."""
    windows = [machine.name for machine in intent.machines if machine.os == "windows"]
    parts: list[str] = []
    if intent.hypervisors:
        parts.append(quantity(len(intent.hypervisors), "hypervisor"))
    if intent.services_node:
        parts.append("the server behind the API address")
    if windows:
        parts.append(f"Windows {'node' if len(windows) == 1 else 'nodes'} {', '.join(windows)}")
    return parts, len(parts) > 1 or len(windows) > 1 or len(intent.hypervisors) > 1


def make(setup: ProviderSetup) -> Provider:
    """Make the provider; it needs no inventory."""
    return NetnsProvider(setup.windows_rules_off)
