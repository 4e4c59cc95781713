"""One batch of probes sent from many machines, and what came of them put together."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from lab._deadline import Deadline
from lab._errors import LabError
from lab.providers.provider import Outcome, Probe, ProbeSettings


def divide(in_flight: int, counts: Mapping[str, int]) -> dict[str, int]:
    """How many each machine may have under way, by how many it has to send; at least one.

    The sum is at most ``in_flight``, unless there are more machines than that: then each has
    one, and no more than ``in_flight`` machines may send at once.
    """
    total = sum(counts.values())
    if not total:
        return {}
    shares = {name: max(1, in_flight * count // total) for name, count in counts.items()}
    over = sum(shares.values()) - in_flight
    while over > 0:
        largest = max(shares, key=lambda name: shares[name])
        if shares[largest] == 1:
            break
        shares[largest] -= 1
        over -= 1
    return shares


_SILENCE_SECONDS = 60.0
"""A machine that is well says something every second; on top of what two exchanges may take."""
_EXCHANGES_A_TRY = 8
"""A DNS question is asked with up to four search domains, and may be repeated."""
_SECONDS_AN_EXCHANGE = 0.1
"""Of computing, on an emulated processor and with room to spare."""
_LOOK_SECONDS = 0.5


class Prober(Protocol):
    """What sends probes from one machine."""

    def probe(
        self,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
        deadline: Deadline,
    ) -> Mapping[int, Outcome]:
        """Try every probe; ``progress`` is told now and then how many have ended."""


@dataclass(frozen=True, slots=True)
class _News:
    """What a machine's thread tells the one that waits."""

    machine: str
    ended: int = 0
    result: Mapping[int, Outcome] | BaseException | None = None


@dataclass(slots=True)
class _Sender:
    """A machine that is sending."""

    probes: Sequence[Probe]
    heard: float
    """When it last said something, by the monotonic clock."""
    ended: int = 0


class Campaign:
    """One batch.

    Parameters
    ----------
    probers
        By machine.
    place
        The machine where each source stands.
    settings
        ``in_flight`` is for all machines together.
    silence
        Seconds after which a machine that has said nothing is given up; None for as long as
        two exchanges may take and a minute more.

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
        self._news: queue.SimpleQueue[_News] = queue.SimpleQueue()
        self._sending: dict[str, _Sender] = {}
        self._found: dict[int, Outcome] = {}

    def run(self, probes: Sequence[Probe], progress: Callable[[int], None]) -> dict[int, Outcome]:
        """Try every probe; an outcome for every key, in the order of the probes."""
        waiting = deque(self._split(probes).items())
        shares = divide(self._settings.in_flight, {name: len(own) for name, own in waiting})
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
        """The probes by machine; those that no machine can send have failed already."""
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
        settings = ProbeSettings(self._settings.timeout, share)
        news = self._news

        def send() -> None:
            result: Mapping[int, Outcome] | BaseException
            try:
                result = self._probers[name].probe(
                    probes,
                    settings,
                    lambda ended: news.put(_News(name, ended)),
                    _patience(probes, settings),
                )
            except BaseException as error:  # noqa: BLE001  carried over to the caller's thread
                result = error
            news.put(_News(name, len(probes), result))

        # A daemon: one that hangs must not hold up the end of the program.
        threading.Thread(target=send, daemon=True).start()

    def _listen(self) -> None:
        """Take what has come; wait a little for it."""
        try:
            news = self._news.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            return
        sender = self._sending.get(news.machine)
        if sender is None:  # it was given up
            return
        sender.heard = monotonic()
        sender.ended = max(sender.ended, min(news.ended, len(sender.probes)))
        if news.result is None:
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
                    sender.probes, f"machine '{name}' has said nothing for {self._silence:g} s"
                )

    def _fail(self, probes: Iterable[Probe], why: str) -> None:
        for probe in probes:
            self._found[probe.key] = Outcome(
                probe.key, "error", f"cannot probe: {why}", None, (), None, 0.0
            )


def _patience(probes: Sequence[Probe], settings: ProbeSettings) -> Deadline:
    """Longer than the probes can take, each exchange with its own timeout: a last resort."""
    exchanges = sum(probe.tries for probe in probes) * _EXCHANGES_A_TRY
    each = settings.timeout / max(1, settings.in_flight) + _SECONDS_AN_EXCHANGE
    return Deadline(_SILENCE_SECONDS + exchanges * each)
