"""PowerShell steps on a Windows guest: sent over SSH, run over WinRM, their results read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab._deadline import Deadline
from lab._errors import BrokenError, UsageError
from lab.guests.powershell import filed
from lab.guests.reboot import CODES, Boot, ask, boot, prove
from lab.guests.shell import Completed
from lab.guests.windows_paths import DIRECTORY
from lab.guests.windows_shell import WindowsShell

MODULE = f"{DIRECTORY}\\hybridlab.psm1"
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_PRIVATE = 0o600
_SAID = 400


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step says when it is done."""

    step: str
    changed: bool
    """Whether it has changed anything."""
    reboot: bool
    """Whether the machine must be restarted before what it has done is there."""
    facts: Mapping[str, Any] = field(default_factory=dict)


class StepError(BrokenError):
    """A step has failed; the words are its own, where it has said any."""


def run_step(  # noqa: PLR0913, PLR0917  a step is all of these
    shell: WindowsShell,
    script: bytes,
    module: bytes,
    name: str,
    settings: Mapping[str, Any],
    deadline: Deadline,
) -> StepResult:
    r"""Send a step and run it; a step may be run any number of times.

    Parameters
    ----------
    shell
        The machine.
    script, module
        ``<name>.ps1`` and the functions that it uses, as they are to lie in ``C:\hybridlab``.
    name
        Of the step: ``containerd``.
    settings
        Its parameters, as JSON can hold them. They may be secret; their file is removed.
    deadline
        For all of it.

    Raises
    ------
    StepError
        When it has failed, or has said nothing that can be read.
    DeadlineError, BrokenError
        As :class:`~lab.guests.windows_shell.WindowsShell` does.

    """
    doing = f"running step '{name}' on '{shell.name}'"
    if not _NAME.fullmatch(name):
        raise UsageError(doing, "the name of a step is lower-case letters, digits and hyphens")
    path, given = f"{DIRECTORY}\\{name}.ps1", f"{DIRECTORY}\\{name}.json"
    shell.put(module, MODULE, _PRIVATE, deadline)
    shell.put(script, path, _PRIVATE, deadline)
    shell.put(json.dumps(settings, indent=1).encode("ascii"), given, _PRIVATE, deadline)
    try:
        done = shell.run(filed(path, ("-Settings", given)), deadline)
    finally:
        shell.remove(given)
    return result_of(doing, name, done)


def run_step_and_reboot(  # noqa: PLR0913, PLR0917  the same
    shell: WindowsShell,
    script: bytes,
    module: bytes,
    name: str,
    settings: Mapping[str, Any],
    deadline: Deadline,
) -> StepResult:
    """As :func:`run_step`; where the step asks for it the machine is restarted, and proved so."""
    before: Boot = boot(shell, deadline)
    result = run_step(shell, script, module, name, settings, deadline)
    if result.reboot:
        ask(shell, deadline)
        prove(shell, before, deadline)
    return result


def result_of(doing: str, name: str, done: Completed) -> StepResult:
    """What the step has said, from its exit code and the last line of its output. Pure.

    Raises
    ------
    StepError
        When it has failed, when there is no result, or when result and exit code disagree.

    """
    said = _last_object(done.stdout)
    cure = f"see {DIRECTORY}\\log\\{name}.log there"
    if done.code and done.code not in CODES:
        words = str(said.get("error", "")) or _complaint(done)
        raise StepError(doing, f"it failed with exit code {done.code}: {words}", cure)
    if said.get("step") != name or "error" in said:
        words = f"exit code {done.code}, and its last line is no result of that step"
        raise StepError(doing, f"{words}: {_complaint(done)}", cure)
    changed, reboot, facts = said.get("changed"), said.get("reboot"), said.get("facts")
    if not isinstance(changed, bool) or not isinstance(reboot, bool) or not isinstance(facts, dict):
        words = f"its result is not one of a step: {json.dumps(said)[:_SAID]}"
        raise StepError(doing, words, cure)
    if reboot != (done.code in CODES):
        words = f"it says 'reboot': {json.dumps(reboot)} and ends with exit code {done.code}"
        raise StepError(doing, words, "the two must agree: 3010 where a reboot is needed, else 0")
    return StepResult(name, changed, reboot, facts)


def _last_object(text: str) -> dict[str, Any]:
    lines = [line for line in text.lstrip("\ufeff").splitlines() if line.strip()]
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _complaint(done: Completed) -> str:
    text = (done.stderr.strip() or done.stdout.strip()) or "it said nothing"
    return text[-_SAID:]
