"""Run the same job for several machines at once; every machine that fails is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from threading import Thread

from lab._errors import BrokenError, LabError

_POLL_SECONDS = 0.2
"""Seconds between two looks for Ctrl-C while jobs run."""


def on_each(names: Iterable[str], job: Callable[[str], None]) -> None:
    """Do the job for every name, all at once, and wait for all; Ctrl-C leaves at once.

    Raises
    ------
    LabError
        That of the one machine that failed, or one that tells of all of them.

    """
    ended: SimpleQueue[tuple[str, BaseException | None]] = SimpleQueue()

    def run(name: str) -> None:
        try:
            job(name)
        except BaseException as raised:  # noqa: BLE001  told to the one who waits, whatever it is
            ended.put((name, raised))
        else:
            ended.put((name, None))

    left = set(names)
    for name in sorted(left):
        # A daemon: one that never ends does not keep a stopped command from ending.
        Thread(target=run, args=(name,), name=name, daemon=True).start()
    failed: dict[str, BaseException] = {}
    while left:
        try:
            name, error = ended.get(timeout=_POLL_SECONDS)
        except Empty:
            continue
        left.discard(name)
        if error is not None:
            failed[name] = error
    _raise_failures(failed)


def _raise_failures(failed: dict[str, BaseException]) -> None:
    known = {name: error for name, error in failed.items() if isinstance(error, LabError)}
    for name, error in failed.items():
        if name not in known or len(failed) == 1:
            raise error
    if known:
        told = "".join(f"\n  {error.doing}: {error.happened}" for error in known.values())
        hints = dict.fromkeys(error.hint for error in known.values() if error.hint)
        raise BrokenError(
            f"working on {', '.join(sorted(known))}",
            f"each of them failed:{told}",
            "; ".join(hints),
        )
