"""``lab doctor``: check whether labs can run here, and say what to fix."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lab._errors import PreflightError
from lab._log import quantity, say
from lab.cli.complete import providers
from lab.cli.options import inventory_option, json_option
from lab.cli.output import echo, echo_json

if TYPE_CHECKING:
    from lab.providers.provider import Diagnosis


@click.command("doctor")
@click.option(
    "--provider",
    shell_complete=providers,
    help="Check this provider only, such as netns, nspawn or libvirt (default: all).",
)
@inventory_option
@json_option()
def command(provider: str | None, as_json: bool) -> int:
    """Check this machine and every hypervisor, and say how to fix what is wrong.

    On each hypervisor a tiny guest is started and removed again; nothing else is created.
    The exit code is 4 if labs cannot run.
    """
    from lab.inventory import loader
    from lab.lifecycle.providers import examine

    known = loader.current(os.environ, Path.cwd())
    say(f"inventory: {known.path}" if known else "no inventory: labs run in network namespaces")
    found = examine(provider, known, os.environ)
    if as_json:
        echo_json(found)
    else:
        _print(found)
    return PreflightError.exit_code if any(one.level == "fail" for one in found) else 0


def _print(found: tuple[Diagnosis, ...]) -> None:
    width = max(len(one.check) for one in found)
    subject = ""
    for one in found:
        if one.subject != subject:
            subject = one.subject
            echo(subject)
        echo(f"  {one.level:<4}  {one.check:<{width}}  {one.seen}")
        if one.hint:
            echo(f"        try: {one.hint}")
    fails = sum(1 for one in found if one.level == "fail")
    warnings = sum(1 for one in found if one.level == "warn")
    verdict = f"{quantity(fails, 'thing')} to fix first" if fails else "labs can run here"
    echo(f"{verdict}; {quantity(warnings, 'warning')}")
