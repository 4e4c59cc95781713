"""``lab nightly``: bring up, test and take down every scenario."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lab._errors import UsageError
from lab._log import quantity, say
from lab.cli.complete import providers, scenarios
from lab.cli.options import json_option, only_option, pods_option
from lab.cli.output import echo, echo_json

if TYPE_CHECKING:
    from lab.providers.provider import Pods


@dataclass(frozen=True, slots=True)
class NightOptions:
    """The arguments and options of ``lab nightly``, except ``--json``."""

    named: tuple[str, ...]
    provider: str | None
    only: str | None
    pods: Pods | None
    jobs: int | None
    deadline: str | None
    output: Path | None
    before: Path | None
    expression: str
    tests: tuple[str, ...]
    github: bool

    def seconds(self, default: float) -> float:
        """The deadline of each scenario.

        Raises UsageError when it is no time.
        """
        from lab.lifecycle.names import parse_age

        seconds = default if self.deadline is None else parse_age(self.deadline)
        if seconds <= 0:
            raise UsageError(
                f"giving each scenario '--deadline {self.deadline}'",
                "no lab comes up in zero time",
                "for example --deadline 10m, or leave it out",
            )
        return seconds


@click.command("nightly")
@click.argument("named", nargs=-1, metavar="[SCENARIO]...", shell_complete=scenarios)
@click.option(
    "--provider",
    help="Provider of the machines; the embedded one only if named.",
    shell_complete=providers,
)
@only_option
@pods_option
@click.option(
    "--jobs", type=click.IntRange(min=1), help="How many labs at once (default: what fits)."
)
@click.option("--deadline", metavar="AGE", help='For each scenario: "2h" (default: by provider).')
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Directory for the night, new or empty (default: nightly/DATE below the state directory).",
)
@click.option(
    "--before",
    type=click.Path(path_type=Path),
    help="Directory of the night to compare with (default: the last).",
)
@click.option(
    "-k",
    "expression",
    metavar="EXPRESSION",
    default="",
    help="Test only these cells, assertions and own tests, as 'lab test -k' does.",
)
@click.option(
    "--tests",
    multiple=True,
    type=click.Path(exists=True),
    help="Tests of your own, a file or directory, that pytest runs on every lab, too.",
)
@click.option(
    "--github",
    is_flag=True,
    help="In a step of GitHub Actions: write its summary, its outputs and annotations.",
)
@json_option("Print the summary as JSON.")
def command(as_json: bool, **written: Any) -> int:
    """Bring up, test and take down each SCENARIO; all shipped ones by default.

    A failure of any kind ends its scenario but not the night. The directory has one JUnit file
    for all scenarios, an index of every report, the evidence of each failure, and the differences,
    cell by cell, from the latest night that finished testing the same scenario.

    Exit codes: 0 all is as expected; 1 cells failed; 3 a lab broke, was refused or had
    no cells; 4 the embedded provider would be used without --provider. A scenario that the provider
    can never run is reported as refused and does not change the exit code, unless all are.
    """
    from lab.lifecycle import github, night_report, nightly
    from lab.reports.night import plain_lines, summary_json
    from lab.scenario.loader import shipped
    from lab.state.directory import nights_directory, state_directory
    from lab.state.lock import lab_lock

    options = NightOptions(**written)
    step = github.find_step(os.environ) if options.github else None
    only, pods = options.only, options.pods
    provider = nightly.choose_provider(options.provider)
    named = nightly.jobs_of(options.named, shipped())
    jobs, fitting = nightly.select_jobs(named, provider, only, pods)
    seconds = options.seconds(nightly.deadline(provider))
    state = state_directory(os.environ)
    with lab_lock(nights_directory(state), "lab nightly", wait=0):
        folder = night_report.make_output(options.output, state, datetime.now(UTC))
        earlier = night_report.find_earlier(folder, provider.name, options.before)
        parallel = options.jobs or fitting
        counted = quantity(len(jobs), "scenario")
        say(f"{provider.name}: {counted}, {parallel} at once, into '{folder}'")
        request = nightly.NightRequest(
            jobs,
            provider.name,
            folder,
            parallel,
            seconds,
            only,
            pods,
            options.expression,
            options.tests,
        )
        held, ended_by = nightly.run_night(request, nightly.operations(), say)
        night = night_report.compare_night(held, earlier)
        night_report.write(night, folder, earlier)
        if step is not None:
            step.write(night, say)
    if as_json:
        echo_json(summary_json(night), indent=1)
    else:
        echo("\n".join([*plain_lines(night), f"Index: {folder / night_report.INDEX}"]))
    if ended_by is not None:
        raise ended_by
    return night.exit_code
