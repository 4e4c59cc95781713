"""Holders from outside: started, found, and ended."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError
from lab.providers.netns.abilities import world_cure
from lab.providers.netns.entry import Entry
from lab.providers.netns.holder import MARKER
from lab.providers.netns.processes import HolderProcess, holders, started
from lab.providers.provider import LabHandle

PROGRAM = Path(__file__).with_name("holder.py")
_START_SECONDS = 60.0
"""It takes 0.1 s, and on a machine with five times as much to do as it can more than 10."""
_END_SECONDS = 20.0


def start(
    lab: LabHandle, python: str, marker: str = MARKER, seconds: float = _START_SECONDS
) -> Entry:
    """Start a holder for the lab, and return the way into it.

    ``marker`` says which kind, as :mod:`lab.providers.netns.holder` has it; it is given up
    when it has not said a word for so many ``seconds``.

    Raises
    ------
    PreflightError
        When the kernel refuses it its namespaces, with the fix.
    BrokenError
        When it ends without a word.

    """
    doing = f"starting the holder of lab '{lab.name}'"
    command = [python, "-I", "-S", str(PROGRAM), marker, lab.name, lab.token, str(lab.directory)]
    with subprocess.Popen(  # noqa: S603  our own program
        command,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        said = _line(doing, process, seconds)
    pid = said.get("pid")
    if not isinstance(pid, int):
        number = int(str(said["errno"]))
        call = str(said["call"])
        raise PreflightError(
            doing, f"the kernel refused '{call}': {os.strerror(number)}", world_cure(call, number)
        )
    since = started(pid)
    if since is None:
        raise BrokenError(doing, f"process {pid} ended at once", "run 'lab up' again")
    return Entry(pid, since)


def _line(doing: str, process: subprocess.Popen[bytes], seconds: float) -> dict[str, object]:
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    if not poll.poll(seconds * 1000):
        process.kill()
        raise DeadlineError(doing, f"not ready within {seconds:g} s; it has said nothing")
    line = process.stdout.readline()
    if not line:
        raise BrokenError(doing, "it ended without a word", f"try: {process.args!r}")
    found: dict[str, object] = json.loads(line)
    return found


def find(token: str) -> HolderProcess | None:
    """The settled holder with that token, if there is one that this very user runs."""
    return next((one for one in holders() if one.ours and one.settled and one.token == token), None)


def entry(lab: LabHandle) -> Entry:
    """The way into the lab's holder.

    Raises
    ------
    BrokenError
        If the lab has none.

    """
    holder = find(lab.token)
    if holder is None:
        raise BrokenError(
            f"entering lab '{lab.name}'",
            "its holder is not running",
            f"'lab status {lab.name}' says how to bring it up again",
        )
    return Entry(holder.pid, holder.started)


def end_all(look: Callable[[], Iterable[HolderProcess]]) -> tuple[HolderProcess, ...]:
    """Kill every holder that is seen, and wait until all has gone; those that there were.

    One whose starter was killed may just be handing over to its child: a look through /proc can
    come too late for the one and too early for the other. So there are two looks.

    Raises
    ------
    DeadlineError
        When one has not gone in time.

    """
    ended: list[HolderProcess] = []
    for _ in range(2):
        found = tuple(look())
        end(found)
        ended += found
    return tuple(dict.fromkeys(ended))


def end(found: tuple[HolderProcess, ...]) -> None:
    """Kill the holders, and wait until each has gone with all that was in it.

    Raises
    ------
    DeadlineError
        When one has not gone in time.

    """
    for holder in found:
        if not holder.gone():
            with suppress(ProcessLookupError):
                os.kill(holder.pid, signal.SIGKILL)
    deadline = Deadline(_END_SECONDS)
    for holder in found:
        deadline.wait(
            f"ending the holder of lab '{holder.lab}', process {holder.pid}",
            holder.gone,
            every=0.001,
            cure=f"look at what it waits for: cat /proc/{holder.pid}/stack",
        )
