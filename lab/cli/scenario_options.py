"""The argument SCENARIO and the options of every command that makes a lab of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from lab.cli.complete import providers, scenarios
from lab.cli.inventory_option import inventory_option

_Command = TypeVar("_Command", bound=Callable[..., object])

only_option = click.option(
    "--only", type=click.Choice(["linux", "windows"]), help="Leave other nodes out."
)
pods_option = click.option(
    "--pods",
    type=click.Choice(["kubernetes", "namespaces"]),
    help="What pods are on real machines: a cluster's (the default there), or namespaces.",
)
windows_rule_option = click.option(
    "--windows-rule-off",
    "rules_off",
    multiple=True,
    metavar="RULE",
    help="Let emulated Windows nodes disobey one documented rule, to see its cells turn.",
)


def scenario_options(command: _Command) -> _Command:
    """Give a command SCENARIO; its function gets scenario, name, provider, only and pods."""
    options = (
        click.argument("scenario", shell_complete=scenarios),
        click.option("--name", help="The lab's name; the scenario's own if not given."),
        click.option(
            "--provider",
            help="Where the machines come from, such as netns, nspawn or libvirt.",
            shell_complete=providers,
        ),
        inventory_option,
        only_option,
        pods_option,
    )
    for option in reversed(options):
        command = option(command)
    return command
