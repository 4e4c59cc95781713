"""Run jobs for many machines in parallel, with a limit per host."""

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
"""Interval in seconds between two checks for Ctrl-C while jobs run."""


_Ended = SimpleQueue[tuple[str, Callable[[], T] | BaseException]]


def on_each(names: Iterable[str], job: Callable[[str], T]) -> Mapping[str, T]:
    """Run the job for every name in parallel; results by name. Raises as :func:`run_jobs`."""
    jobs = {name: {name: partial(job, name)} for name in sorted(set(names))}
    return run_jobs(jobs, {}, Deadline(math.inf))


def run_jobs(
    jobs: Mapping[str, Mapping[str, Callable[[], T]]],
    limits: Mapping[str, int],
    deadline: Deadline,
) -> Mapping[str, T]:
    """Run every job, with a limit of parallel jobs per host; results by machine.

    ``jobs``: by host, the job of each machine. ``limits``: by host; 1 if missing. After the first
    failure no job is started, and running ones are waited for. Ctrl-C returns at once: no job is
    started, and running ones end with the command.

    Raises the job's own LabError if one failed. If several failed, raises BrokenError with every
    machine's error; PreflightError or UsageError if all errors are of that type. Raises
    DeadlineError listing running and unstarted jobs when not all finish in time.
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
                # A daemon thread: one that hangs does not keep the command from exiting.
                Thread(target=_run, args=(machine, job, ended), name=machine, daemon=True).start()

    start()
    while running:
        if deadline.left() == 0.0:
            raise _make_late_error(running, _not_started(waiting), failed, deadline)
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
        raise _failure(failed, _not_started(waiting))
    return {machine: done[machine] for of_host in jobs.values() for machine in of_host}


def _run(machine: str, job: Callable[[], T], ended: _Ended[T]) -> None:
    try:
        result = job()
    except BaseException as raised:  # noqa: BLE001  any error is passed to the waiting thread
        ended.put((machine, raised))
    else:
        ended.put((machine, lambda: result))


def _not_started(waiting: Mapping[str, Iterable[tuple[str, object]]]) -> list[str]:
    return [machine for jobs in waiting.values() for machine, _ in jobs]


def _make_late_error(
    running: Iterable[str],
    not_started: Sequence[str],
    failed: Mapping[str, BaseException],
    deadline: Deadline,
) -> DeadlineError:
    story = [f"{machine} still running" for machine in running]
    unfinished = len(story) + len(not_started)
    story += [f"{machine} not started" for machine in not_started]
    story += [f"{machine}: {error}" for machine, error in failed.items()]
    return DeadlineError(
        f"working on {quantity(unfinished, 'machine')}",
        f"not done within {deadline.seconds:g} s; last seen: {'; '.join(story)}",
    )


def _failure(failed: Mapping[str, BaseException], not_started: Sequence[str]) -> BaseException:
    """A single error unchanged, several combined into one."""
    for error in failed.values():
        if len(failed) == 1 or not isinstance(error, LabError):
            return error
    lines = [f"{machine}: {error}" for machine, error in failed.items()]
    rest = f"; not started: {', '.join(not_started)}" if not_started else ""
    kind: type[LabError] = BrokenError
    for candidate in (PreflightError, UsageError):
        if all(isinstance(error, candidate) for error in failed.values()):
            kind = candidate
    return kind(
        f"working on {quantity(len(failed), 'machine')} at once",
        f"each failed{rest}\n" + "\n".join(lines),
    )
