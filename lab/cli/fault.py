"""``lab fault`` and ``lab heal``: break a lab on purpose, in a known way, and repair it."""

from __future__ import annotations

import json
from functools import wraps
from typing import TYPE_CHECKING

import click

from lab._log import say
from lab.cli.complete import fault_names, fault_nodes, fault_peers, faults_put_in
from lab.cli.options import json_option, lab_argument
from lab.cli.output import echo, echo_json, say_disclaimer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lab.explain.faults.registry import Fault, FaultSite
    from lab.lifecycle.faults import FaultRequest


def _fault_options(command: Callable[..., object]) -> Callable[..., object]:
    """Give a command FAULT, VALUE, --node and --peer; its function gets a ``request`` of them."""

    @wraps(command)
    def requested(
        *, fault: str | None, figures: tuple[str, ...], node: str, peer: str, **others: object
    ) -> object:
        from lab.lifecycle.faults import FaultRequest

        words = () if fault is None else (fault, *figures)
        return command(request=FaultRequest(" ".join(words), node, peer), **others)

    options = (
        click.argument("fault", metavar="[FAULT]", required=False, shell_complete=fault_names),
        click.argument("figures", metavar="[VALUE]...", nargs=-1),
        click.option(
            "--node",
            default="",
            help="The machine to break (default: the first that can have the fault).",
            shell_complete=fault_nodes,
        ),
        click.option(
            "--peer",
            default="",
            help="The other end, a node or a pod depending on the fault (default: the first).",
            shell_complete=fault_peers,
        ),
    )
    decorated: Callable[..., object] = requested
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


@click.command("fault")
@lab_argument(required=False)
@_fault_options
@click.option(
    "--random",
    "seed",
    type=int,
    metavar="SEED",
    help="Put in a random fault, for 'lab explain' to find; the same for the same SEED.",
)
@click.option(
    "--list", "listing", is_flag=True, help="List the faults; with LAB, where each is possible."
)
@json_option()
def fault_command(
    name: str | None, request: FaultRequest, seed: int | None, listing: bool, as_json: bool
) -> None:
    """Put FAULT into LAB, to see what it looks like; 'lab heal LAB' removes it.

    \b
      lab fault --list
      lab fault overlay wrong-vni --node worker1
      lab fault overlay route-missing --node worker1 --peer win1
      lab fault overlay packet-loss 5% --node worker1
      lab fault overlay slow-link 100mbit
      lab fault overlay --random 7

    Which faults are possible depends on the lab: "lab fault --list LAB" names the machines.
    """  # noqa: D301  \b tells click not to rewrap
    from lab.lifecycle import api

    if listing:
        if any((request.name, request.node, request.peer)) or seed is not None:
            raise click.UsageError("'--list' takes a lab or nothing, and lists every fault")
        _list(name, as_json)
        return
    if name is None or bool(request.name) == (seed is not None):
        raise click.UsageError("name a lab and a fault, or use '--random' or '--list'")
    from lab.lifecycle import faults
    from lab.lifecycle.faults import words

    if seed is not None and (request.node or request.peer):
        raise click.UsageError(
            "'--random' chooses the machine, too: leave '--node' and '--peer' out"
        )
    opened = api.open_any(name)
    say_disclaimer(opened)
    if seed is not None:
        row = faults.put_random(opened, seed, say)
    else:
        row = faults.put_in(opened, request, say)
    if as_json:
        echo(json.dumps({"fault": row.name, "node": row.node, "peer": row.peer}))
        return
    if seed is not None:  # the user wants to find a random fault: do not name it
        echo(
            f"a random fault, of seed {seed}, is in lab '{name}'; 'lab test {name}' shows it, "
            f"'lab status {name}' names it, 'lab heal {name}' removes it"
        )
        return
    echo(f"fault {words(row)} is in lab '{name}'; 'lab heal {name}' removes it")


def _list(name: str | None, as_json: bool) -> None:
    from lab.explain.faults.registry import faults

    where: Mapping[str, tuple[FaultSite, ...]] = {}
    if name is not None:
        from lab.lifecycle import api
        from lab.lifecycle.faults import find_possible_faults

        opened = api.open_any(name)
        say_disclaimer(opened)
        where = find_possible_faults(opened, say)
    if as_json:
        echo_json([_make_plain(fault, where) for fault in faults().values()])
        return
    width = max(len(fault) for fault in faults())
    for fault in faults().values():
        figures = f"; or with {fault.figures}" if fault.figures else ""
        echo(f"{fault.name:<{width}}  {fault.title}{figures}")
        if name is not None:
            echo(f"{'':<{width}}    {_sites_text(fault, where[fault.name])}")


def _make_plain(fault: Fault, where: Mapping[str, tuple[FaultSite, ...]]) -> dict[str, object]:
    plain: dict[str, object] = {"name": fault.name, "title": fault.title, "peer": fault.peer}
    if where:
        plain["sites"] = [{"node": site.node, "peers": site.peers} for site in where[fault.name]]
    return plain


def _sites_text(fault: Fault, where: tuple[FaultSite, ...]) -> str:
    if not where:
        return f"not possible here: it needs {fault.needs}"
    return "--node " + ", ".join(site.node for site in where)


@click.command("heal")
@lab_argument()
@click.argument("fault", metavar="[FAULT]", required=False, shell_complete=faults_put_in)
@click.option("--node", default="", help="Only FAULT on this machine.")
@click.option("--peer", default="", help="Only FAULT with this other end.")
@json_option()
def heal_command(name: str, fault: str | None, node: str, peer: str, as_json: bool) -> None:
    """Remove every fault that 'lab fault' has put into LAB, or FAULT alone.

    \b
      lab heal overlay packet-loss   # others stay in
      lab heal overlay

    The command waits until daemons (BIRD, keepalived) have converged again, unless other faults
    remain.
    """  # noqa: D301  \b tells click not to rewrap
    from lab.lifecycle import api
    from lab.lifecycle.faults import FaultRequest, heal, words

    if fault is None and (node or peer):
        raise click.UsageError("'--node' and '--peer' need the name of a FAULT")
    only = None if fault is None else FaultRequest(fault, node, peer)
    opened = api.open_any(name)
    say_disclaimer(opened)
    done = heal(opened, say, only)
    if as_json:
        removed = [
            {"fault": removal.name, "node": removal.node, "peer": removal.peer}
            for removal in done.removed
        ]
        echo_json({"mended": removed, "rebuilt": [rebuilt.name for rebuilt in done.rebuilt]})
        return
    for row in done.removed:
        echo(f"removed {words(row)}")
    for row in done.rebuilt:
        echo(f"lab '{name}' was rebuilt since {words(row)} was put in, which removed it")
    if not done.removed and not done.rebuilt:
        echo(f"lab '{name}' has no faults")
