"""``lab validate``: report every error of every file at once."""

from __future__ import annotations

import click

from lab._log import quantity, say
from lab.cli.complete import scenarios
from lab.cli.options import json_option
from lab.cli.output import echo, echo_json


@click.command("validate")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=scenarios)
@json_option("Print JSON: every file with its findings.")
def command(files: tuple[str, ...], as_json: bool) -> int:
    """Check scenario files; print every error as FILE:LINE:COLUMN.

    A FILE may also be the name of a scenario that hybridlab ships, such as "overlay", or a spec
    string of Kubeinit's, such as "k8s-libvirt-1-2-2,compute.os=windows".
    """
    from lab.scenario.loader import check, describe, meant
    from lab.topology import registry

    findings_by_file = {
        wanted: check(wanted, topology_check=registry.check)[1] for wanted in map(meant, files)
    }
    wrong = sum(1 for findings in findings_by_file.values() if findings)
    if as_json:
        files_json = (
            {"file": str(file), "valid": not findings, "findings": findings}
            for file, findings in findings_by_file.items()
        )
        echo_json([*files_json])
        return 2 if wrong else 0
    for file, findings in findings_by_file.items():
        echo("\n".join(describe(file, findings)) if findings else f"{file}: valid")
    if wrong:
        several = (
            f"{wrong} of {len(findings_by_file)} scenarios {'has' if wrong == 1 else 'have'} errors"
        )
        errors = quantity(sum(map(len, findings_by_file.values())), "error")
        say(f"the scenario has {errors}" if len(findings_by_file) == 1 else several)
    return 2 if wrong else 0
