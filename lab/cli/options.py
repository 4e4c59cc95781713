"""Arguments and options that several commands have: LAB, SCENARIO, --inventory, --json."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from lab.cli.complete import labs, providers, scenarios, sources, targets

if TYPE_CHECKING:
    from lab.providers.provider import Pods

_Command = TypeVar("_Command", bound=Callable[..., object])

only_option = click.option(
    "--only",
    type=click.Choice(["linux", "windows"]),
    help="Only nodes of this system; the others are left out.",
)
pods_option = click.option(
    "--pods",
    type=click.Choice(["kubernetes", "namespaces"]),
    help="Pods on real machines: of a Kubernetes cluster (the default), or namespaces.",
)
windows_rule_option = click.option(
    "--windows-rule-off",
    "rules_off",
    multiple=True,
    metavar="RULE",
    help="Switch off one documented rule of emulated Windows nodes, to see its cells change.",
)


def output_option(help: str) -> Callable[[_Command], _Command]:  # noqa: A002  click's word
    """Give a command ``-o``, the path of a file or directory; its function gets ``output``."""
    return click.option("-o", "--output", type=click.Path(path_type=Path), help=help)


def scenario_options(command: Callable[..., object]) -> Callable[..., object]:
    """Give a command SCENARIO and the options of a lab; its function gets a ``request`` of them."""

    @wraps(command)
    def requested(
        *args: object,
        scenario: str,
        name: str | None,
        provider: str | None,
        only: str | None,
        pods: Pods | None,
        rules_off: tuple[str, ...] = (),
        **others: object,
    ) -> object:
        from lab.lifecycle.api import LabRequest

        request = LabRequest(scenario, name, provider, only, rules_off, pods)
        return command(*args, request=request, **others)

    options = (
        click.argument("scenario", shell_complete=scenarios),
        click.option("--name", help="Name of the lab (default: the scenario's)."),
        click.option(
            "--provider",
            help="Provider of the machines, such as netns, nspawn or libvirt.",
            shell_complete=providers,
        ),
        inventory_option,
        only_option,
        pods_option,
    )
    decorated: Callable[..., object] = requested
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def cell_options(command: _Command) -> _Command:
    """Give a command SRC, DST, --protocol and --size, two of LAB's endpoints."""
    options = (
        click.argument("source", metavar="SRC", shell_complete=sources),
        click.argument("target", metavar="[DST]", required=False, shell_complete=targets),
        click.option(
            "--protocol", type=click.Choice(["tcp", "udp"]), help="Probe over this protocol only."
        ),
        click.option(
            "--size",
            type=click.Choice(["small", "large"]),
            help="Probe with this payload size only.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def json_option(help: str = "Print JSON.") -> Callable[[_Command], _Command]:  # noqa: A002  click's word
    """Give a command ``--json``; its function gets ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def lab_argument(*, required: bool = True) -> Callable[[_Command], _Command]:
    """Give a command the argument LAB; its function gets the lab's name as ``name``."""
    return click.argument(
        "name",
        metavar="LAB" if required else "[LAB]",
        required=required,
        shell_complete=labs,
        callback=_resolve_name,
    )


def _resolve_name(_ctx: click.Context, _param: click.Parameter, written: str | None) -> str | None:
    if written is None or written.startswith("-"):  # an option that is passed on
        return written
    from lab.lifecycle.api import lab_name

    return lab_name(written)


def _all_named(
    _ctx: click.Context, _param: click.Parameter, written: tuple[str, ...]
) -> tuple[str, ...]:
    from lab.lifecycle.api import lab_name

    if "" in written:
        raise click.BadParameter("the value is empty; write one.")
    return tuple(lab_name(name) for name in written)


labs_argument = click.argument(
    "names", metavar="[LAB]...", nargs=-1, shell_complete=labs, callback=_all_named
)
"""Gives a command any number of labs; its function gets their names as ``names``."""


def _use(_ctx: click.Context, _param: click.Parameter, value: Path | None) -> None:
    from lab.inventory.loader import VARIABLE

    if value is not None:
        os.environ[VARIABLE] = str(value.absolute())


inventory_option = click.option(
    "--inventory",
    metavar="FILE",
    type=click.Path(path_type=Path),
    expose_value=False,
    callback=_use,
    help="Inventory file (default: lab.toml here or in ~/.config/hybridlab).",
)
