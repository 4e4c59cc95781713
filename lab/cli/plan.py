"""``lab plan``: what ``lab up`` would do, why, and what it would cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from lab._errors import PreflightError
from lab._log import heading, quantity, say, table_lines
from lab.cli.options import json_option, scenario_options
from lab.cli.output import echo, echo_json

if TYPE_CHECKING:
    from lab.lifecycle.api import LabRequest, Prepared
    from lab.lifecycle.up import Decision
    from lab.plan.plan import Plan
    from lab.topology.intent import Intent


@click.command("plan")
@scenario_options
@json_option("Print the whole plan as JSON.")
def command(request: LabRequest, as_json: bool) -> None:
    """Print what "lab up SCENARIO" would do, why, and what it would cost. Nothing is made.

    The exit code is 4, after the plan is printed, if "lab up" would be refused here.
    """
    from lab.lifecycle import api
    from lab.matrix.assertion import place_assertions
    from lab.matrix.cells import make_matrix
    from lab.matrix.sampling import Choice, coverage, sample
    from lab.plan.canonical import digest, plain

    prepared = api.prepare(request)
    announce(prepared)
    plan, intent = prepared.compiled.plan, prepared.compiled.intent
    whole, choice = make_matrix(plan, intent), Choice()
    assertions = prepared.compiled.scenario.assertions
    placed = sum(1 for _ in place_assertions(assertions, intent))
    probed = coverage(whole, choice, sample(whole, choice))
    if as_json:
        document = {
            "lab": prepared.name,
            "digest": digest(plan),
            "steps": api.preview(prepared),
            "cost": prepared.provider.cost(intent),
            "matrix": whole.counts(),
            "asked": probed,
            "assertions": placed,
            "plan": plain(plan),
        }
        echo_json(document)
        api.check(prepared)
        return
    echo(f"lab '{prepared.name}': {plan.summary}")
    echo(f"plan {digest(plan)}, topology {plan.topology}, Kubernetes {plan.version}\n")
    for line in (*_nodes(plan), *between_lines(plan, intent)):
        echo(line)
    listed = ", ".join(f"{family} {number:,}" for family, number in whole.counts().items())
    echo(f"\nmatrix: {whole.size:,} cells: {listed}")
    if assertions:
        places = quantity(placed, "place")
        echo(f"assertions: {len(assertions):,}, tested in {places} beside the cells")
    if probed.sentence:
        echo(f"probed: {probed.share}, by 'lab test' without '--full'; {probed.sentence}")
    price = prepared.provider.cost(intent)
    disk = f", disks of {price.disk_gib} GiB as they grow" if price.disk_gib else ""
    counted = ", ".join(quantity(number, noun) for noun, number in price.counts.items())
    echo(f"cost: about {price.seconds:g} s and {price.memory_mib:,} MiB{disk}; {counted}")
    try:
        decisions = api.preview(prepared)
    except PreflightError as error:
        echo(f"\nsteps: unknown, because 'lab up' would be refused: {error.happened}")
        raise
    echo("\nsteps:")
    for line in step_lines(decisions):
        echo(line)
    api.check(prepared)


def step_lines(decisions: Sequence[Decision]) -> Iterator[str]:
    """One line for each step: what it would do and why; a repeated reason is shortened."""
    wide = max(len(decision.step) for decision in decisions)
    last = ""
    for decision in decisions:
        why = decision.why if decision.why != last else heading(decision.why)
        yield f"  {decision.step:<{wide}}  {decision.action:<5} {why}"
        last = decision.why


def between_lines(plan: Plan, intent: Intent) -> Iterator[str]:
    """Lines with the scenario's hypervisors and the MTU at each level."""
    if not plan.hypervisors:
        return
    if intent.hypervisors:
        listed = ", ".join(
            f"{hypervisor.name} {hypervisor.address}" for hypervisor in plan.hypervisors
        )
        between = f"{plan.hypervisor_mtu} between hypervisors, "
    else:  # real hypervisors: the scenario does not have their addresses and MTU
        listed, between = "those of the inventory, in order", ""
    yield f"\nhypervisors: {listed}"
    yield f"MTU: {between}{plan.node_mtu} between nodes, {intent.pod_mtu} of pods"


def _nodes(plan: Plan) -> Iterator[str]:
    rows = [("node", "os", "role", "address", "pods", "pod addresses", "hypervisor")]
    for node in plan.nodes:
        pods = [str(pod.address) for pod in node.pods]
        span = f"{pods[0]} to {pods[-1]}" if len(pods) > 1 else "".join(pods)
        rows.append(
            (
                node.name,
                node.os,
                node.role,
                str(node.address),
                str(node.pod_cidr or "-"),
                span or "none",
                node.hypervisor or "",
            )
        )
    columns = 7 if any(node.hypervisor for node in plan.nodes) else 6
    return table_lines([row[:columns] for row in rows])


def announce(prepared: Prepared) -> None:
    """Print the provider, what is emulated, and notes."""
    for line in (prepared.banner, *prepared.notes()):
        say(line)
