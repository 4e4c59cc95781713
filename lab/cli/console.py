"""``lab console`` and ``lab screenshot``: the serial console and the screen of a machine."""

from __future__ import annotations

from pathlib import Path

import click

from lab._log import say
from lab.cli.complete import machines
from lab.cli.options import lab_argument
from lab.cli.output import echo, echo_raw, write_file


@click.command("console")
@lab_argument()
@click.argument("machine", metavar="MACHINE", shell_complete=machines)
@click.option("--log", "log_only", is_flag=True, help="Print the console's output so far.")
def console_command(name: str, machine: str, log_only: bool) -> int:
    """Connect this terminal to the serial console of a machine of LAB; Ctrl-] leaves it."""
    from lab.lifecycle.access import machine_name
    from lab.lifecycle.api import open_any
    from lab.lifecycle.providers import real_machines

    opened = open_any(name)
    doing = f"opening the console of '{machine}' of lab '{name}'"
    provider = real_machines(opened.provider, doing)
    wanted = machine_name(opened, machine, doing)
    say(opened.banner)
    if log_only:
        echo_raw(provider.console_log(opened.handle, opened.intent, wanted))
        return 0
    return provider.console(opened.handle, opened.intent, wanted)


STANDARD_OUTPUT = Path("-")


@click.command("screenshot")
@lab_argument()
@click.argument("machine", metavar="MACHINE", shell_complete=machines)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help='The PNG file to write, "-" for standard output (default: LAB-MACHINE.png).',
)
def screenshot_command(name: str, machine: str, output: Path | None) -> None:
    """Take a picture of the screen of a machine of LAB, and print the file's path."""
    from lab.lifecycle.access import machine_name
    from lab.lifecycle.api import open_any
    from lab.lifecycle.providers import real_machines

    opened = open_any(name)
    doing = f"taking a picture of the screen of '{machine}' of lab '{name}'"
    provider = real_machines(opened.provider, doing)
    wanted = machine_name(opened, machine, doing)
    say(opened.banner)
    picture = provider.screenshot(opened.handle, opened.intent, wanted)
    if output == STANDARD_OUTPUT:
        echo_raw(picture)
        return
    path = output or Path(f"{name}-{wanted}.png")
    write_file(path, picture, doing)
    echo(path)
