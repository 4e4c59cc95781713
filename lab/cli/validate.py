"""``lab validate``: every error of every file, at once."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from lab.cli.complete import scenarios

if TYPE_CHECKING:
    from lab.scenario.findings import Finding


@click.command("validate")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=scenarios)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: every file with its findings.")
def command(files: tuple[str, ...], as_json: bool) -> int:
    """Check scenario files; print every error as FILE:LINE:COLUMN.

    A FILE may also be the name of a scenario that hybridlab ships, such as "overlay".
    """
    from lab.scenario.findings import lines
    from lab.scenario.loader import check, find
    from lab.topology import registry

    paths = [find(name) for name in files]
    found = {str(path): check(path, topology_check=registry.check)[1] for path in paths}
    wrong = sum(1 for findings in found.values() if findings)
    if as_json:
        click.echo(json.dumps([_plain(*one) for one in found.items()], indent=2))
        return 2 if wrong else 0
    for file, findings in found.items():
        click.echo("\n".join(lines(file, findings)) if findings else f"{file}: valid")
    if wrong:
        click.echo(f"{wrong} of {len(found)} files are wrong", err=True)
    return 2 if wrong else 0


def _plain(file: str, findings: tuple[Finding, ...]) -> dict[str, object]:
    return {
        "file": file,
        "valid": not findings,
        "findings": [asdict(finding) for finding in findings],
    }
