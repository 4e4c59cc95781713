"""``lab attach``, ``lab check`` and ``lab detach``: labs on existing clusters."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from lab._log import quantity, say
from lab.cli import down, test
from lab.cli.complete import selections
from lab.cli.options import json_option, lab_argument
from lab.cli.output import echo, echo_json

if TYPE_CHECKING:
    from lab.machines.attached.record import AttachedRecord, ProbeTerms


Where = tuple[str | None, str | None]
IMAGE = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"
"""Of :class:`~lab.machines.attached.record.ProbeTerms`, which is not imported for ``--help``."""


def cluster_options(command: Callable[..., object]) -> Callable[..., object]:
    """Give a command the options of a cluster; its function gets ``terms``, and ``where``.

    ``where``: kubeconfig and context as given.
    """

    @wraps(command)
    def termed(
        *args: object, kubeconfig: str | None, context: str | None, **others: object
    ) -> object:
        from dataclasses import fields

        from lab.machines.attached.record import ProbeTerms

        own = {field.name: others.pop(field.name) for field in fields(ProbeTerms)}
        terms = ProbeTerms(**cast(Any, own))
        if terms.from_here and not terms.node_ports:
            raise click.UsageError(
                "'--from-here' probes node ports, and '--no-node-ports' has none"
            )
        return command(*args, terms=terms, where=(kubeconfig, context), **others)

    options = (
        click.option("--kubeconfig", metavar="FILE", help="Default: $KUBECONFIG, ~/.kube/config."),
        click.option("--context", metavar="NAME", help="Default: the current context."),
        click.option("--namespace", default="", metavar="NAME", help="An existing namespace."),
        click.option("--nodes", multiple=True, metavar="NODE|KEY=VALUE", help="Only these."),
        click.option("--max-nodes", "most_nodes", type=click.IntRange(1), default=50,
                     show_default=True,
                     help="Probe at most this many nodes, of every system, build and zone."),
        click.option("--tolerate", "tolerations", multiple=True, metavar="KEY[=VALUE][:EFFECT]",
                     help="Taint to tolerate. Control planes' taints are always tolerated."),
        click.option("--image", default=IMAGE, help="Image of Kubernetes' agnhost."),
        click.option("--image-prefix", "prefix", default="", metavar="REGISTRY/PATH",
                     help="Pull the image from there."),
        click.option("--pull-secret", "pull_secrets", multiple=True, metavar="NAME",
                     help="An image pull secret in the namespace."),
        click.option("--node-ports/--no-node-ports", default=True, show_default=True,
                     help="Services of the type NodePort, and their family."),
        click.option("--host-network", is_flag=True,
                     help="Probe from the nodes, too, by a pod in each node's own network."),
        click.option("--debug-pods", is_flag=True,
                     help="Explain failures by the nodes' own state, too: a privileged pod on "
                          "each Linux node reads it."),
        click.option("--from-here", is_flag=True,
                     help="Probe node ports from this machine, too."),
        click.option("--rate", type=click.IntRange(1), default=200, show_default=True,
                     help="Connections a second from each node."),
    )  # fmt: skip
    decorated: Callable[..., object] = termed
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


@click.command("attach")
@click.argument("name", metavar="NAME", required=False)
@cluster_options
@click.option("--dry-run", is_flag=True, help="Print what was found, and make nothing.")
@click.option("--rbac", is_flag=True, help="Print the roles with the rights that are needed.")
@click.option(
    "--write",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a scenario of the same shape, and make nothing.",
)
@json_option("Print what was found, or done, as JSON.")
def attach_command(
    name: str | None,
    where: Where,
    terms: ProbeTerms,
    dry_run: bool,
    rbac: bool,
    write: Path | None,
    as_json: bool,
) -> None:
    """Put probe pods into the cluster of a kubeconfig, as lab NAME.

    Nothing of the cluster is changed but a namespace of the lab's own, with two pods on each node
    and their Services. "lab test", "explain", "status", "report" and "diff" then take NAME;
    "lab detach NAME" takes everything away. "lab check" is all of that in one command.

    \b
      lab attach prod --context prod --dry-run
      lab attach prod --context prod
      lab test prod
      lab detach prod

    Exit codes: 2 kubeconfig, context or option wrong; 4 no answer, no rights, an expired token, or
    a credential plug-in that does not end.
    """  # noqa: D301  \b tells click not to rewrap
    from lab.machines.attached import entry, rights

    if rbac:
        echo(_to_yaml(rights.make_roles(terms)), nl=False)
        return
    address = entry.choose_context(*where)
    if not (dry_run or write) and name is None:
        raise click.UsageError("Missing argument 'NAME'")
    record = entry.look(address, name or _label(address.context), terms)
    if write:
        _write(write, record)
        return
    if dry_run:
        _show(record, as_json, echo)
        return
    _show(record, False, say)
    again = entry.attach_command(record, where[0])
    with entry.held(record.lab, again):
        result = entry.enter(record, again, say)
    if as_json:
        echo_json(result)
    elif result.changed:
        nodes = quantity(len(record.cluster.nodes), "node")
        echo(f"lab '{result.lab}' is attached to {nodes}, in {result.seconds:.1f} s")


@click.command("check", context_settings={"ignore_unknown_options": True})
@cluster_options
@click.argument(
    "selection",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[PYTEST OPTIONS]...",
    shell_complete=selections,
)
@json_option("Print the whole result as JSON.")
@click.pass_context
def check_command(
    ctx: click.Context,
    where: Where,
    terms: ProbeTerms,
    selection: tuple[str, ...],
    as_json: bool,
) -> int:
    """Test the cluster of a kubeconfig, explain what is red, and leave it as it was.

    Probe pods are put into a namespace of their own, every cell is probed and judged, failures get
    what the API shows to be wrong, and everything is taken away, also on Ctrl-C. After a kill
    "lab gc --yes" does that. The report is kept. pytest's own options choose cells.

    \b
      lab check
      lab check --context prod --nodes kubernetes.io/os=windows
      lab check -k "pod-service and udp"

    Exit codes: 0 every cell is as expected; 1 cells failed; 2 kubeconfig, context or option wrong;
    3 probe pods cannot run, or the cluster was lost; 4 no answer, no rights, an expired token, or a
    credential plug-in that does not end.
    """  # noqa: D301  \b tells click not to rewrap
    from lab.lifecycle import api
    from lab.lifecycle.interruption import terminable
    from lab.machines.attached import entry

    address = entry.choose_context(*where)
    lab = f"check-{secrets.token_hex(3)}"
    record = entry.look(address, lab, terms)
    _show(record, False, say)
    repeat = entry.check_command(record, where[0])
    with terminable(), entry.held(lab, "lab check"):
        try:
            entry.enter(record, entry.attach_command(record, where[0]), say, temporary=True)
            return int(
                ctx.invoke(
                    test.command, name=lab, selection=selection, repeat_with=repeat, as_json=as_json
                )
            )
        finally:
            if api.is_known(lab):
                down.take_down(lab, attached=True)


@click.command("detach")
@lab_argument()
@click.option("--forget", is_flag=True, help="Of a cluster that is gone: do not ask it.")
@json_option("Print what was done as JSON.")
def detach_command(name: str, forget: bool, as_json: bool) -> None:
    """Take the probe pods of LAB out of its cluster; only the reports of its runs remain.

    What is removed has the lab's labels; nothing else of the cluster is touched. If the cluster no
    longer exists, --forget takes LAB out of the journal alone, and prints how to remove what may be
    left.
    """
    if forget:
        from lab.machines.attached import entry

        result, remains = entry.forget(name, say)
        if as_json:
            echo_json(result)
        elif result.changed:
            echo(f"lab '{name}' is forgotten; what may be left in its cluster: {remains}")
        return
    result, _ = down.take_down(name, attached=True)
    if as_json:
        echo_json(result)
    elif result.changed:
        echo(f"lab '{name}' is detached: nothing of it is left in the cluster")


def _show(record: AttachedRecord, as_json: bool, show: Callable[[str], None]) -> None:
    from lab.machines.attached.words import summarise

    if as_json:
        echo_json(record.cluster)
        return
    for line in summarise(record):
        show(line)


def _write(path: Path, record: AttachedRecord) -> None:
    from lab.machines.attached.scenario import to_scenario
    from lab.state.failure import guarded_files
    from lab.state.files import open_output

    action = f"writing '{path}'"
    with guarded_files(action), open_output(path, action) as opened:
        opened.write(to_scenario(record.lab, record.cluster).encode())
    say(f"written: '{path}'; 'lab validate {path}' checks it, 'lab up {path}' brings it up")


def _label(context: str) -> str:
    """The name of a lab, from that of a context."""
    letters = "".join(c if c.isascii() and c.isalnum() else "-" for c in context.lower())
    return letters.strip("-")[:40].strip("-") or "cluster"


def _to_yaml(documents: object) -> str:
    from io import StringIO

    from ruamel.yaml import YAML

    text = StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.explicit_start = True
    yaml.dump_all(documents, text)
    return text.getvalue()
