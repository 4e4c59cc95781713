"""``lab up``: bring a lab up; steps that are done already are skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lab._log import quantity, say
from lab.cli.options import json_option, scenario_options, windows_rule_option
from lab.cli.output import echo, echo_json

if TYPE_CHECKING:
    from lab.lifecycle.api import LabRequest, Prepared
    from lab.lifecycle.up import UpResult


@click.command("up")
@scenario_options
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
@windows_rule_option
@json_option("Print what was done as JSON.")
def command(request: LabRequest, dry_run: bool, as_json: bool) -> None:
    """Bring SCENARIO up as a lab.

    SCENARIO is the name of a shipped one, the path of a file, or a spec string of Kubeinit's, such
    as "k8s-libvirt-1-2-2,compute.os=windows". Bringing up a lab that is up does nothing. If the
    scenario has changed, or an earlier bring-up was interrupted, only the remaining steps run.

    Machines are network namespaces on this machine, unless the inventory has hypervisors: see
    "lab inventory --help".
    """
    from lab.cli.plan import announce, step_lines
    from lab.lifecycle import api

    prepared = api.prepare(request)
    if not dry_run:
        result, sentence = bring_up(prepared)
        if as_json:
            echo_json(result)
        elif sentence:
            echo(sentence)
        return
    announce(prepared)
    decisions = api.preview(prepared)
    if as_json:
        echo_json(decisions)
        return
    for line in step_lines(decisions):
        echo(line)


def bring_up(prepared: Prepared) -> tuple[UpResult, str]:
    """Bring a lab up; return the result, and a sentence about it if anything was done."""
    from lab.cli.plan import announce
    from lab.lifecycle import api

    announce(prepared)
    result = api.bring_up(prepared, say)
    if not result.changed:
        return result, ""
    plan = prepared.compiled.plan
    return result, (
        f"lab '{result.lab}' is up: {quantity(len(plan.nodes), 'node')}, "
        f"{quantity(len(plan.pods()), 'pod')}, "
        f"{quantity(len(plan.services), 'Service')}, in {result.seconds:.2f} s"
    )
