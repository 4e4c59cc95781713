"""``lab shell``: a shell on a node or in a pod."""

from __future__ import annotations

import click

from lab._log import say
from lab.cli.complete import labs


@click.command("shell")
@click.argument("name", metavar="LAB", shell_complete=labs)
@click.argument("machine", metavar="NODE|POD")
def command(name: str, machine: str) -> int:
    """Open a shell on a node, in a pod, on the router, the client or any other machine of LAB."""
    from lab.lifecycle.desk import open_any

    opened = open_any(name)
    say(opened.banner)
    with opened.reached():
        return opened.provider.machine(opened.handle, opened.intent, machine).attach(())
