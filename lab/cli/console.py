"""``lab console`` and ``lab screenshot``: the serial console and the screen of a machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lab.cli.complete import machines
from lab.cli.options import lab_argument, output_option
from lab.cli.output import echo, echo_raw, write_file

if TYPE_CHECKING:
    from lab.lifecycle.open_lab import OpenLab
    from lab.providers.provider import RealMachines


@click.command("console")
@lab_argument()
@click.argument("machine", metavar="MACHINE", shell_complete=machines)
@click.option("--log", "log_only", is_flag=True, help="Print the console's output so far.")
def console_command(name: str, machine: str, log_only: bool) -> int:
    """Connect this terminal to the serial console of a machine of LAB; Ctrl-] leaves it."""
    action = f"opening the console of '{machine}' of lab '{name}'"
    provider, opened = _open_lab(name, machine, action)
    if log_only:
        echo_raw(provider.console_log(opened.handle, opened.intent, machine))
        return 0
    return provider.console(opened.handle, opened.intent, machine)


def _open_lab(name: str, machine: str, action: str) -> tuple[RealMachines, OpenLab]:
    """The lab, which has this machine, and its provider, whose machines are real."""
    from lab.lifecycle.api import open_any
    from lab.lifecycle.open_lab import machine_name
    from lab.lifecycle.providers import real_machines

    opened = open_any(name)
    provider = real_machines(opened.provider, action)
    machine_name(opened, machine, action)
    return provider, opened


STANDARD_OUTPUT = Path("-")


@click.command("screenshot")
@lab_argument()
@click.argument("machine", metavar="MACHINE", shell_complete=machines)
@output_option('The PNG file to write, "-" for standard output (default: LAB-MACHINE.png).')
def screenshot_command(name: str, machine: str, output: Path | None) -> None:
    """Take a picture of the screen of a machine of LAB, and print the file's path."""
    action = f"taking a picture of the screen of '{machine}' of lab '{name}'"
    provider, opened = _open_lab(name, machine, action)
    picture = provider.screenshot(opened.handle, opened.intent, machine)
    if output == STANDARD_OUTPUT:
        echo_raw(picture)
        return
    path = output or Path(f"{name}-{machine}.png")
    write_file(path, picture, action)
    echo(path)
