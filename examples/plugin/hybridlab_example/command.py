"""A command: how many cells a scenario has."""

import click


@click.command("cells")
@click.argument("scenario")
def command(scenario: str) -> None:
    """Print how many cells SCENARIO has."""
    from lab.lifecycle.compilation import compile_scenario
    from lab.matrix.cells import cells

    compiled = compile_scenario(scenario)
    click.echo(len(cells(compiled.plan, compiled.intent)))
