"""``lab up``: bring a lab up; what is done already stays."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lab._log import quantity, say


@click.command("up")
@click.argument("scenario")
@click.option("--name", help="The lab's name; the scenario's own if not given.")
@click.option("--provider", help="Where the machines come from (default: netns).")
@click.option("--only", type=click.Choice(["linux", "windows"]), help="Leave other nodes out.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option(
    "--windows-rule-off",
    "rules_off",
    multiple=True,
    metavar="RULE",
    help="Let emulated Windows nodes disobey one documented rule, to see its cells turn.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def command(
    scenario: str,
    name: str | None,
    provider: str | None,
    only: str | None,
    dry_run: bool,
    rules_off: tuple[str, ...],
    as_json: bool,
) -> None:
    """Bring SCENARIO up as a lab.

    SCENARIO is the name of a shipped one, or the path of a file. Bringing up a lab that is up
    does nothing; a changed scenario, or an earlier bring-up that was interrupted, is carried on
    from where it is.
    """
    from lab.lifecycle.session import Request, bring_up, preview

    request = Request(scenario, name, provider, only, rules_off)
    if dry_run:
        for decision in preview(request, say):
            click.echo(f"{decision.step}: {decision.action} ({decision.why})")
        return
    result = bring_up(request, say)
    if as_json:
        done = [decision.step for decision in result.decisions if decision.action == "run"]
        click.echo(
            json.dumps(
                {
                    "lab": result.lab,
                    "changed": result.changed,
                    "steps": done,
                    "seconds": round(result.seconds, 3),
                }
            )
        )
    elif result.changed:
        click.echo(
            f"lab '{result.lab}' is up: {quantity(result.nodes, 'node')}, "
            f"{quantity(result.pods, 'pod')}, in {result.seconds:.2f} s"
        )
        if Path(scenario).suffix or name:
            return
        say(f"next: lab test {result.lab}")
