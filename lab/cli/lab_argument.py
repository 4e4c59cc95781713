"""The argument LAB: a lab's name, or the scenario that it was made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from lab.cli.complete import labs

_Command = TypeVar("_Command", bound=Callable[..., object])


def lab_argument(*, required: bool = True) -> Callable[[_Command], _Command]:
    """Give a command the argument; its function gets the lab's name as ``name``."""
    return click.argument(
        "name",
        metavar="LAB" if required else "[LAB]",
        required=required,
        shell_complete=labs,
        callback=_named,
    )


def _named(_ctx: click.Context, _param: click.Parameter, written: str | None) -> str | None:
    if written is None:
        return None
    from lab.lifecycle.api import lab_name

    return lab_name(written)
