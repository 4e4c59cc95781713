"""``lab graph``: the topology of a scenario or a lab as a drawing."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from lab.cli.complete import labs_and_scenarios
from lab.cli.options import json_option, only_option, output_option
from lab.cli.output import echo, write_file

FORMATS = ("mermaid", "dot", "d2", "svg")
"""The formats of :mod:`lab.reports.graph`, which is not imported for ``--help``."""


@click.command("graph")
@click.argument("scenario", metavar="SCENARIO|LAB", shell_complete=labs_and_scenarios)
@click.option(
    "--format", type=click.Choice(FORMATS), default="mermaid", show_default=True, help="Format."
)
@output_option("The file to write.")
@only_option
@json_option("Write JSON instead of a drawing: boxes, edges between them, and rows.")
def command(
    scenario: str,
    format: str,  # noqa: A002  the option's word
    output: Path | None,
    only: str | None,
    as_json: bool,
) -> None:
    """Draw the topology of SCENARIO, or of LAB as it was brought up.

    GitHub and GitLab render Mermaid in Markdown; DOT is for Graphviz; SVG needs no other program.

    \b
      lab graph overlay --format svg -o overlay.svg
      lab graph overlay --format dot | dot -Tpng > overlay.png
    """  # noqa: D301  \b tells click not to rewrap
    from lab.lifecycle import api
    from lab.reports.graph import draw, graph_of
    from lab.reports.topology import picture_of

    if only is None and api.is_known(scenario):
        opened = api.open_any(scenario)
        intent, title = opened.intent, f"lab '{opened.name}': {opened.plan.summary}"
    else:
        from lab.lifecycle.compilation import compile_scenario

        made = compile_scenario(scenario, only)
        intent, title = made.intent, f"{made.scenario.name}: {made.scenario.summary}"
    graph = graph_of(title, picture_of(intent))
    text = f"{json.dumps(asdict(graph), indent=1)}\n" if as_json else draw(graph, format)
    if output is None:
        echo(text, nl=False)
        return
    write_file(output, text.encode(), f"writing the drawing of '{scenario}'")
    echo(output)
