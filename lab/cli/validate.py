"""``lab validate``: report every error of every file at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from lab._errors import UsageError
from lab._log import quantity, say
from lab.cli.complete import scenarios
from lab.cli.options import json_option
from lab.cli.output import echo, echo_json

if TYPE_CHECKING:
    from lab.scenario.findings import FileFinding
    from lab.scenario.loader import Wanted


@click.command("validate")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=scenarios)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "github", "sarif"]),
    help="text (the default), json, annotations for GitHub Actions, or SARIF 2.1.0.",
)
@json_option("The same as --format json: every file with its findings.")
def command(files: tuple[str, ...], form: str | None, as_json: bool) -> int:
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
    if as_json and form not in {None, "json"}:
        raise UsageError(
            "validating scenarios", f"--json and --format {form} exclude each other", "give one"
        )
    if form in {"github", "sarif"}:
        _echo_for_others(form, findings_by_file)
        return 2 if wrong else 0
    if as_json or form == "json":
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


def _echo_for_others(form: str, findings_by_file: Mapping[Wanted, Sequence[FileFinding]]) -> None:
    """Print the findings for GitHub, or as SARIF."""
    from lab.reports.findings import annotate_findings, sarif

    named = {str(file): findings for file, findings in findings_by_file.items()}
    if form == "sarif":
        from lab.state.provenance import provenance

        echo_json(sarif(named, provenance().version))
        return
    for file, findings in named.items():
        for line in annotate_findings(file, findings):
            echo(line)
