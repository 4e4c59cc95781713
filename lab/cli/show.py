"""``lab show`` and ``lab schema``: the Intent of a scenario, and the schema of scenario files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import groupby
from typing import TYPE_CHECKING

import click

from lab._errors import UsageError
from lab._log import say, table_lines
from lab.cli.complete import scenarios
from lab.cli.options import json_option, only_option
from lab.cli.output import echo, echo_json

if TYPE_CHECKING:
    from lab.topology.intent import MachineIntent

MOST_SHOWN = 1 << 20
"""Bytes of JSON of the machines that are printed unasked; the Intent grows with the square of the
number of nodes, and the shipped scenarios have about 100 kB.
"""


@click.command("show")
@click.argument("scenario", shell_complete=scenarios)
@click.argument("node", required=False)
@click.option("--commands", "as_commands", is_flag=True, help="Print an ip and nft script.")
@only_option
@json_option("Print all of it as JSON, however long.")
def show_command(
    scenario: str, node: str | None, as_commands: bool, only: str | None, as_json: bool
) -> None:
    """Print the Intent of SCENARIO, or with --commands the script that applies it.

    It is JSON; if that would be longer than 1 MiB, only how many objects each machine has. With
    NODE, print only the part of that machine: its own network and its pods. The script needs only
    root, ip and nft; its last line removes everything again.
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

    shown = [machine for machine in drawn.intent.everything() if node in {None, machine.name}]
    if not as_json and _is_long(shown):
        for line in summary_lines(shown):
            echo(line)
        name = f" {node}" if node else ""
        say(f"'lab show {shlex.quote(scenario)}{name} --json' prints all of it")
        return
    echo_json(plain(shown[0] if node else drawn.intent))


def _is_long(machines: Sequence[MachineIntent]) -> bool:
    from lab.plan.canonical import plain

    size = 0
    for machine in machines:
        size += len(json.dumps(plain(machine), indent=2))
        if size > MOST_SHOWN:
            return True
    return False


def summary_lines(machines: Sequence[MachineIntent]) -> Iterator[str]:
    """A table of how many things each machine has; neighbours with the same numbers share a row."""
    numbers = [(machine.name, _numbers(machine)) for machine in machines]
    columns = list(dict.fromkeys(name for _, counts in numbers for name in counts))
    rows = [("machines", *columns)]
    for counts, group in groupby(numbers, key=lambda entry: entry[1]):
        names = [name for name, _ in group]
        alike = f"{names[0]} to {names[-1]}, {len(names):,}" if len(names) > 1 else names[0]
        rows.append((alike, *(f"{counts.get(column, 0):,}" for column in columns)))
    return table_lines(rows, range(1, len(columns) + 1))


def _numbers(machine: MachineIntent) -> dict[str, int]:
    """Numbers of interfaces, routes, pods and so on, without zeros."""
    values = {field.name: getattr(machine, field.name) for field in fields(machine)}
    counts = {name: len(value) for name, value in values.items() if isinstance(value, tuple)}
    if machine.translation:
        counts["services"] = len(machine.translation.services)
    return {name: count for name, count in counts.items() if count}


DOCUMENTS = (
    *("result", "summary", "diff", "explain", "plan"),
    *("status", "list", "events", "doctor", "validate"),
    *("up", "down", "suspend", "gc", "fault", "faults", "heal", "repair"),
    *("capture", "graph", "logs", "inventory"),
)
"""Those of :mod:`lab.lifecycle.documents`, which is not imported for ``--help``."""


@click.command("schema")
@click.argument("document", required=False, type=click.Choice(DOCUMENTS), metavar="[DOCUMENT]")
def schema_command(document: str | None) -> None:
    """Print the JSON Schema of scenario files, or of what commands print as JSON.

    With DOCUMENT, that of what a command prints with --json: "result" is what "lab test" prints,
    "summary" is that of "lab nightly", "faults" that of "lab fault --list", "inventory" that of
    "lab inventory check", and the others have their command's name: diff, explain, plan, status,
    list, events, doctor, validate, up, down, suspend, gc, fault, heal, repair, capture, graph and
    logs.
    """
    if document is not None:
        from lab.lifecycle.documents import document_schema

        echo_json(document_schema(document))
        return
    from lab.scenario.validation import schema
    from lab.topology.registry import schemas

    echo_json(schema(schemas()))
