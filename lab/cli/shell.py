"""``lab shell`` and ``lab exec``: a shell or one command on a machine or in a pod."""

from __future__ import annotations

import click

from lab._log import say
from lab.cli.complete import places
from lab.cli.options import lab_argument
from lab.cli.output import echo


@click.command("shell")
@lab_argument()
@click.argument("machine", metavar="NODE|POD", shell_complete=places)
def shell_command(name: str, machine: str) -> int:
    """Open a shell on any machine of LAB, or in a pod.

    Machines that are namespaces have a network and a host name of their own; their files are
    those of this machine.
    """
    from lab.lifecycle.api import open_any
    from lab.providers.provider import MACHINES

    opened = open_any(name)
    with opened.reached():
        place = opened.provider.machine(opened.handle, opened.intent, machine)
        if MACHINES not in opened.provider.abilities:
            say(f"note: this shell is in the network of '{machine}'; the files are this machine's")
        return place.attach(())


_OWN = 2
"""Arguments before the command: the lab, and the node or pod."""


class Exec(click.Command):
    """Passes on everything from the name of CMD on, with or without ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert ``--`` before the command if the caller omitted it."""
        plain = [at for at, word in enumerate(args) if not word.startswith("-")]
        if len(plain) > _OWN and "--" not in args[: plain[_OWN]]:
            args = [*args[: plain[_OWN]], "--", *args[plain[_OWN] :]]
        return super().parse_args(ctx, args)


@click.command("exec", cls=Exec)
@lab_argument()
@click.argument("machine", metavar="NODE|POD", shell_complete=places)
@click.argument("words", metavar="[--] CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--print", "print_only", is_flag=True, help="Print the command to do it by hand.")
def exec_command(name: str, machine: str, words: tuple[str, ...], print_only: bool) -> int:
    """Run CMD on a node or in a pod, and exit with its code; options before CMD are lab's.

    \b
      lab exec overlay win1-p1 -- curl -s http://to-worker1-p1/
    """  # noqa: D301  \b tells click not to rewrap
    from lab.lifecycle.api import open_any

    opened = open_any(name)
    with opened.reached():
        place = opened.provider.machine(opened.handle, opened.intent, machine)
        if print_only:
            echo(place.command_line(words))
            return 0
        return place.attach(words)
