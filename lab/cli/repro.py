"""``lab repro``: test one cell of a run again, in the smallest lab that has it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from lab._log import quantity, say
from lab.cli.complete import labs, providers
from lab.cli.output import echo


@click.command("repro")
@click.argument("run", shell_complete=labs)
@click.argument("cell")
@click.option(
    "--provider",
    help="Provider of the machines (default: as in the run).",
    shell_complete=providers,
)
@click.option("--name", help='The lab\'s name (default: "repro-SCENARIO").')
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), help="The scenario file to write."
)
@click.option("--dry-run", is_flag=True, help="Write the scenario, and bring nothing up.")
def command(
    run: str, cell: str, provider: str | None, name: str | None, output: Path | None, dry_run: bool
) -> int:
    """Bring up the smallest lab that has CELL of RUN, and test that one cell in it.

    RUN is a result.json, its directory, the id of a kept run, or a lab for its last run; CELL is
    a cell's id as in the report, or an assertion's, whose lab is the whole scenario. Addresses,
    MACs and pod ranges are those of the run. The lab is taken down if the cell is as expected;
    otherwise it stays up for you to look at.

    Exit codes: 0 the cell is as expected here; 1 it is not.
    """
    from lab.lifecycle import api, runs
    from lab.lifecycle.runs import find_run
    from lab.matrix.verdict import CellResult
    from lab.reports.wording import explain_command
    from lab.state.directory import state_directory
    from lab.suites.session import MatrixSession

    state = state_directory(os.environ)
    result = find_run(run, state)
    then = runs.judged_of(result, cell)
    small = runs.make_small(result, then, state, name, output)
    prepared = api.prepare(
        api.LabRequest(
            str(small.file),
            small.lab,
            provider or result.provider,
            rules_off=result.windows_rules_off,
            pods="kubernetes" if result.nodes else "namespaces",
        )
    )
    say(prepared.banner)
    plan = prepared.compiled.plan
    echo(f"{small.file}: {quantity(len(plan.nodes), 'node')}, {quantity(len(plan.pods()), 'pod')}")
    if dry_run:
        return 0
    api.bring_up(prepared, say)
    opened = api.open_running(small.lab)
    now, directory = runs.run_judged(MatrixSession(opened), then)
    code, words = runs.judge(then.verdict, now.verdict)
    echo(f"{cell}: {words}{f'; {now.detail}' if now.detail else ''}")
    echo(f"Report: {directory / 'report.html'}")
    if code:
        say(f"the lab '{small.lab}' is up: {now.repeat}")
        if isinstance(now, CellResult):
            say(f"  '{explain_command(small.lab, now.cell)}' says why")
        say(f"  'lab down {small.lab}' takes it down")
    else:
        api.take_down(small.lab, say)
        say(f"the lab '{small.lab}' is down again")
    return code
