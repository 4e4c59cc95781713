"""``lab schema``: the JSON Schema of scenario files."""

from __future__ import annotations

import json

import click

from lab.cli.output import echo


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of scenario files, for editors and other tools."""
    from lab.scenario.json_schema import schema
    from lab.topology.registry import schemas

    echo(json.dumps(schema(schemas()), indent=2))
