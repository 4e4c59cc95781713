"""All machines of a lab that run an agent, controlled in parallel."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any, Protocol, TypeVar

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError, UsageError
from lab.facts.node import NodeFacts
from lab.machines.agents.control import NodeControl, NodeMachine
from lab.providers.capture import KernelTrace, RouteQuestion, Taken, Tap
from lab.providers.observe import observe_machine
from lab.providers.provider import (
    PROBE_PORT,
    THROUGHPUT_PORT,
    Dialect,
    Evidence,
    Outcome,
    Probe,
    ProbeSettings,
    ProbesInterrupted,
)
from lab.shells.parallel import on_each
from lab.shells.shell import Completed
from lab.topology.intent import Intent
from lab.topology.observed import PodLink

_SILENCE_SECONDS = 60.0
"""Added to two exchanges' timeout; a healthy machine prints something every second."""
_COMPUTING_SECONDS = 0.1
"""Processor seconds per exchange, on an emulated processor."""
_LOOK_SECONDS = 0.5
_IDLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class News:
    """A report from a machine's thread: a number while it works, or its result at the end."""

    machine: str
    number: int = 0
    ended: bool = False
    result: Any = None


def start_thread(
    news: queue.SimpleQueue[News], machine: str, work: Callable[[Callable[[int], None]], Any]
) -> None:
    """Run ``work`` on a new daemon thread; ``news`` gets its reported numbers and its result."""

    def run() -> None:
        try:
            result = work(lambda number: news.put(News(machine, number)))
        except BaseException as error:  # noqa: BLE001  raised again in the waiting thread
            result = error
        news.put(News(machine, ended=True, result=result))

    threading.Thread(target=run, daemon=True).start()


class Prober(Protocol):
    """Sends probes from one machine."""

    def probe(
        self,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
        deadline: Deadline,
    ) -> Mapping[int, Outcome]:
        """Run every probe; ``progress`` is called periodically with the number finished."""


@dataclass(slots=True)
class _Sender:
    probes: Sequence[Probe]
    heard: float
    ended: int = 0


class Campaign:
    """One batch of probes.

    Parameters
    ----------
    probers
        Probers by machine.
    place
        The machine of each source.
    settings
        ``in_flight`` is the total for all machines.
    silence
        Give up on a machine after this many seconds without output; None for two exchanges'
        timeout plus a minute.

    """

    def __init__(
        self,
        probers: Mapping[str, Prober],
        place: Mapping[str, str],
        settings: ProbeSettings,
        silence: float | None = None,
    ) -> None:
        self._probers = probers
        self._place = place
        self._settings = settings
        self._silence = _SILENCE_SECONDS + 2 * settings.timeout if silence is None else silence
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._sending: dict[str, _Sender] = {}
        self._found: dict[int, Outcome] = {}

    def run(self, probes: Sequence[Probe], progress: Callable[[int], None]) -> dict[int, Outcome]:
        """Run every probe; an outcome for every key, in the order of the probes.

        Raises ProbesInterrupted with the outcomes of the machines that have finished.
        """
        try:
            self._run(probes, progress)
        except KeyboardInterrupt as stop:
            raise ProbesInterrupted(self._found) from stop
        return {probe.key: self._found[probe.key] for probe in probes}

    def _run(self, probes: Sequence[Probe], progress: Callable[[int], None]) -> None:
        waiting = deque(self._split(probes).items())
        counts = {name: len(own) for name, own in waiting}
        shares = divide_in_flight(self._settings.in_flight, counts)
        while waiting or self._sending:
            while waiting and len(self._sending) < max(1, self._settings.in_flight):
                name, own = waiting.popleft()
                self._start(name, own, shares[name])
            self._listen()
            self._give_up_the_silent()
            progress(len(self._found) + sum(sender.ended for sender in self._sending.values()))
        progress(len(self._found))

    def _split(self, probes: Sequence[Probe]) -> dict[str, list[Probe]]:
        probes_of: dict[str, list[Probe]] = {}
        for probe in probes:
            machine = self._place.get(probe.source, "")
            if machine in self._probers:
                probes_of.setdefault(machine, []).append(probe)
            else:
                self._fail([probe], f"no machine has '{probe.source}'")
        return probes_of

    def _start(self, name: str, probes: Sequence[Probe], share: int) -> None:
        self._sending[name] = _Sender(probes, monotonic())
        settings, prober = ProbeSettings(self._settings.timeout, share), self._probers[name]
        deadline = Deadline(settings.longest(probes, _COMPUTING_SECONDS))
        start_thread(
            self._news, name, lambda report: prober.probe(probes, settings, report, deadline)
        )

    def _listen(self) -> None:
        try:
            news = self._news.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            return
        sender = self._sending.get(news.machine)
        if sender is None:  # already given up
            return
        sender.heard = monotonic()
        sender.ended = max(sender.ended, min(news.number, len(sender.probes)))
        if not news.ended:
            return
        del self._sending[news.machine]
        if isinstance(news.result, LabError):
            self._fail(sender.probes, f"{news.result.doing}: {news.result.happened}")
        elif isinstance(news.result, BaseException):
            raise news.result
        else:
            self._found.update(news.result)

    def _give_up_the_silent(self) -> None:
        now = monotonic()
        for name, sender in list(self._sending.items()):
            if now - sender.heard > self._silence:
                del self._sending[name]
                self._fail(
                    sender.probes, f"no output from machine '{name}' for {self._silence:g} s"
                )

    def _fail(self, probes: Iterable[Probe], why: str) -> None:
        for probe in probes:
            self._found[probe.key] = Outcome.failed(probe.key, "error", f"cannot probe: {why}")


