"""Ways into the machines of a lab for other programs: ssh's configuration, Ansible's inventory."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab._errors import UsageError
from lab.lifecycle.real_machines import real_machines
from lab.lifecycle.session import OpenLab
from lab.plan.plan import Plan
from lab.remote.keys import alias, known_hosts, ssh_config
from lab.remote.shell import Reach
from lab.scenario.terms import Os
from lab.state.directory import make_private
from lab.state.files import write_private
from lab.topology.intent import Intent

_DIRECTORY = "ssh"
_ROOT = "root"


@dataclass(frozen=True, slots=True)
class SshFiles:
    """What was written into the lab's directory; it goes with the lab."""

    config: Path
    text: str
    """Of the configuration."""


def machine_name(opened: OpenLab, name: str, doing: str) -> str:
    """The name, if it is a machine's.

    Raises
    ------
    UsageError
        If it is none; a pod is said to be one, of any other the nearest is named.

    """
    machines = [machine.name for machine in opened.intent.machines]
    if name in machines:
        return name
    node = next(
        (
            machine.name
            for machine in opened.intent.machines
            if name in {pod.name for pod in machine.pods}
        ),
        None,
    )
    if node:
        raise UsageError(
            doing,
            f"'{name}' is a pod on '{node}', and no machine of its own",
            f"lab shell {opened.name} {name}",
        )
    from difflib import get_close_matches  # noqa: PLC0415  only a wrong name pays for it

    near = get_close_matches(name, machines, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise UsageError(
        doing, f"it has no machine '{name}'", f"{hint}the machines are {', '.join(machines)}"
    )


def reach_of(opened: OpenLab, name: str, doing: str) -> Reach:
    """How to get a shell on one machine.

    Raises
    ------
    UsageError
        When there is no such machine, or the provider's are none to log in to.
    BrokenError
        When the lab's machines are not there.

    """
    provider = real_machines(opened.provider, doing)
    wanted = machine_name(opened, name, doing)
    reaches = provider.reaches(opened.handle, opened.intent)
    return next(one for one in reaches if one.name == wanted)


def log_in(opened: OpenLab, name: str, words: tuple[str, ...], doing: str) -> int:
    """Log in to one machine over SSH, or run a command there; its exit code.

    A Windows machine's administrator needs no sudo, and there is none.

    Raises
    ------
    UsageError
        When there is no such machine, or the provider's are none to log in to.
    BrokenError
        When the lab's machines are not there, or sleep.

    """
    from lab.remote.ssh import SshShell  # noqa: PLC0415  slow, and an extra

    real_machines(opened.provider, doing)
    wanted = machine_name(opened, name, doing)
    with opened.reached():
        if opened.intent.machine(wanted).os == "windows":
            return opened.provider.machine(opened.handle, opened.intent, wanted).attach(words)
        shell = SshShell(reach_of(opened, wanted, doing))
        try:
            return shell.attach(words)
        finally:
            shell.close()


def write_ssh_files(opened: OpenLab, doing: str) -> SshFiles:
    """Write configuration and known hosts into the lab's directory.

    Raises
    ------
    UsageError
        When the provider's machines are none to log in to.
    BrokenError
        When the lab's machines are not there.
    StateError
        When the files cannot be written.

    """
    reaches = real_machines(opened.provider, doing).reaches(opened.handle, opened.intent)
    directory = opened.handle.directory / _DIRECTORY
    make_private(directory)
    known = directory / "known_hosts"
    write_private(known, known_hosts(opened.name, reaches))
    files = SshFiles(directory / "config", ssh_config(opened.name, reaches, known))
    write_private(files.config, files.text)
    return files


def ansible(opened: OpenLab, doing: str) -> dict[str, Any]:
    """An Ansible inventory that logs in by the configuration of :func:`write_ssh_files`.

    Raises as that does.
    """
    files = write_ssh_files(opened, doing)
    reaches = real_machines(opened.provider, doing).reaches(opened.handle, opened.intent)
    return inventory(opened.name, opened.plan, opened.intent, reaches, files.config)


def inventory(
    lab: str, plan: Plan, intent: Intent, reaches: Iterable[Reach], config: Path
) -> dict[str, Any]:
    """The inventory as data, ready for YAML. Pure.

    Groups are the operating systems, the kinds ``nodes``, ``routers`` and ``clients``, and of
    nodes the roles, with ``_`` for ``-``.
    """
    systems = {machine.name: machine.os for machine in intent.machines}
    hosts = {one.name: _host(lab, one, systems.get(one.name, "linux")) for one in reaches}
    groups: dict[str, dict[str, Any]] = {}
    for machine in intent.machines:
        if machine.name not in hosts:
            continue
        names = [machine.os, "services" if machine.kind == "services" else f"{machine.kind}s"]
        if machine.kind == "node":
            names.append(plan.node(machine.name).role)
        for name in names:
            group = groups.setdefault(name.replace("-", "_"), {"hosts": {}})
            group["hosts"][machine.name] = None
    arguments = f"-F {shlex.quote(str(config))}"
    return {
        "all": {
            "vars": {"ansible_ssh_common_args": arguments},
            "hosts": hosts,
            "children": {name: groups[name] for name in sorted(groups)},
        }
    }


def _host(lab: str, reach: Reach, os: Os) -> Mapping[str, object]:
    facts: dict[str, object] = {"ansible_host": alias(lab, reach.name)}
    if os == "windows":
        facts |= {"ansible_connection": "ssh", "ansible_shell_type": "powershell"}
    elif reach.user != _ROOT:
        facts["ansible_become"] = True
    return facts
