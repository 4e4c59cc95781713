"""``lab kubeconfig``: the way into a lab's cluster."""

from __future__ import annotations

from pathlib import Path

import click

from lab._log import say
from lab.cli.lab_argument import lab_argument
from lab.cli.output import echo


@click.command("kubeconfig")
@lab_argument()
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file."
)
def command(name: str, output: Path | None) -> None:
    """Print the kubeconfig of LAB's cluster, its administrator's.

    \b
      lab kubeconfig overlay -o overlay.conf
      kubectl --kubeconfig overlay.conf get nodes
    """  # noqa: D301  click's own mark for text that is not to be rewrapped
    from lab.cluster import kubeconfig
    from lab.lifecycle import access
    from lab.lifecycle.api import open_any

    opened = open_any(name)
    say(opened.banner)
    exported = access.export(opened)
    if output:
        access.write(exported.access, output)
        say(f"kubectl --kubeconfig {output} get nodes")
    else:
        echo(kubeconfig.text(exported.access), nl=False)
    if exported.tunnel:
        say(f"the machines are behind another hypervisor; while you use it, run: {exported.tunnel}")
