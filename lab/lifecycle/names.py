"""Names and ages of labs, and the commands that bring them up, as users write them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab._errors import UsageError, did_you_mean
from lab.state.rows import LabRow

LONGEST = 63
"""Characters of a lab's name, which is a DNS label (RFC 1123) and so is valid everywhere."""
NIGHTLY = "nightly-"
"""Begins the name of each lab of ``lab nightly``."""
ATTACHED = "attached"
"""The option of a lab on an existing cluster: the 'lab attach' that enters it again."""
TEMPORARY = "temporary"
"""The option of a lab that its command takes away at its end; see :func:`user_lock`."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def is_name(name: str) -> bool:
    """Whether a lab can have this name."""
    return len(name) <= LONGEST and _LABEL.fullmatch(name) is not None


def repro_name(scenario: str) -> str:
    """The lab in which ``lab repro`` repeats a cell of a run of this scenario."""
    return f"repro-{scenario}"[:LONGEST].rstrip("-")


def check_name(name: str, *, new: bool = False) -> None:
    """Refuse a name that no lab can have.

    ``new``: whether the name is for a new lab.

    Raises UsageError saying which names are valid.
    """
    if not is_name(name):
        raise UsageError(
            f"naming a lab '{name}'" if new else f"looking for lab '{name}'",
            "a lab's name is 1 to 63 lower-case letters, digits and '-', "
            "and neither starts nor ends with '-'",
            "give another one with --name" if new else "'lab list' names the labs that there are",
        )


def unknown_lab(action: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for an unknown lab, with the nearest name and all labs."""
    labs = sorted(set(known))
    listed = ", ".join(f"'{lab}'" for lab in labs)
    are = "the only lab is" if len(labs) == 1 else "the labs are"
    existing = f"{are} {listed}" if labs else "there are no labs; 'lab up' makes one"
    hint = f"{did_you_mean(name, labs)} {existing}".strip()
    return UsageError(action, f"there is no lab named '{name}'", hint)


def parse_age(text: str) -> float:
    """Parse an age such as ``"2d"`` into seconds.

    Raises UsageError when it is not a number with one of the units s, m, h, d, w.
    """
    from lab.inventory import values  # noqa: PLC0415  pydantic takes a third of 'lab down'

    seconds = values.seconds(text)
    if seconds is None:
        raise UsageError(
            f"reading the age '{text}'",
            "an age is a number and a unit: s, m, h, d or w",
            "for example 2d, 36h or 90m",
        )
    return seconds


def in_words(seconds: float) -> str:
    """The age in its largest whole unit: ``3 d``, ``2 h``, ``5 min``, ``12 s``."""
    for limit, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= limit:
            return f"{int(seconds // limit)} {unit}"
    return f"{max(0, int(seconds))} s"


def up_command(
    scenario: str, name: str | None, provider: str | None, options: Mapping[str, object]
) -> str:
    """``lab up overlay --name mine --provider netns --only linux``, quoted for a shell.

    ``scenario``: name of a shipped scenario, or a path. ``options``: as in the journal; those that
    determine the lab are included.
    """
    words = ["lab", "up", scenario]
    off = options.get("windows_rules_off", ())
    assert isinstance(off, list | tuple), "written by Request.options"
    for option, value in (
        ("--name", name),
        ("--provider", provider),
        ("--only", options.get("only")),
        ("--pods", options.get("pods")),
        *(("--windows-rule-off", rule) for rule in off),
    ):
        if value is not None:
            words += [option, str(value)]
    return shlex.join(words)


def user_lock(directory: Path) -> Path:
    """Of a temporary lab's directory: what its command holds locked as long as it runs."""
    return directory / "user"


def is_attached(row: LabRow) -> bool:
    """Whether a lab is on an existing cluster."""
    return ATTACHED in row.options


def removal(row: LabRow) -> str:
    """The command that takes this lab away."""
    return f"lab {'detach' if is_attached(row) else 'down'} {row.name}"


def again(row: LabRow) -> str:
    """The command that brings this lab up again."""
    if is_attached(row):
        return str(row.options[ATTACHED])
    from lab.scenario.loader import is_shipped  # noqa: PLC0415  reading scenarios is slow to import

    shipped = is_shipped(Path(row.scenario_path))
    scenario = row.scenario if shipped else row.scenario_path
    return up_command(scenario, row.name, row.provider, row.options)
