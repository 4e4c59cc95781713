"""``lab ansible-inventory``: the machines of a lab for Ansible."""

from __future__ import annotations

from io import StringIO

import click

from lab._log import say
from lab.cli.lab_argument import lab_argument
from lab.cli.output import echo


@click.command("ansible-inventory")
@lab_argument()
def command(name: str) -> None:
    """Print an Ansible inventory (YAML) of LAB, grouped by system, kind and role.

    Ansible logs in by the configuration that "lab ssh-config" writes, which this writes anew:

    \b
      lab ansible-inventory overlay > overlay.yaml
      ansible -i overlay.yaml worker -m ping
    """  # noqa: D301  click's own mark for text that is not to be rewrapped
    from ruamel.yaml import YAML

    from lab.lifecycle.access import ansible
    from lab.lifecycle.api import open_any

    opened = open_any(name)
    document = ansible(opened, f"writing Ansible's inventory of lab '{name}'")
    say(opened.banner)
    writer = YAML(typ="safe")
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    text = StringIO()
    writer.dump(document, text)
    echo(text.getvalue(), nl=False)
