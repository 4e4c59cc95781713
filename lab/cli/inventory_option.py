"""``--inventory FILE``: the same as the environment variable, for one command."""

from __future__ import annotations

import os
from pathlib import Path

import click


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
    help="The inventory, instead of lab.toml here or in ~/.config/hybridlab.",
)
