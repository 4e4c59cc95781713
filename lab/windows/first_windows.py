"""The checks of a first real Windows, run where possible, with one file as the result.

``docs/how-to/first-windows.md`` lists the same checks; a test compares the two.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from lab._deadline import Deadline
from lab._errors import LabError
from lab.lifecycle.open_lab import OpenLab
from lab.machines.images.golden import GoldenImage
from lab.windows.images import offline
from lab.windows.images.settings import mask
from lab.windows.shell import encoded_command

_SECONDS = 120.0
"""For one command on a node."""
_CLOCK_SECONDS = 60
_LINES = 200
"""Number of lines kept, from the end of each log."""


@dataclass(frozen=True, slots=True)
class WindowsCheck:
    """One check."""

    number: int
    title: str
    where: Literal["console", "disk", "node"]
    """What is examined: the console log of the image's build, its disk, or each Windows node."""
    command: str
    """PowerShell for a node; a shell command for the host."""
    expected: str
    change: str
    """What to change if the output differs."""
    pattern: str = ""
    """Regular expression that a correct output matches; empty if a person must read it."""


CHECKS = tuple(
    WindowsCheck(**check)
    for check in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one check."""

    check: WindowsCheck
    of: str
    """The node, or the image."""
    output: str
    verdict: Literal["as expected", "differs", "to be read", "not run"]


def run(name: str, image: GoldenImage | None, logs: Path, lab: OpenLab | None) -> Iterator[Answer]:
    """Run the checks; those that need a missing image or lab are reported as not run.

    ``name``: name of the image. ``logs``: directory of the console logs of builds.
    """
    nodes = (
        [machine.name for machine in lab.intent.machines if machine.os == "windows"] if lab else []
    )
    for check in CHECKS:
        if check.where == "console":
            log = logs / f"{name}.log"
            text = log.read_text(encoding="ascii", errors="replace") if log.exists() else ""
            yield _judge(check, name, text, why=f"there is no '{log}'")
        elif check.where == "disk":
            kept = _check_answer_files(image) if image else ""
            yield _judge(check, name, kept, why="the image is not built")
        elif lab is None or not nodes:
            yield Answer(check, "", "no lab with a Windows node was named", "not run")
        else:
            yield from (_ask(check, lab, node) for node in nodes)


def _check_answer_files(image: GoldenImage) -> str:
    try:
        with TemporaryDirectory(dir=image.disk.parent.parent) as scratch:
            offline.refuse_answer_files(image.disk, Path(scratch), f"checking image '{image.name}'")
    except LabError as error:
        return error.happened
    return "none"


def _ask(check: WindowsCheck, lab: OpenLab, node: str) -> Answer:
    try:
        machine = lab.provider.machine(lab.handle, lab.intent, node)
        done = machine.run(encoded_command(check.command), Deadline(_SECONDS))
    except LabError as error:
        return Answer(check, node, str(error), "not run")
    return _judge(check, node, done.stdout, why="no output", errors=done.stderr)


def _judge(check: WindowsCheck, of: str, output: str, why: str, errors: str = "") -> Answer:
    """``errors``: standard error, which may quote the command and is no answer."""
    right = re.search(check.pattern, output) is not None
    output += f"\n{errors}" if errors.strip() else ""
    text = mask("\n".join(output.splitlines()[-_LINES:]).strip())
    if not text:
        return Answer(check, of, why, "not run")
    if not check.pattern:
        return Answer(check, of, text, "to be read")
    if right and (clock := re.search(r"^now (\S{19})", text, re.MULTILINE)):
        moment = datetime.fromisoformat(clock[1]).replace(tzinfo=UTC)
        right = abs(moment.timestamp() - time.time()) < _CLOCK_SECONDS
    return Answer(check, of, text, "as expected" if right else "differs")


def describe(check: WindowsCheck) -> str:
    """The check as in the how-to."""
    fence = "```powershell" if check.where == "node" else "<!-- not run: needs Windows -->\n```sh"
    return (
        f"### {check.number}. {check.title}\n\n{fence}\n{check.command}\n```\n\n"
        f"Expected: {check.expected}.\n\nIf not: {check.change}.\n"
    )


def report(answers: Iterator[Answer], tell: list[str]) -> str:
    """The text of the file to send; one line per answer is appended to ``tell``."""
    parts = []
    for answer in answers:
        line = f"{answer.check.number:2} {answer.verdict}: {answer.check.title}"
        tell.append(f"{line} ({answer.of})" if answer.of else line)
        parts.append(
            f"{describe(answer.check)}\n{answer.verdict} {answer.of}\n\n```\n{answer.output}\n```\n"
        )
    return "\n".join(("# First Windows", "", *tell, "", *parts))
