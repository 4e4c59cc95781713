"""The command that brings a lab up as it was asked for, to be shown and typed again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from lab.state.rows import LabRow


def up_command(
    scenario: str, name: str | None, provider: str | None, options: Mapping[str, object]
) -> str:
    """``lab up overlay --name mine --provider netns --only linux``, quoted for a shell.

    Parameters
    ----------
    scenario
        Name of a shipped one, or a path.
    name, provider
        None where they were not given.
    options
        As the journal keeps them; those that decide what the lab is are repeated.

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


def again(row: LabRow) -> str:
    """The command that brings this lab of the journal up again."""
    from lab.scenario.loader import is_shipped  # noqa: PLC0415  reading scenarios is slow to import

    shipped = is_shipped(Path(row.scenario_path))
    scenario = row.scenario if shipped else row.scenario_path
    return up_command(scenario, row.name, row.provider, row.options)
