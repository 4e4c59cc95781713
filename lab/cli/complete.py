"""What the shell offers for an argument, once "lab completion" is loaded."""

from __future__ import annotations

import os

import click

from lab._errors import LabError


def scenarios(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Shipped scenarios, and files: a path is the shell's own business."""
    from lab.scenario.loader import shipped

    return [name for name in shipped() if name.startswith(begun)]


def labs(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Labs of this state directory, up or with reports left."""
    from lab.state.directory import state_directory

    try:
        there = state_directory(os.environ) / "labs"
        names = sorted(path.name for path in there.iterdir())
    except (LabError, OSError):
        return []
    return [name for name in names if name.startswith(begun)]


def images(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Shipped image recipes."""
    from lab.imaging.recipes import shipped

    return [name for name in shipped() if name.startswith(begun)]


def fault_names(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Everything that 'lab fault' can break."""
    from lab.matrix.faults.registry import faults

    return [name for name in faults() if name.startswith(begun)]
