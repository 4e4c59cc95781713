"""``lab show``: what a scenario becomes, as data or as the commands that do it by hand."""

from __future__ import annotations

import json

import click

from lab._errors import UsageError
from lab.cli.complete import scenarios
from lab.cli.output import echo
from lab.cli.scenario_options import only_option


@click.command("show")
@click.argument("scenario", shell_complete=scenarios)
@click.argument("node", required=False)
@click.option("--commands", "as_commands", is_flag=True, help="Print an ip and nft script.")
@only_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON (the default).")
def command(
    scenario: str, node: str | None, as_commands: bool, only: str | None, as_json: bool
) -> None:
    """Print the Intent of SCENARIO, or with --commands the script that makes it.

    With NODE, print the part of one machine: its own network and its pods. The script needs
    nothing but root, ip and nft, and ends with the line that takes everything away again.
    """
    if as_commands and as_json:
        raise UsageError(
            f'showing scenario "{scenario}"', "--commands and --json are two outputs", "give one"
        )
    from lab.lifecycle.compilation import compile_scenario

    drawn = compile_scenario(scenario, only)
    machines = [machine.name for machine in drawn.intent.everything()]
    if node is not None and node not in machines:
        raise UsageError(
            f'showing scenario "{scenario}"',
            f'it has no machine "{node}"',
            f"use one of: {', '.join(machines)}",
        )
    if as_commands:
        from lab.providers.netns.commands import script

        echo(script(drawn.intent, node), nl=False)
        return
    from lab.plan.canonical import plain

    shown: object = drawn.intent if node is None else drawn.intent.machine(node)
    echo(json.dumps(plain(shown), indent=2))