def divide_in_flight(in_flight: int, counts: Mapping[str, int]) -> dict[str, int]:
    """Divide ``in_flight`` among machines in proportion to ``counts``; each gets at least one.

    The sum is at most ``in_flight``, unless there are more machines than that: then each gets
    one, and at most ``in_flight`` machines may send at once.
    """
    total = sum(counts.values())
    shares = {name: max(1, in_flight * count // total) for name, count in counts.items()}
    for _ in range(sum(shares.values()) - in_flight):
        largest = max(shares, key=lambda name: shares[name])
        shares[largest] = max(1, shares[largest] - 1)
    return shares


def with_dialects(intent: Intent, probes: Sequence[Probe]) -> list[Probe]:
    """The probes, each with the dialect of its target.

    On Linux nodes and the client the lab's responder answers; on Windows nodes and in pods, hence
    behind Services and NodePorts, agnhost's netexec; health checks kube-proxy; the API servers
    behind a services node answer with TLS.
    """
    ours = {
        address.partition("/")[0]
        for machine in intent.machines
        if machine.os == "linux"
        for card in machine.interfaces
        for address in card.addresses
    }
    front = intent.services_node
    api = (front.address, front.api_port) if front else None

    def dialect(probe: Probe) -> Dialect:
        if probe.name is not None or probe.dialect in {"health", "throughput"}:
            return probe.dialect
        if (probe.address, probe.port) == api:
            return "tls"
        return probe.dialect if probe.port == PROBE_PORT and probe.address in ours else "netexec"

    return [replace(probe, dialect=dialect(probe)) for probe in probes]


def with_names(outcome: Outcome, holders: Mapping[str, str]) -> Outcome:
    """The outcome with certificate fingerprints replaced by the names of their ``holders``."""
    names = tuple(holders.get(backend, backend) for backend in outcome.backends)
    return outcome if names == outcome.backends else replace(outcome, backends=names)


_RECEIVER_SECONDS = 5.0
"""Added per stream to its exchange's timeout."""
T = TypeVar("T")


class Fleet:
    """The machines of one lab.

    Parameters
    ----------
    controls
        Controls by machine. A machine of the Intent without one is skipped; its probes end as
        errors.
    cluster
        True if the pods are real Kubernetes pods; then the controls have their token.
    others
        Probers for machines without an agent: Windows nodes of a cluster.

    """

    def __init__(
        self,
        controls: Mapping[str, NodeControl],
        *,
        cluster: bool = False,
        others: Mapping[str, Prober] | None = None,
    ) -> None:
        self._controls = dict(controls)
        self._cluster = cluster
        self._others = dict(others or {})

    def up_all(self, intent: Intent, deadline: Deadline) -> None:
        """Create every machine's network in parallel.

        Raises LabError as :func:`~lab.shells.parallel.on_each`.
        """

        def up(name: str) -> None:
            self._controls[name].up(intent.machine(name), intent, deadline)

        on_each(self._controls, up)

    def ailments(self, intent: Intent, deadline: Deadline) -> dict[str, str]:
        """What is wrong, by machine; only broken and unreachable machines."""

        def look(name: str) -> str:
            return self._controls[name].ailment(intent.machine(name), intent, deadline)

        answers = _parallel(self._controls, look)
        texts = {
            name: str(answer.happened) if isinstance(answer, LabError) else answer
            for name, answer in answers.items()
        }
        return {name: text for name, text in texts.items() if text}

    def probe_all(
        self,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        """Run every probe from its source's machine.

        ``progress`` is called on this thread with the number finished. Every key has an outcome:
        for a machine that is unreachable or stops responding, an error with the reason.
        """
        place = {name: machine.name for name, (machine, _) in intent.places().items()}
        in_dialects = with_dialects(intent, probes) if self._cluster else probes
        probers: dict[str, Prober] = {**self._controls, **self._others}
        campaign = Campaign(probers, place, settings)
        if self._cluster and any(dialect.dialect == "throughput" for dialect in in_dialects):
            return self._stream_all(
                intent, in_dialects, settings, partial(campaign.run, progress=progress)
            )
        return campaign.run(in_dialects, progress)

    def _stream_all(
        self,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        run: Callable[[Sequence[Probe]], Mapping[int, Outcome]],
    ) -> Mapping[int, Outcome]:
        """Run every probe while the agents receive the streams in their target pods."""
        streams = {probe.address for probe in probes if probe.dialect == "throughput"}
        listeners = {
            machine.name: [
                pod.name for pod in machine.pods if pod.address.partition("/")[0] in streams
            ]
            for machine in intent.machines
            if machine.name in self._controls
        }
        in_dialects = [
            replace(probe, port=THROUGHPUT_PORT) if probe.dialect == "throughput" else probe
            for probe in probes
        ]
        outcomes: dict[int, Outcome] = {}
        deadline = Deadline(settings.longest(probes, _RECEIVER_SECONDS))

        def receive(name: str, ready: Callable[[int], None]) -> None:
            self._controls[name].receive(listeners[name], ready, deadline)

        try:
            receiving = [name for name, pods in listeners.items() if pods]
            self._run_alongside(
                receiving, receive, lambda: outcomes.update(run(in_dialects)), deadline
            )
        except LabError as error:
            why = f"cannot receive: {error.doing}: {error.happened}"
            missing = (probe.key for probe in probes if probe.key not in outcomes)
            outcomes |= {key: Outcome.failed(key, "error", why) for key in missing}
        return outcomes

    def capture(
        self,
        intent: Intent,
        taps: Sequence[Tap],
        limit: int,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[Taken, ...]:
        """Capture packets while ``during`` runs; see :class:`~lab.providers.capture.Capturing`.

        Times are by each machine's own clock. If a machine cannot capture, only its own taps have
        trouble.
        """
        place = self._places(intent)
        shares: dict[str, list[Tap]] = {}
        for tap in taps:
            if tap.place in place:
                shares.setdefault(place[tap.place], []).append(tap)

        def listen(name: str, ready: Callable[[int], None]) -> tuple[Taken, ...]:
            try:
                return self._controls[name].listen(shares[name], limit, ready, deadline)
            except LabError as error:
                trouble = f"{error.doing}: {error.happened}"
                return tuple(Taken(tap, (), trouble=trouble, blind=True) for tap in shares[name])

        taken = self._run_alongside(shares, listen, during, deadline)
        heard = {batch.tap: batch for own in taken.values() for batch in own}
        nobody = "no agent of the lab runs there"
        return tuple(heard.get(tap) or Taken(tap, (), trouble=nobody, blind=True) for tap in taps)

    def stream_packets(
        self, intent: Intent, tap: Tap, heard: Callable[[Taken], None], deadline: Deadline
    ) -> None:
        """Capture packets as they come; see :class:`~lab.providers.capture.Capturing`."""
        machine = self._places(intent).get(tap.place, "")
        if machine not in self._controls:
            heard(Taken(tap, (), trouble="no agent of the lab runs there", blind=True))
            return
        self._controls[machine].stream_packets(tap, heard, deadline)

    def trace(
        self,
        intent: Intent,
        places: Mapping[str, Sequence[RouteQuestion]],
        table: str,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[KernelTrace, ...]:
        """Trace packets in places while ``during`` runs; a machine that cannot is left out.

        ``table``: see :class:`~lab.providers.capture.TracedFlow`.
        """
        place = self._places(intent)
        shares: dict[str, dict[str, Sequence[RouteQuestion]]] = {}
        for name, questions in places.items():
            if name in place:
                shares.setdefault(place[name], {})[name] = questions

        def trace(name: str, ready: Callable[[int], None]) -> tuple[KernelTrace, ...]:
            try:
                return self._controls[name].trace(shares[name], table, ready, deadline)
            except LabError:
                return ()

        traces = self._run_alongside(shares, trace, during, deadline)
        return tuple(packet_trace for own in traces.values() for packet_trace in own)

    def _run_alongside(
        self,
        machines: Collection[str],
        work: Callable[[str, Callable[[int], None]], T],
        during: Callable[[], None],
        deadline: Deadline,
    ) -> dict[str, T]:
        """Start a work on machines, call ``during`` once all are ready, then stop them.

        A work is ready when it has reported its agent's process id. Returns each work's result.
        Raises whatever a work raises, and DeadlineError.
        """
        news: queue.SimpleQueue[News] = queue.SimpleQueue()
        processes: dict[str, int] = {}
        results: dict[str, T] = {}

        def wait(event: str, *known: Mapping[str, object]) -> None:
            while left := [
                name for name in machines if not any(name in mapping for mapping in known)
            ]:
                try:
                    report = news.get(timeout=max(deadline.left(), 0.001))
                except queue.Empty:
                    late = f"not done within {deadline.seconds:g} s; still waiting for: "
                    raise DeadlineError(f"waiting {event}", late + ", ".join(left)) from None
                if isinstance(report.result, BaseException):
                    raise report.result
                if report.ended:
                    results[report.machine] = report.result
                else:
                    processes[report.machine] = report.number

        for name in machines:
            start_thread(news, name, partial(work, name))
        try:
            wait("for the machines to get ready", processes, results)
            during()
        finally:
            for name, process in processes.items():
                if name not in results:
                    self._controls[name].stop(process, deadline)
        wait("for the machines' results", results)
        return results

    def links(self, deadline: Deadline) -> tuple[PodLink, ...]:
        """The network links of the Kubernetes pods, on every machine that answers in time."""
        listings = _parallel(self._controls, lambda name: self._controls[name].links(deadline))
        return tuple(
            link
            for listing in listings.values()
            if not isinstance(listing, LabError)
            for link in listing
        )

    def observe(
        self, intent: Intent, places: Mapping[str, Collection[str]], deadline: Deadline
    ) -> Mapping[str, NodeFacts | LabError]:
        """Observe the machines in ``places`` in parallel, and the pods named for each.

        Kubernetes pods are always observed together with their machine.
        """

        def observe_one(name: str) -> NodeFacts | LabError:
            pods = () if self._cluster else places[name]
            return observe_machine(
                name, pods, lambda machine: self.machine(intent, machine), deadline
            )

        return _parallel(places, observe_one)

    def run_everywhere(
        self, intent: Intent, machines: Collection[str], command: Sequence[str], deadline: Deadline
    ) -> Mapping[str, str | LabError]:
        """Run a command on machines and in all their pods, in parallel; its output by place.

        A machine on which that fails has its error, and so have its pods.
        """

        def run(name: str) -> Mapping[str, Completed]:
            control, pods = self._controls[name], [pod.name for pod in intent.machine(name).pods]
            answers = {name: control.machine(name).run(command, deadline)}
            if pods:
                answers |= control.run_in_pods([] if self._cluster else pods, command, deadline)
            return answers

        answers: dict[str, str | LabError] = {}
        own = [name for name in machines if name in self._controls]
        for name, answer in _parallel(own, run).items():
            if isinstance(answer, LabError):
                pods = (pod.name for pod in intent.machine(name).pods)
                answers |= dict.fromkeys((name, *pods), answer)
            else:
                answers |= {place: done.stdout for place, done in answer.items()}
        return answers

    def evidence(self, deadline: Deadline) -> Iterator[Evidence]:
        """Evidence of the network of every machine. Never raises."""

        def gather(name: str) -> list[Evidence]:
            return list(self._controls[name].evidence(deadline))

        for _, pieces in as_ended(self._controls, gather):  # do not wait for slower machines
            if not isinstance(pieces, LabError):  # never: evidence() itself reports errors
                yield from pieces

    def machine(self, intent: Intent, name: str) -> NodeMachine:
        """The machine or pod of that name.

        Raises UsageError if there is none that this fleet has.
        """
        place = self._places(intent)
        if name not in place:
            raise UsageError(f"looking for '{name}'", "there is no pod or machine of that name")
        return self._controls[place[name]].machine(name)

    def _places(self, intent: Intent) -> dict[str, str]:
        """The machine of each of this fleet's machines and pods."""
        places = intent.places().items()
        return {
            name: machine.name for name, (machine, _) in places if machine.name in self._controls
        }


def _parallel(names: Collection[str], work: Callable[[str], T]) -> dict[str, T | LabError]:
    """Run ``work`` for each name in parallel; its result or LabError, in the order of names."""
    answers = dict(as_ended(names, work))
    return {name: answers[name] for name in names}


def as_ended(
    names: Collection[str], work: Callable[[str], T], idle: Callable[[], None] = lambda: None
) -> Iterator[tuple[str, T | LabError]]:
    """Run ``work`` for each name on its own thread; yield each result or LabError as it arrives.

    ``idle`` is called every second until then.
    """
    news: queue.SimpleQueue[News] = queue.SimpleQueue()
    for name in names:
        start_thread(news, name, lambda _, name=name: work(name))  # type: ignore[misc]
    left = len(names)
    while left:
        try:
            report = news.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            idle()
            continue
        left -= 1
        if isinstance(report.result, BaseException) and not isinstance(report.result, LabError):
            raise report.result
        yield report.machine, report.result
