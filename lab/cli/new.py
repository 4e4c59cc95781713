"""``lab new``: write a scenario to start from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lab.cli.complete import topologies
from lab.cli.options import output_option
from lab.cli.output import echo, write_file

if TYPE_CHECKING:
    from lab.lifecycle.draft import ScenarioDraft

_MOST = 100
"""Nodes of each operating system; the draft's network has no room for more."""


@click.command("new")
@click.argument("name")
@click.option(
    "--topology",
    metavar="KIND",
    help="How the pods of the nodes are connected (default: overlay); an unknown KIND lists all "
    "of them.",
    shell_complete=topologies,
)
@click.option(
    "--linux",
    type=click.IntRange(1, _MOST),
    help="Number of Linux nodes, including the control plane (default: 2).",
)
@click.option(
    "--windows",
    type=click.IntRange(0, _MOST),
    help="Number of Windows nodes (default: 1; with --from, 0).",
)
@click.option(
    "--from",
    "begun_from",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Start from a kind or kubeadm configuration, a kube-flannel ConfigMap or a Calico "
    "Installation; what is left out is listed on standard error.",
)
@output_option("The file to write (default: NAME.yaml).")
@click.option(
    "--schema",
    "with_schema",
    is_flag=True,
    help="Write the JSON Schema beside it, for editors on other machines.",
)
def command(
    name: str,
    topology: str | None,
    linux: int | None,
    windows: int | None,
    begun_from: Path | None,
    output: Path | None,
    with_schema: bool,
) -> None:
    """Write a scenario to start from, NAME.yaml, with a comment for each key.

    \b
      lab new mine --topology host-gateway --linux 3 --windows 1
      lab run mine.yaml

    An existing file is not overwritten. Its first line tells editors where the JSON Schema of its
    keys is: in this installation, or with --schema beside the file.
    """  # noqa: D301  \b tells click not to rewrap
    from lab._errors import UsageError
    from lab.lifecycle.draft import ScenarioDraft, draft_nodes, write_draft
    from lab.scenario.loader import SCHEMA_FILE, schema_file

    if begun_from:
        draft = _begin(name, topology, linux, windows or 0, begun_from)
    else:
        nodes = draft_nodes(linux or 2, 1 if windows is None else windows)
        draft = ScenarioDraft(name, nodes, topology or "overlay")
    text = write_draft(draft)
    path, action = output or Path(f"{name}.yaml"), f"writing scenario '{name}'"
    if path.exists() and path.is_file():
        raise UsageError(action, f"'{path}' already exists", "use another name, or another -o")
    beside = path.with_name(SCHEMA_FILE)
    if with_schema:
        _write_schema(beside, action)
    schema = SCHEMA_FILE if with_schema else schema_file().as_uri()
    write_file(path, f"# yaml-language-server: $schema={schema}\n{text}".encode(), action)
    echo(path)


def _write_schema(path: Path, action: str) -> None:
    """Write the schema of scenario files, unless it is there already."""
    from lab._errors import UsageError
    from lab.scenario.loader import schema_file

    content = schema_file().read_bytes()
    if path.is_file() and path.read_bytes() != content:
        words = f"'{path}' already exists, and is not the schema of this version"
        raise UsageError(action, words, "remove it, or use another directory with -o")
    if not path.is_file():
        write_file(path, content, action)


def _begin(
    name: str, topology: str | None, linux: int | None, windows: int, file: Path
) -> ScenarioDraft:
    """Begin a draft from a file, and print what it does not say of the file."""
    from lab._errors import UsageError
    from lab._log import say
    from lab.lifecycle.conversion import CONFIGURATION, convert
    from lab.scenario.source import StopError, read_bytes

    try:
        raw = read_bytes(file, CONFIGURATION)
    except StopError as stop:
        finding = stop.finding
        raise UsageError(f"reading '{file}'", finding.what, finding.hint) from None
    begun = convert(raw, file.name, name, topology=topology, linux=linux, windows=windows)
    if begun.left_out:
        say(f"left out of '{file}':")
    for line in begun.left_out:
        say(f"  {line}")
    if begun.chosen:
        say(f"not in '{file}': {', '.join(begun.chosen)}")
    return begun.draft
