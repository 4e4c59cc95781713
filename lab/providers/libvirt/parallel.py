"""Jobs of many machines at once, no more on a hypervisor than it bears."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError, PreflightError, UsageError
from lab._log import quantity

T = TypeVar("T")
_POLL_SECONDS = 0.2
"""Seconds between two looks for Ctrl-C while jobs run."""


@dataclass
class _Jobs:
    """What of the jobs is waiting, running, done and failed."""

    waiting: dict[str, deque[tuple[str, Callable[[], object]]]]
    running: dict[str, str] = field(default_factory=dict)
    """Machine to hypervisor."""
    done: dict[str, object] = field(default_factory=dict)
    failed: dict[str, BaseException] = field(default_factory=dict)
    ended: SimpleQueue[tuple[str, object, BaseException | None]] = field(
        default_factory=SimpleQueue
    )

    def start(self, limits: Mapping[str, int]) -> None:
        """Start as many as the hypervisors bear."""
        for host, jobs in self.waiting.items():
            while jobs and list(self.running.values()).count(host) < max(1, limits.get(host, 1)):
                machine, job = jobs.popleft()
                self.running[machine] = host
                # A daemon: one that never ends does not keep a stopped command from ending.
                Thread(target=self._run, args=(machine, job), name=machine, daemon=True).start()

    def _run(self, machine: str, job: Callable[[], object]) -> None:
        result: object = None
        error: BaseException | None = None
        try:
            result = job()
        except BaseException as raised:  # noqa: BLE001  passed to the one who waits, whatever it is
            error = raised
        self.ended.put((machine, result, error))

    def hear(self, seconds: float) -> None:
        """Wait until one ends, or so long."""
        try:
            machine, result, error = self.ended.get(timeout=seconds)
        except Empty:
            return
        del self.running[machine]
        if error is None:
            self.done[machine] = result
        else:
            self.failed[machine] = error

    def left(self) -> list[str]:
        """Those that were not begun."""
        return [machine for jobs in self.waiting.values() for machine, _ in jobs]


def run_jobs(
    jobs: Mapping[str, Mapping[str, Callable[[], T]]],
    limits: Mapping[str, int],
    deadline: Deadline,
) -> Mapping[str, T]:
    """Run every job, on each hypervisor so many at once; what each returned, by machine.

    ``jobs`` has, by hypervisor, what is to be done by machine; a hypervisor without a limit
    bears one. After the first that fails none is begun, and those that run are waited for.
    Ctrl-C leaves at once: nothing is begun any more, and what runs ends with the command.

    Raises LabError: the one job's own error. Raises BrokenError when several failed: every machine
    with its error; a PreflightError or UsageError when all of those are. Raises DeadlineError when
    not all have ended in time: which run and which were not begun.
    """
    storm = _Jobs({host: deque(of_host.items()) for host, of_host in jobs.items()})
    while True:
        if not storm.failed:
            storm.start(limits)
        if not storm.running:
            break
        if deadline.left() == 0.0:
            raise _late(storm, deadline)
        storm.hear(min(_POLL_SECONDS, deadline.left()))
    if storm.failed:
        raise _failure(storm)
    order = [machine for of_host in jobs.values() for machine in of_host]
    return {machine: storm.done[machine] for machine in order}  # type: ignore[misc]


def _late(storm: _Jobs, deadline: Deadline) -> DeadlineError:
    story = [f"{machine} still under way" for machine in storm.running]
    story += [f"{machine} not begun" for machine in storm.left()]
    story += [f"{machine}: {error}" for machine, error in storm.failed.items()]
    return DeadlineError(
        f"working on {quantity(len(storm.running) + len(storm.left()), 'machine')}",
        f"not done within {deadline.seconds:g} s; last seen: {'; '.join(story)}",
    )


def _failure(storm: _Jobs) -> BaseException:
    """One error as it is, several as one that tells all of them."""
    kind: type[LabError]
    for error in storm.failed.values():
        if len(storm.failed) == 1 or not isinstance(error, LabError):
            return error
    lines = [f"{machine}: {error}" for machine, error in storm.failed.items()]
    rest = f"; not begun: {', '.join(storm.left())}" if storm.left() else ""
    kinds = (PreflightError, UsageError)
    kind = next((kind for kind in kinds if _all_are(kind, storm.failed)), BrokenError)
    return kind(
        f"working on {quantity(len(storm.failed), 'machine')} at once",
        f"each failed{rest}\n" + "\n".join(lines),
    )


def _all_are(kind: type[LabError], errors: Mapping[str, BaseException]) -> bool:
    return all(isinstance(error, kind) for error in errors.values())
