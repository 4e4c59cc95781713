"""Packets taken down on many machines at once, each by its own agent, while something is done."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError
from lab.providers.capture import Taken, Tap


class Listener(Protocol):
    """What listens on one machine."""

    def listen(
        self,
        taps: Sequence[Tap],
        limit: int,
        ready: Callable[[int], None],
        deadline: Deadline,
    ) -> tuple[Taken, ...]:
        """Take down all that passes; ``ready`` is told a process once all taps are open."""

    def stop(self, process: int, deadline: Deadline) -> None:
        """Have that process say what it has heard."""


def joined(taps: Sequence[Tap], parts: Sequence[Taken]) -> tuple[Taken, ...]:
    """What each tap took, of all the parts in which it was told."""
    own = {tap: [one for one in parts if one.tap == tap] for tap in taps}
    return tuple(
        Taken(
            tap,
            tuple(frame for one in own[tap] for frame in one.frames),
            sum(one.missed for one in own[tap]),
            next((one.trouble for one in own[tap] if one.trouble), ""),
        )
        for tap in taps
    )


@dataclass(frozen=True, slots=True)
class _News:
    machine: str
    process: int = 0
    result: tuple[Taken, ...] | BaseException | None = None


class Listening:
    """One capture.

    Parameters
    ----------
    listeners
        By machine.
    place
        The machine where each pod and machine stands.
    limit
        Bytes kept of each tap.

    """

    def __init__(
        self, listeners: Mapping[str, Listener], place: Mapping[str, str], limit: int
    ) -> None:
        self._listeners, self._place, self._limit = listeners, place, limit
        self._news: queue.SimpleQueue[_News] = queue.SimpleQueue()
        self._processes: dict[str, int] = {}
        self._found: dict[str, tuple[Taken, ...]] = {}

    def run(
        self, taps: Sequence[Tap], during: Callable[[], None], deadline: Deadline
    ) -> tuple[Taken, ...]:
        """Listen while ``during`` runs; in the order of the taps.

        A machine that cannot listen is trouble at its taps alone.

        Raises
        ------
        DeadlineError
            When a machine has not ended in time; its agent ends by its own deadline.

        """
        shares = self._shares(taps)
        for name, own in shares.items():
            self._start(name, own, deadline)
        self._wait("for the machines to listen", shares, deadline, self._has_begun)
        try:
            during()
        finally:
            for name, process in self._processes.items():
                if name not in self._found:
                    self._listeners[name].stop(process, deadline)
        self._wait("for what they heard", shares, deadline, self._has_ended)
        heard = {one.tap: one for own in self._found.values() for one in own}
        nobody = "no agent of the lab is there to listen"
        return tuple(heard.get(tap) or Taken(tap, (), trouble=nobody) for tap in taps)

    def _shares(self, taps: Sequence[Tap]) -> dict[str, list[Tap]]:
        shares: dict[str, list[Tap]] = {}
        for tap in taps:
            machine = self._place.get(tap.place, "")
            if machine in self._listeners:
                shares.setdefault(machine, []).append(tap)
        return shares

    def _start(self, name: str, taps: Sequence[Tap], deadline: Deadline) -> None:
        news = self._news

        def listen() -> None:
            result: tuple[Taken, ...] | BaseException
            try:
                result = self._listeners[name].listen(
                    taps, self._limit, lambda process: news.put(_News(name, process)), deadline
                )
            except LabError as error:
                trouble = f"{error.doing}: {error.happened}"
                result = tuple(Taken(tap, (), trouble=trouble) for tap in taps)
            except BaseException as error:  # noqa: BLE001  carried over to the caller's thread
                result = error
            news.put(_News(name, result=result))

        # A daemon: one that hangs must not hold up the end of the program.
        threading.Thread(target=listen, daemon=True).start()

    def _has_begun(self, name: str) -> bool:
        return name in self._processes or name in self._found

    def _has_ended(self, name: str) -> bool:
        return name in self._found

    def _wait(
        self,
        what: str,
        names: Mapping[str, object],
        deadline: Deadline,
        done: Callable[[str], bool],
    ) -> None:
        while left := [name for name in names if not done(name)]:
            try:
                news = self._news.get(timeout=max(deadline.left(), 0.001))
            except queue.Empty:
                raise DeadlineError(
                    f"waiting {what}",
                    f"not done within {deadline.seconds:g} s; still waited for: {', '.join(left)}",
                ) from None
            if isinstance(news.result, BaseException):
                raise news.result
            if news.result is None:
                self._processes[news.machine] = news.process
            else:
                self._found[news.machine] = news.result
