"""``lab show`` and ``lab schema``: the Intent of a scenario, and the schema of scenario files."""

from __future__ import annotations

import click

from lab._errors import UsageError
from lab.cli.complete import scenarios
from lab.cli.options import json_option, only_option
from lab.cli.output import echo, echo_json


@click.command("show")
@click.argument("scenario", shell_complete=scenarios)
@click.argument("node", required=False)
@click.option("--commands", "as_commands", is_flag=True, help="Print an ip and nft script.")
@only_option
@json_option("Print JSON (the default).")
def show_command(
    scenario: str, node: str | None, as_commands: bool, only: str | None, as_json: bool
) -> None:
    """Print the Intent of SCENARIO, or with --commands the script that applies it.

    With NODE, print only the part of that machine: its own network and its pods. The script needs
    only root, ip and nft; its last line removes everything again.
    """
    if as_commands and as_json:
        raise UsageError(
            f'showing scenario "{scenario}"', "--commands and --json exclude each other", "give one"
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
        from lab.providers.netns.script import script

        echo(script(drawn.intent, node), nl=False)
        return
    from lab.plan.canonical import plain

    shown: object = drawn.intent if node is None else drawn.intent.machine(node)
    echo_json(plain(shown))


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of scenario files, for editors and other tools."""
    from lab.scenario.shape import schema
    from lab.topology.registry import schemas

    echo_json(schema(schemas()))
