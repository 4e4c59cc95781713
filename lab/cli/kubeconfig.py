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
@click.option(
    "--merge", is_flag=True, help="Put it into your own kubeconfig, as a context of its own."
)
def command(name: str, output: Path | None, merge: bool) -> None:
    """Print the kubeconfig of LAB's cluster, its administrator's.

    Merged, it is the context "hybridlab-LAB", chosen; "lab down" takes it out again.

    \b
      lab kubeconfig overlay > overlay.conf
      lab kubeconfig overlay --merge && kubectl get nodes
    """  # noqa: D301  click's own mark for text that is not to be rewrapped
    import os

    from lab._errors import UsageError
    from lab.cluster import kubeconfig
    from lab.lifecycle import kube_access, kube_file
    from lab.lifecycle.desk import open_any

    if merge and output:
        raise UsageError(
            f"writing the kubeconfig of lab '{name}'",
            "'--merge' and '--output' cannot go together",
            "choose one of them",
        )
    opened = open_any(name)
    say(opened.banner)
    exported = kube_access.export(opened)
    if merge:
        path = kube_file.user_file(os.environ)
        kube_file.merge(opened.handle.directory, exported.access, path)
        say(f"the context '{exported.access.name}' is in '{path}', and is chosen")
    elif output:
        kube_file.write(exported.access, output)
        say(f"kubectl --kubeconfig {output} get nodes")
    else:
        echo(kubeconfig.text(exported.access), nl=False)
    if exported.tunnel:
        say(f"the machines are behind another hypervisor; while you use it, run: {exported.tunnel}")
