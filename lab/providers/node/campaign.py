"""Send probes and capture packets on many machines at once, each with its own agent."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Protocol

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError
from lab.providers.capture import Taken, Tap
from lab.providers.node.control import NodeControl
from lab.providers.provider import Outcome, Probe, ProbeSettings

_SILENCE_SECONDS = 60.0
"""Added to two exchanges' timeout; a healthy machine prints something every second."""
_COMPUTING_SECONDS = 0.1
"""Processor seconds per exchange, on an emulated processor."""
_LOOK_SECONDS = 0.5


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
        """Run every probe; an outcome for every key, in the order of the probes."""
        waiting = deque(self._split(probes).items())
        counts = {name: len(own) for name, own in waiting}
        shares = divide_in_flight(self._settings.in_flight, counts)
        while waiting or self._sending:
            while waiting and len(self._sending) < max(1, self._settings.in_flight):
                name, own = waiting.popleft()
                self._start(name, own, shares[name])
            self._listen()
            self._give_up_the_silent()
            progress(len(self._found) + sum(one.ended for one in self._sending.values()))
        progress(len(self._found))
        return {probe.key: self._found[probe.key] for probe in probes}

    def _split(self, probes: Sequence[Probe]) -> dict[str, list[Probe]]:
        found: dict[str, list[Probe]] = {}
        for probe in probes:
            machine = self._place.get(probe.source, "")
            if machine in self._probers:
                found.setdefault(machine, []).append(probe)
            else:
                self._fail([probe], f"no machine has '{probe.source}'")
        return found

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
            self._found[probe.key] = Outcome(
                probe.key, "error", f"cannot probe: {why}", None, (), None, 0.0
            )


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


def capture(  # noqa: PLR0913, PLR0917  each differs from call to call
    controls: Mapping[str, NodeControl],
    place: Mapping[str, str],
    taps: Sequence[Tap],
    limit: int,
    during: Callable[[], None],
    deadline: Deadline,
) -> tuple[Taken, ...]:
    """Capture packets while ``during`` runs; results in the order of the taps.

    ``place`` maps each pod and machine to its machine; ``limit`` is bytes kept per tap. If a
    machine cannot capture, only its own taps have trouble.

    Raises
    ------
    DeadlineError
        When a machine does not finish in time; its agent ends at its own deadline.

    """
    shares: dict[str, list[Tap]] = {}
    for tap in taps:
        if (machine := place.get(tap.place, "")) in controls:
            shares.setdefault(machine, []).append(tap)
    works = {
        name: partial(_listen, controls[name], own, limit, deadline) for name, own in shares.items()
    }
    found: Mapping[str, tuple[Taken, ...]] = _meanwhile(controls, works, during, deadline)
    heard = {one.tap: one for own in found.values() for one in own}
    nobody = "no agent of the lab runs there"
    return tuple(heard.get(tap) or Taken(tap, (), trouble=nobody) for tap in taps)


def receive(
    controls: Mapping[str, NodeControl],
    pods: Mapping[str, Sequence[str]],
    during: Callable[[], None],
    deadline: Deadline,
) -> None:
    """Receive streams in ``pods``, listed by machine, while ``during`` runs.

    Raises
    ------
    LabError
        When a machine fails, or does not finish in time.

    """
    works = {
        name: lambda ready, name=name, own=own: controls[name].receive(own, ready, deadline)
        for name, own in pods.items()
    }
    _meanwhile(controls, works, during, deadline)


def _meanwhile(
    controls: Mapping[str, NodeControl],
    works: Mapping[str, Callable[[Callable[[int], None]], Any]],
    during: Callable[[], None],
    deadline: Deadline,
) -> dict[str, Any]:
    """Start all works, call ``during`` once every work has reported its process id, then stop them.

    Returns each work's result, by machine. Raises whatever a work raises, and DeadlineError.
    """
    news: queue.SimpleQueue[News] = queue.SimpleQueue()
    processes: dict[str, int] = {}
    found: dict[str, Any] = {}

    def wait(what: str, *known: Mapping[str, object]) -> None:
        while left := [name for name in works if not any(name in one for one in known)]:
            one = _next_news(news, what, left, deadline)
            if one.ended:
                found[one.machine] = one.result
            else:
                processes[one.machine] = one.number

    for name, work in works.items():
        start_thread(news, name, work)
    try:
        wait("for the machines to get ready", processes, found)
        during()
    finally:
        for name, process in processes.items():
            if name not in found:
                controls[name].stop(process, deadline)
    wait("for the machines' results", found)
    return found


def _listen(
    control: NodeControl,
    taps: Sequence[Tap],
    limit: int,
    deadline: Deadline,
    ready: Callable[[int], None],
) -> tuple[Taken, ...]:
    try:
        return control.listen(taps, limit, ready, deadline)
    except LabError as error:
        trouble = f"{error.doing}: {error.happened}"
        return tuple(Taken(tap, (), trouble=trouble) for tap in taps)


def _next_news(
    news: queue.SimpleQueue[News], what: str, left: Sequence[str], deadline: Deadline
) -> News:
    try:
        one = news.get(timeout=max(deadline.left(), 0.001))
    except queue.Empty:
        raise DeadlineError(
            f"waiting {what}",
            f"not done within {deadline.seconds:g} s; still waiting for: {', '.join(left)}",
        ) from None
    if isinstance(one.result, BaseException):
        raise one.result
    return one
