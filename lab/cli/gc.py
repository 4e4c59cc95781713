"""``lab gc``: remove what is no longer needed."""

from __future__ import annotations

import shlex
from dataclasses import asdict

import click
from click.core import ParameterSource

from lab._errors import BrokenError
from lab._log import quantity, say
from lab.cli.options import json_option
from lab.cli.output import echo, echo_json


@click.command("gc")
@click.option("--older-than", metavar="AGE", help='Also labs not used for this long: "2d", "36h".')
@click.option(
    "--keep-runs",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How many runs and captures of each lab to keep; runs of kept nights stay too.",
)
@click.option(
    "--keep-nights",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="How many nights in the state directory to keep.",
)
@click.option(
    "--keep-evidence",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help='How many archives of evidence from failed "lab up" commands to keep, over all labs.',
)
@click.option("--yes", is_flag=True, help="Remove; without it, only say what would be removed.")
@click.option(
    "--all-users",
    is_flag=True,
    help="Also other users' labs: as root those on this machine, and expired ones on hypervisors.",
)
@json_option()
def command(
    older_than: str | None,
    keep_runs: int,
    keep_nights: int,
    keep_evidence: int,
    yes: bool,
    all_users: bool,
    as_json: bool,
) -> None:
    """Remove what killed commands left behind, old runs and nights, and forgotten labs.

    Labs that are up are removed only with --older-than. Safe to run from cron: a lab that another
    command is working on is left alone. Other users' labs are left alone, unless --all-users is
    given; their files are never touched.
    """
    from lab.lifecycle import api
    from lab.lifecycle.gc import Kept

    old = api.prune(Kept(keep_runs, keep_nights, keep_evidence), yes, say)
    result = api.collect(older_than, yes, all_users, say)
    if as_json:
        kept = {"runs": old.runs, "captures": old.captures, "nights": old.nights}
        kept["evidence"] = old.evidence
        echo_json(asdict(result) | kept)
    else:
        for line in result.removed:
            say(line)
        counts = list(old.words())
        if result.dry_run and (result.found or counts):
            listed = [quantity(len(result.found), "lab")] * bool(result.found) + counts
            echo(f"would remove {', '.join(listed)}; '{_with_yes()}' removes it")
        else:
            echo(f"removed {', '.join([quantity(len(result.removed), 'object'), *counts])}")
    if old.failed:
        raise BrokenError(
            "removing old runs and nights",
            "; ".join(old.failed),
            f"change their owner to yourself, then run '{_with_yes()}' again",
        )


def _with_yes() -> str:
    """The same command with --yes."""
    ctx = click.get_current_context()
    words = ["lab", "gc"]
    for option in ctx.command.params:
        name = option.name or ""
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE and name != "as_json":
            value = ctx.params[name]
            words += [option.opts[0], *(() if value is True else (str(value),))]
    return shlex.join([*words, "--yes"])
