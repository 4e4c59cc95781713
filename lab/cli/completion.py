"""``lab completion``: the shell's own completion script."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from lab.cli.output import echo

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print a completion script; for bash: eval "$(lab completion bash)"."""
    from lab.cli.main import command as lab

    script = get_completion_class(shell)
    assert script is not None
    echo(script(lab, {}, "lab", "_LAB_COMPLETE").source())
