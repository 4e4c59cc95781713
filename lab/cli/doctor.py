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
    diagnoses = examine(provider, known, os.environ)
    if as_json:
        echo_json(diagnoses)
    else:
        _print(diagnoses)
    return (
        PreflightError.exit_code if any(diagnosis.level == "fail" for diagnosis in diagnoses) else 0
    )


def _print(diagnoses: tuple[Diagnosis, ...]) -> None:
    width = max(len(diagnosis.check) for diagnosis in diagnoses)
    subject = ""
    for diagnosis in diagnoses:
        if diagnosis.subject != subject:
            subject = diagnosis.subject
            echo(subject)
        echo(f"  {diagnosis.level:<4}  {diagnosis.check:<{width}}  {diagnosis.seen}")
        if diagnosis.hint:
            echo(f"        try: {diagnosis.hint}")
    fails = sum(1 for diagnosis in diagnoses if diagnosis.level == "fail")
    warnings = sum(1 for diagnosis in diagnoses if diagnosis.level == "warn")
    verdict = f"{quantity(fails, 'thing')} to fix first" if fails else "labs can run here"
    echo(f"{verdict}; {quantity(warnings, 'warning')}")
