"""``lab ssh-config``: OpenSSH's configuration for a lab."""

from __future__ import annotations

import click

from lab._log import say
from lab.cli.lab_argument import lab_argument
from lab.cli.output import echo


@click.command("ssh-config")
@lab_argument()
def command(name: str) -> None:
    """Print ssh's configuration for the machines of LAB, each called LAB-MACHINE.

    It is written into the lab's directory too, beside the host keys, and goes with the lab:

    \b
      lab ssh-config overlay > overlay.ssh
      ssh -F overlay.ssh overlay-worker1
    """  # noqa: D301  click's own mark for text that is not to be rewrapped
    from lab.lifecycle.access import write_ssh_files
    from lab.lifecycle.api import open_any

    opened = open_any(name)
    files = write_ssh_files(opened, f"writing ssh's configuration for lab '{name}'")
    say(opened.banner)
    say(f"the same is in '{files.config}'; 'Include' it in ~/.ssh/config, or use 'ssh -F'")
    echo(files.text, nl=False)
