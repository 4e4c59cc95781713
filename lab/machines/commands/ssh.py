"""``lab ssh``, ``ssh-config``, ``ansible-inventory``, ``kubeconfig``: ways into a lab."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import click

from lab._log import say
from lab.cli.complete import machines
from lab.cli.options import lab_argument
from lab.cli.output import echo
from lab.cli.shell import Exec


@click.command("ssh", cls=Exec)
@lab_argument()
@click.argument("machine", metavar="MACHINE", shell_complete=machines)
@click.argument("words", metavar="[--] [CMD]...", nargs=-1, type=click.UNPROCESSED)
def ssh_command(name: str, machine: str, words: tuple[str, ...]) -> int:
    """Log in to a machine of LAB over SSH, as root, or run CMD there with its exit code.

    On Windows as Administrator.

    For labs of real machines; "lab shell" and "lab exec" work on every lab, and in pods.

    \b
      lab ssh overlay worker1
      lab ssh overlay worker1 -- journalctl -b
    """  # noqa: D301  \b tells click not to rewrap
    from lab.lifecycle.api import open_any
    from lab.machines.access import log_in

    opened = open_any(name)
    return log_in(opened, machine, words, f"logging in to '{machine}' of lab '{name}'")


@click.command("ssh-config")
@lab_argument()
def ssh_config(name: str) -> None:
    """Print an SSH configuration for the machines of LAB, as hosts LAB-MACHINE.

    It is also written into the lab's directory, beside the host keys, and removed with the lab:

    \b
      lab ssh-config overlay > overlay.ssh
      ssh -F overlay.ssh overlay-worker1
    """  # noqa: D301  \b tells click not to rewrap
    from lab.lifecycle.api import open_any
    from lab.machines.access import write_ssh_files

    opened = open_any(name)
    files = write_ssh_files(opened, f"writing ssh's configuration for lab '{name}'")
    say(f"the same is in '{files.config}'; 'Include' it in ~/.ssh/config, or use 'ssh -F'")
    echo(files.text, nl=False)


@click.command("ansible-inventory")
@lab_argument()
def ansible_inventory(name: str) -> None:
    """Print an Ansible inventory (YAML) of LAB, grouped by system, kind and role.

    Ansible logs in with the SSH configuration of "lab ssh-config", which this command writes too:

    \b
      lab ansible-inventory overlay > overlay.yaml
      ansible -i overlay.yaml worker -m ping
    """  # noqa: D301  \b tells click not to rewrap
    from ruamel.yaml import YAML

    from lab.lifecycle.api import open_any
    from lab.machines.access import ansible

    opened = open_any(name)
    document = ansible(opened, f"writing Ansible's inventory of lab '{name}'")
    writer = YAML(typ="safe")
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    text = StringIO()
    writer.dump(document, text)
    echo(text.getvalue(), nl=False)


@click.command("kubeconfig")
@lab_argument()
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Write it to this file."
)
def kubeconfig_command(name: str, output: Path | None) -> None:
    """Print the administrator's kubeconfig of LAB's cluster.

    \b
      lab kubeconfig overlay -o overlay.conf
      kubectl --kubeconfig overlay.conf get nodes
    """  # noqa: D301  \b tells click not to rewrap
    from lab.lifecycle.api import open_any
    from lab.machines import access
    from lab.machines.cluster.credentials import kubeconfig_text

    opened = open_any(name)
    exported = access.export(opened)
    if output:
        access.write(exported.access, output)
        say(f"kubectl --kubeconfig {output} get nodes")
    else:
        echo(kubeconfig_text(exported.access), nl=False)
    if exported.tunnel:
        say(
            "the machines are behind another hypervisor; keep this running while you use it: "
            f"{exported.tunnel}"
        )
