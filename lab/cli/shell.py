"""``lab shell``: a shell on a node or in a pod."""

from __future__ import annotations

import click

from lab._log import say
from lab.cli.complete import places
from lab.cli.lab_argument import lab_argument


@click.command("shell")
@lab_argument()
@click.argument("machine", metavar="NODE|POD", shell_complete=places)
def command(name: str, machine: str) -> int:
    """Open a shell on a node, in a pod, on the router, the client or any other machine of LAB.

    Machines that are namespaces have a network and a host name of their own; their files are
    those of this machine.
    """
    from lab.lifecycle.api import open_any
    from lab.providers.provider import MACHINES

    opened = open_any(name)
    say(opened.banner)
    with opened.reached():
        place = opened.provider.machine(opened.handle, opened.intent, machine)
        if MACHINES not in opened.provider.abilities:
            say(f"note: the network is that of '{machine}'; the files are those of this machine")
        return place.attach(())
