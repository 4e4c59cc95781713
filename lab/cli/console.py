"""``lab console``: the serial console of a machine."""

from __future__ import annotations

import click

from lab._log import say
from lab.cli.complete import machines
from lab.cli.lab_argument import lab_argument
from lab.cli.output import echo_raw


@click.command("console")
@lab_argument()
@click.argument("machine", metavar="MACHINE", shell_complete=machines)
@click.option("--log", "log_only", is_flag=True, help="Print what the console has said so far.")
def command(name: str, machine: str, log_only: bool) -> int:
    """Join this terminal to the serial console of a machine of LAB; Ctrl-] leaves it."""
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
