"""``lab inventory``: what labs on real machines may use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lab._errors import UsageError
from lab._log import quantity, say
from lab.cli.commands import Commands
from lab.cli.options import json_option
from lab.cli.output import echo, echo_json

if TYPE_CHECKING:
    from lab.inventory.loader import Found

_FILE = click.argument("file", required=False, type=click.Path(path_type=Path))


@click.group("inventory", cls=Commands)
def command() -> None:
    """Check or show the inventory: hypervisors, images, mirrors, secrets.

    The default FILE is the one that $HYBRIDLAB_INVENTORY names, or lab.toml in this directory,
    or lab.toml in ~/.config/hybridlab. Without an inventory, labs run in network namespaces.
    """


@command.command("check")
@_FILE
@json_option("Print JSON: the file with its findings.")
def check(file: Path | None, as_json: bool) -> int:
    """Check an inventory file; print every error with its key.

    No hypervisor is contacted: "lab doctor" does that.
    """
    from lab.inventory import loader
    from lab.scenario.findings import lines

    path, named = (file, True) if file else _find_inventory()
    inventory, findings = loader.check(path, named=named)
    if as_json:
        echo_json({"file": str(path), "valid": not findings, "findings": findings})
        return 2 if findings else 0
    if findings or inventory is None:
        echo("\n".join(lines(str(path), findings)))
        say(f"{path} has {quantity(len(findings), 'error')}")
        return 2
    echo(f"{path}: valid, {quantity(len(inventory.hypervisors), 'hypervisor')}")
    return 0


@command.command("show")
@_FILE
@json_option()
def show(file: Path | None, as_json: bool) -> None:
    """Show an inventory with its defaults filled in.

    For a secret, only its source is shown, never its value.
    """
    from lab.inventory import loader
    from lab.inventory.inventory import account, plain

    path, named = (file, True) if file else _find_inventory()
    inventory = loader.load(path, named=named)
    if as_json:
        echo_json(plain(inventory))
        return
    for line in account(inventory):
        echo(line)


@command.command("example")
def example() -> None:
    """Print a sample inventory with every key, commented."""
    from lab.inventory import loader

    echo(loader.example(), nl=False)


def _find_inventory() -> Found:
    from lab.inventory import loader

    file = loader.find(os.environ, Path.cwd())
    if file is None:
        raise UsageError(
            "looking for an inventory",
            f"{loader.VARIABLE} is not set, and there is no {loader.NAME} here, nor in "
            "~/.config/hybridlab",
            "give the path of one, or write one after 'lab inventory example'",
        )
    return file
