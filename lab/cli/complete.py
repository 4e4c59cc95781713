"""Shell completion: the script, and the candidates for each argument."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from lab._errors import LabError
from lab.cli.output import echo

if TYPE_CHECKING:
    from lab.explain.faults.registry import FaultSite
    from lab.lifecycle.open_lab import OpenLab
    from lab.matrix.cell import Grid
    from lab.matrix.pairs import EveryEndpoint


MOST_CELLS = 20_000
"""Above this many cells, none is offered before family and source are typed."""


def scenarios(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Shipped scenarios; the shell itself completes paths."""
    from lab.scenario.loader import shipped

    return _keep_beginning(shipped(), begun)


def labs(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Labs of this state directory, including those that are down but have reports."""
    from lab.lifecycle.names import is_name
    from lab.state.directory import state_directory

    try:
        directory = state_directory(os.environ) / "labs"
        return _keep_beginning(sorted(filter(is_name, os.listdir(directory))), begun)  # noqa: PTH208  names
    except (LabError, OSError):
        return []


def runs(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Ids of the kept runs of the lab that has been typed, the latest first."""
    from lab.lifecycle import api

    try:
        directories = api.runs(api.lab_name(_typed_value(ctx, "name")))
    except (LabError, OSError):
        return []
    return _keep_beginning((os.path.basename(path) for path in reversed(directories)), begun)  # noqa: PTH119


def labs_and_scenarios(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Labs and shipped scenarios."""
    return _keep_beginning((*labs(ctx, param, begun), *scenarios(ctx, param, begun)), begun)


def topologies(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Every kind of topology."""
    from lab.topology.registry import topologies as known

    return _keep_beginning(known(), begun)


def images(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Shipped image recipes."""
    from lab._plugins import objects

    folders = objects("images", Path)
    recipes = sorted(file.parent.name for folder in folders for file in folder.glob("*/image.yaml"))
    return _keep_beginning(recipes, begun)


def providers(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Every provider but the one for tests."""
    from lab.lifecycle.providers import Providers, list_offered

    return _keep_beginning(list_offered(Providers()), begun)


def fault_names(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Every fault of 'lab fault'."""
    from lab.explain.faults.registry import faults

    return _keep_beginning(faults(), begun)


def faults_put_in(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """The faults that the lab has."""
    opened = _opened(ctx)
    rows = opened.store.live_faults(opened.name, opened.handle.token) if opened else ()
    return _keep_beginning((row.name for row in rows), begun)


def fault_nodes(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Machines of the lab that can have the fault."""
    return _keep_beginning((site.node for site in _list_sites(ctx)), begun)


def fault_peers(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Peers that the fault can have; only those of ``--node`` if it is given."""
    node = _typed_value(ctx, "node")
    sites = (site for site in _list_sites(ctx) if node in {"", site.node})
    return _keep_beginning((peer for site in sites for peer in site.peers), begun)


def machines(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Machines of the lab."""
    opened = _opened(ctx)
    return (
        _keep_beginning((machine.name for machine in opened.intent.machines), begun)
        if opened
        else []
    )


def places(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Machines of the lab and their pods."""
    opened = _opened(ctx)
    known = opened.intent.machines if opened else ()
    pods = [pod.name for machine in known for pod in machine.pods]
    return _keep_beginning((*(machine.name for machine in known), *pods), begun)


def sources(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Endpoints of the lab that send probes; cell ids once a slash is typed."""
    if "/" in begun:
        return cells(ctx, param, begun)
    ends = _list_endpoints(ctx)
    return _keep_beginning(ends.senders, begun) if ends else []


def targets(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Endpoints of the lab that answer."""
    ends = _list_endpoints(ctx)
    return _keep_beginning(ends.targets, begun) if ends else []


def selections(ctx: click.Context, param: click.Parameter, begun: str) -> list[str]:
    """Ids of the lab's cells, and markers after ``-m``: families, protocols, sizes, systems."""
    if (_words(ctx, param.name or "") or [""])[-1] != "-m":
        return cells(ctx, param, begun)
    from lab.suites.connectivity import MARKERS

    earlier, space, last = begun.rpartition(" ")  # as in "nodeport and la"
    return [f"{earlier}{space}{marker}" for marker in _keep_beginning(MARKERS, last)]


def cells(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    """Ids of the lab's cells; of a large matrix only once family and source are typed."""
    family, _, rest = begun.partition("/")
    grids = [grid for grid in _list_grids(ctx) if grid.family.startswith(family)]
    if "/" not in rest and sum(grid.size for grid in grids) > MOST_CELLS:
        return []
    return _keep_beginning(
        (
            f"{grid.family}/{end.name}/{path.target.name}/{suffix}"
            for grid in grids
            for end in grid.sources
            if end.name.startswith(rest) or rest.startswith(f"{end.name}/")
            for target in grid.targets
            if end.name not in target.excluded
            for path in (target.path(end),)
            for _, _, suffix in grid.variants_of(target)
        ),
        begun,
    )


def _keep_beginning(names: Iterable[str], begun: str) -> list[str]:
    """The names that start with ``begun``, without duplicates."""
    return [name for name in dict.fromkeys(names) if name.startswith(begun)]


def _typed_value(ctx: click.Context, name: str) -> str:
    """The value typed for an argument or an option; empty if there is none.

    After an option that still lacks its value, click leaves the arguments in ``ctx.args``.
    """
    if value := ctx.params.get(name):
        return str(value)
    arguments = [param.name for param in ctx.command.params if isinstance(param, click.Argument)]
    return dict(zip(arguments, ctx.args, strict=False)).get(name, "")


def _words(ctx: click.Context, name: str) -> list[str]:
    """What has been typed for an argument of any number of words."""
    return [*(ctx.params.get(name) or ())]


def _opened(ctx: click.Context) -> OpenLab | None:
    """The lab that has been typed; None if there is none or it cannot be read."""
    from lab.lifecycle.api import lab_name, open_any

    try:
        name = lab_name(_typed_value(ctx, "name"))
        is_lab = name in labs(ctx, ctx.command.params[0], name)
        return open_any(name) if is_lab else None
    except (LabError, OSError):
        return None


def _list_grids(ctx: click.Context) -> tuple[Grid, ...]:
    opened = _opened(ctx)
    if opened is None:
        return ()
    from lab.matrix.cells import make_matrix

    try:
        return make_matrix(opened.plan, opened.intent).grids
    except LabError:
        return ()


def _list_endpoints(ctx: click.Context) -> EveryEndpoint | None:
    opened = _opened(ctx)
    if opened is None:
        return None
    from lab.matrix.cells import every_pair
    from lab.matrix.pairs import EveryEndpoint

    families = every_pair(opened.plan, opened.intent)
    return EveryEndpoint.of(opened.plan, opened.intent, families)


def _list_sites(ctx: click.Context) -> tuple[FaultSite, ...]:
    """Where the planned lab can have the fault that has been typed."""
    from lab.explain.faults import registry

    fault, opened = registry.faults().get(_typed_value(ctx, "fault")), _opened(ctx)
    return tuple(registry.sites(fault, opened.intent)) if fault and opened else ()


SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> None:
    """Print a completion script; for bash: eval "$(lab completion bash)"."""
    from lab.cli.main import command as lab

    script = get_completion_class(shell)
    assert script is not None
    echo(script(lab, {}, "lab", "_LAB_COMPLETE").source())
