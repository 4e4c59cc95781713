"""Jobs of many machines at once, no more on a host than it bears."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError, PreflightError, UsageError
from lab._log import quantity

T = TypeVar("T")
_POLL_SECONDS = 0.2
"""Seconds between two looks for Ctrl-C while jobs run."""


_Ended = SimpleQueue[tuple[str, Callable[[], T] | BaseException]]


def on_each(names: Iterable[str], job: Callable[[str], T]) -> Mapping[str, T]:
    """Do the job for every name, all at once; what each returned. Raises as :func:`run_jobs`."""
    jobs = {name: {name: partial(job, name)} for name in sorted(set(names))}
    return run_jobs(jobs, {}, Deadline(math.inf))


def run_jobs(
    jobs: Mapping[str, Mapping[str, Callable[[], T]]],
    limits: Mapping[str, int],
    deadline: Deadline,
) -> Mapping[str, T]:
    """Run every job, on each host so many at once; what each returned, by machine.

    ``jobs`` has, by host, what is to be done by machine; a host without a limit bears one. After
    the first that fails none is begun, and those that run are waited for. Ctrl-C leaves at once:
    nothing is begun any more, and what runs ends with the command.

    Raises LabError: the one job's own error. Raises BrokenError when several failed: every machine
    with its error; a PreflightError or UsageError when all of those are. Raises DeadlineError when
    not all have ended in time: which run and which were not begun.
    """
    waiting = {host: deque(of_host.items()) for host, of_host in jobs.items()}
    running: dict[str, str] = {}
    done: dict[str, T] = {}
    failed: dict[str, BaseException] = {}
    ended: _Ended[T] = SimpleQueue()

    def start() -> None:
        for host, left in waiting.items():
            while left and list(running.values()).count(host) < max(1, limits.get(host, 1)):
                machine, job = left.popleft()
                running[machine] = host
                # A daemon: one that never ends does not keep a stopped command from ending.
                Thread(target=_run, args=(machine, job, ended), name=machine, daemon=True).start()

    start()
    while running:
        if deadline.left() == 0.0:
            raise _late(running, _not_begun(waiting), failed, deadline)
        try:
            machine, outcome = ended.get(timeout=min(_POLL_SECONDS, deadline.left()))
        except Empty:
            continue
        del running[machine]
        if isinstance(outcome, BaseException):
            failed[machine] = outcome
        else:
            done[machine] = outcome()
        if not failed:
            start()
    if failed:
        raise _failure(failed, _not_begun(waiting))
    return {machine: done[machine] for of_host in jobs.values() for machine in of_host}


def _run(machine: str, job: Callable[[], T], ended: _Ended[T]) -> None:
    try:
        result = job()
    except BaseException as raised:  # noqa: BLE001  passed to the one who waits, whatever it is
        ended.put((machine, raised))
    else:
        ended.put((machine, lambda: result))


def _not_begun(waiting: Mapping[str, Iterable[tuple[str, object]]]) -> list[str]:
    return [machine for jobs in waiting.values() for machine, _ in jobs]


def _late(
    running: Iterable[str],
    not_begun: Sequence[str],
    failed: Mapping[str, BaseException],
    deadline: Deadline,
) -> DeadlineError:
    story = [f"{machine} still under way" for machine in running]
    unfinished = len(story) + len(not_begun)
    story += [f"{machine} not begun" for machine in not_begun]
    story += [f"{machine}: {error}" for machine, error in failed.items()]
    return DeadlineError(
        f"working on {quantity(unfinished, 'machine')}",
        f"not done within {deadline.seconds:g} s; last seen: {'; '.join(story)}",
    )


def _failure(failed: Mapping[str, BaseException], not_begun: Sequence[str]) -> BaseException:
    """One error as it is, several as one that has all of them."""
    for error in failed.values():
        if len(failed) == 1 or not isinstance(error, LabError):
            return error
    lines = [f"{machine}: {error}" for machine, error in failed.items()]
    rest = f"; not begun: {', '.join(not_begun)}" if not_begun else ""
    kind: type[LabError] = BrokenError
    for candidate in (PreflightError, UsageError):
        if all(isinstance(error, candidate) for error in failed.values()):
            kind = candidate
    return kind(
        f"working on {quantity(len(failed), 'machine')} at once",
        f"each failed{rest}\n" + "\n".join(lines),
    )
