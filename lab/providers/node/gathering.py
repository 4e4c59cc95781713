"""What is known of the machine's network, for a person to read: the outputs of plain commands."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import LabError
from lab.guests.shell import Completed
from lab.providers.netns import namespaces
from lab.providers.netns.entry import Entry
from lab.providers.netns.evidence import LOOKS, transcript
from lab.providers.netns.machine import NetnsMachine
from lab.providers.node import looking, place, record, station

_SECONDS = 20.0
"""For one command; each takes milliseconds on any machine that is well."""
_NOT_RUN = 127

Piece = Callable[[tuple[str, str]], None]


def gather(heard: Piece, deadline: Deadline) -> None:
    """Tell every piece, path and text; where one cannot be had, the text says why."""
    for path in (looking.RECORD, looking.SCRIPT, place.ENTER):
        with suppress(FileNotFoundError):
            heard((path.name, path.read_text(encoding="utf-8", errors="replace")))
    for file, command in LOOKS:
        heard((f"machine/{file}", transcript(command, _done(command, deadline))))
    try:
        _gather_inside(station.entry(), heard, deadline)
    except LabError as error:
        heard(("pods.txt", f"{error}\n"))


def _gather_inside(entry: Entry, heard: Piece, deadline: Deadline) -> None:
    there = record.read()
    own = there.machine if there else ""

    def look_around(_: object) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
        own_files = sorted(Path("/run").glob("responder*"))
        said = [(one.name, one.read_text(encoding="utf-8", errors="replace")) for one in own_files]
        return namespaces.named(), said

    names, files = entry.call("looking round the holder", look_around, deadline)
    for piece in files:
        heard(piece)
    for name in names:
        if name != own:
            _gather_pod(NetnsMachine(name, entry, pod=True), heard, deadline)


def _gather_pod(pod: NetnsMachine, heard: Piece, deadline: Deadline) -> None:
    looks = iter(LOOKS)

    def told(done: Completed) -> None:
        file, command = next(looks)
        heard((f"{pod.name}/{file}", transcript(command, done)))

    pod.run_each([command for _, command in LOOKS], deadline, told)


def _done(command: Sequence[str], deadline: Deadline) -> Completed:
    try:
        done = subprocess.run(  # noqa: S603  one that is written down here
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=min(_SECONDS, deadline.left()),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Completed(_NOT_RUN, "", f"{error}\n")
    return Completed(
        done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    )
