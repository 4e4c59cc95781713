"""Ways into a lab: SSH, Ansible's inventory, and its cluster's kubeconfig."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from lab._deadline import Deadline
from lab._errors import BrokenError, UsageError
from lab.lifecycle.open_lab import OpenLab, machine_name
from lab.lifecycle.providers import real_machines
from lab.machines.cluster.cluster import API_PORT
from lab.machines.cluster.credentials import (
    Access,
    KubeconfigError,
    context_name,
    is_export,
    kubeconfig_text,
    read_kubeconfig,
)
from lab.machines.ssh.keys import alias, known_hosts, ssh_config
from lab.plan.plan import Plan
from lab.scenario.terms import Os
from lab.shells.shell import Reach
from lab.state.directory import make_private
from lab.state.failure import guarded_files
from lab.state.files import open_output, write_private
from lab.topology.intent import Intent

_DIRECTORY = "ssh"
_ROOT = "root"


@dataclass(frozen=True, slots=True)
class SshFiles:
    """SSH files in the lab's directory, which ``lab down`` removes."""

    config: Path
    text: str
    """Content of ``config``."""


def reach_of(opened: OpenLab, name: str, action: str) -> Reach:
    """How to get a shell on one machine.

    Raises UsageError when there is no such machine, or its provider has no machines with SSH.
    Raises BrokenError when the lab's machines do not exist.
    """
    provider = real_machines(opened.provider, action)
    wanted = machine_name(opened, name, action)
    reaches = provider.reaches(opened.handle, opened.intent)
    return next(reach for reach in reaches if reach.name == wanted)


def log_in(opened: OpenLab, name: str, words: tuple[str, ...], action: str) -> int:
    """Log in to one machine over SSH, or run a command there; return the exit code.

    On Windows no sudo is used: there is none, and the administrator needs none.

    Raises UsageError when there is no such machine, or its provider has no machines with SSH.
    Raises BrokenError when the lab's machines do not exist or are suspended.
    """
    from lab.machines.ssh.shell import SshShell  # noqa: PLC0415  slow, and an extra

    real_machines(opened.provider, action)
    wanted = machine_name(opened, name, action)
    with opened.reached():
        if opened.intent.machine(wanted).os == "windows":
            return opened.provider.machine(opened.handle, opened.intent, wanted).attach(words)
        shell = SshShell(reach_of(opened, wanted, action))
        try:
            return shell.attach(words)
        finally:
            shell.close()


def write_ssh_files(opened: OpenLab, action: str) -> SshFiles:
    """Write configuration and known hosts into the lab's directory.

    Raises UsageError when the provider's machines have no SSH. Raises BrokenError when the lab's
    machines do not exist. Raises StateError when the files cannot be written.
    """
    reaches = real_machines(opened.provider, action).reaches(opened.handle, opened.intent)
    directory = opened.handle.directory / _DIRECTORY
    make_private(directory)
    known = directory / "known_hosts"
    write_private(known, known_hosts(opened.name, reaches))
    files = SshFiles(directory / "config", ssh_config(opened.name, reaches, known))
    write_private(files.config, files.text)
    return files


def ansible(opened: OpenLab, action: str) -> dict[str, Any]:
    """An Ansible inventory that uses the configuration of :func:`write_ssh_files`.

    Raises the errors of :func:`write_ssh_files`.
    """
    files = write_ssh_files(opened, action)
    reaches = real_machines(opened.provider, action).reaches(opened.handle, opened.intent)
    return inventory(opened.name, opened.plan, opened.intent, reaches, files.config)


def inventory(
    lab: str, plan: Plan, intent: Intent, reaches: Iterable[Reach], config: Path
) -> dict[str, Any]:
    """The inventory as data, ready for YAML. Pure.

    Groups are the operating systems, the kinds ``nodes``, ``routers`` and ``clients``, and the
    roles of nodes, with ``_`` for ``-``.
    """
    systems = {machine.name: machine.os for machine in intent.machines}
    hosts = {reach.name: _host(lab, reach, systems.get(reach.name, "linux")) for reach in reaches}
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


_ADMIN = "/etc/kubernetes/admin.conf"
_READ_SECONDS = 60.0
_FIRST_PORT = 20_000
_PORTS = 10_000
"""Number of local ports for tunnels; the lab's name chooses one."""
_USERS = ""
"""Hint of errors: the user has named the file, so there is no other place to suggest."""


@dataclass(frozen=True, slots=True)
class Exported:
    """Access to the cluster, and the tunnel it needs."""

    access: Access
    tunnel: str | None
    """The ``ssh`` command that forwards the local port to the cluster; None if none is needed."""


def planes(intent: Intent) -> tuple[str, ...]:
    """Names of the control-plane machines."""
    return tuple(
        machine.name
        for machine in intent.machines
        if machine.kubelet and machine.kubelet.role == "control-plane"
    )


def find_front(intent: Intent) -> str:
    """The machine that serves the API: the load balancer, or the only control plane."""
    balancer = intent.balancer()
    return balancer.name if balancer else planes(intent)[0]


def export(opened: OpenLab) -> Exported:
    """The administrator's access to the lab's cluster.

    Raises UsageError when the lab has no cluster. Raises BrokenError when its machines do not
    exist, or have no cluster yet.
    """
    action = f"reading the kubeconfig of lab '{opened.name}'"
    if opened.intent.kubernetes is None:
        raise UsageError(
            action,
            "its pods are network namespaces, and it has no cluster",
            f"'lab down {opened.name}', then 'lab up' with '--provider nspawn --only linux', or "
            "with '--provider libvirt'",
        )
    content = _read_admin(reach_of(opened, planes(opened.intent)[0], action), action)
    try:
        access = read_kubeconfig(content, context_name(opened.name))
    except KubeconfigError as error:
        raise BrokenError(action, f"'{_ADMIN}' cannot be used: {error}", opened.again) from error
    reach = reach_of(opened, find_front(opened.intent), action)
    if reach.jump is None:
        return Exported(access.at(f"https://{reach.address}:{API_PORT}"), None)
    port = local_port(opened.name)
    files = write_ssh_files(opened, action)
    host = f"{opened.name}-{reach.name}"
    tunnel = f"ssh -F {files.config} -N -L 127.0.0.1:{port}:127.0.0.1:{API_PORT} {host}"
    return Exported(access.at(f"https://127.0.0.1:{port}"), tunnel)


def write(access: Access, path: Path) -> None:
    """Write a lab's kubeconfig to a file, a pipe or a device.

    On an error, an existing file is unchanged.

    Raises UsageError when the file holds anything but an earlier export, or belongs to another
    user. Raises StateError when it cannot be written.
    """
    action = f"writing the kubeconfig '{access.name}' to '{path}'"
    with guarded_files(action, _USERS), open_output(path, action, _is_earlier_export) as file:
        file.write(kubeconfig_text(access).encode())


def _is_earlier_export(content: bytes) -> bool:
    return not content.strip() or is_export(content.decode(errors="replace"))


def local_port(lab: str) -> int:
    """The local port that a tunnel to the lab's API uses, the same every time."""
    return _FIRST_PORT + int(sha256(lab.encode()).hexdigest()[:8], 16) % _PORTS


def _read_admin(reach: Reach, action: str) -> str:
    from lab.machines.ssh.shell import SshShell  # noqa: PLC0415  slow, and an extra

    shell = SshShell(reach)
    try:
        return shell.get(_ADMIN, Deadline(_READ_SECONDS)).decode()
    except UnicodeDecodeError as error:
        raise BrokenError(action, f"'{_ADMIN}' is not text") from error
    finally:
        shell.close()
