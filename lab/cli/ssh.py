"""``lab ssh``: a shell on a machine over SSH."""

from __future__ import annotations

import click

from lab._log import say
from lab.cli.complete import machines
from lab.cli.execute import Exec
from lab.cli.lab_argument import lab_argument


@click.command("ssh", cls=Exec)
@lab_argument()
@click.argument("machine", metavar="MACHINE", shell_complete=machines)
@click.argument("words", metavar="[--] [CMD]...", nargs=-1, type=click.UNPROCESSED)
def command(name: str, machine: str, words: tuple[str, ...]) -> int:
    """Log in to a machine of LAB over SSH, as root, or run CMD there with its exit code.

    On Windows as Administrator.

    For labs of real machines; "lab shell" and "lab exec" work on every lab, and in pods.

    \b
      lab ssh overlay worker1
      lab ssh overlay worker1 -- journalctl -b
    """  # noqa: D301  click's own mark for text that is not to be rewrapped
    from lab.lifecycle.access import log_in
    from lab.lifecycle.api import open_any

    opened = open_any(name)
    say(opened.banner)
    return log_in(opened, machine, words, f"logging in to '{machine}' of lab '{name}'")
