"""The way into a lab's cluster for the user's own programs: its kubeconfig.

The server in it is the management address of the machine that answers for the API: its
certificate has that address. Where the lab is on another hypervisor, that address is not
reached from here; then it is a port of this machine, which ``ssh`` has to lead there.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError, UsageError
from lab.cluster.cluster import API_PORT
from lab.cluster.credentials import (
    Access,
    KubeconfigError,
    context_name,
    is_export,
    kubeconfig_text,
    read_kubeconfig,
)
from lab.lifecycle.session import OpenLab
from lab.lifecycle.ssh_access import reach_of, write_ssh_files
from lab.remote.shell import Reach
from lab.state.failure import guarded_files
from lab.state.output_file import open_output
from lab.topology.intent import Intent

_ADMIN = "/etc/kubernetes/admin.conf"
_READ_SECONDS = 60.0
_FIRST_PORT = 20_000
_PORTS = 10_000
"""Local ports that tunnels are given, by the lab's name."""
_USERS = ""
"""There is no other place for a file that is the user's own."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A way into the cluster, and what has to run for it."""

    access: Access
    tunnel: str | None
    """The command that leads the port to the cluster; None where none is needed."""


def planes(intent: Intent) -> tuple[str, ...]:
    """The control planes' names."""
    return tuple(
        machine.name
        for machine in intent.machines
        if machine.kubelet and machine.kubelet.role == "control-plane"
    )


def front(intent: Intent) -> str:
    """The machine that answers for the API: what stands in front, or the one control plane."""
    balancer = intent.balancer()
    return balancer.name if balancer else planes(intent)[0]


def export(opened: OpenLab) -> Exported:
    """The administrator's way into the lab's cluster.

    Raises
    ------
    UsageError
        When the lab has no cluster.
    BrokenError
        When its machines are not there, or have no cluster yet.

    """
    doing = f"reading the kubeconfig of lab '{opened.name}'"
    if opened.intent.kubernetes is None:
        raise UsageError(
            doing,
            "its pods are network namespaces, and it has no cluster",
            f"'lab down {opened.name}', and its scenario up with '--provider libvirt --pods "
            "kubernetes'",
        )
    content = _admin(reach_of(opened, planes(opened.intent)[0], doing), doing)
    try:
        access = read_kubeconfig(content, context_name(opened.name))
    except KubeconfigError as error:
        raise BrokenError(doing, f"'{_ADMIN}' cannot be used: {error}", opened.again) from error
    reach = reach_of(opened, front(opened.intent), doing)
    if reach.jump is None:
        return Exported(access.at(f"https://{reach.address}:{API_PORT}"), None)
    port = local_port(opened.name)
    files = write_ssh_files(opened, doing)
    host = f"{opened.name}-{reach.name}"
    tunnel = f"ssh -F {files.config} -N -L 127.0.0.1:{port}:127.0.0.1:{API_PORT} {host}"
    return Exported(access.at(f"https://127.0.0.1:{port}"), tunnel)


def write(access: Access, path: Path) -> None:
    """Write a lab's kubeconfig to a file of its own; into a pipe or a device as it is.

    Raises
    ------
    UsageError
        When the file holds something else than an earlier export, or is another user's; it
        stays as it is.
    StateError
        When it cannot be written; it stays as it is.

    """
    doing = f"writing the kubeconfig '{access.name}' to '{path}'"
    with guarded_files(doing, _USERS), open_output(path, doing, _is_earlier_export) as file:
        file.write(kubeconfig_text(access).encode())


def _is_earlier_export(content: bytes) -> bool:
    return not content.strip() or is_export(content.decode(errors="replace"))


def local_port(lab: str) -> int:
    """The port of this machine that leads to that lab's API: always the same one."""
    return _FIRST_PORT + int(sha256(lab.encode()).hexdigest()[:8], 16) % _PORTS


def _admin(reach: Reach, doing: str) -> str:
    from lab.remote.ssh import SshShell  # noqa: PLC0415  slow, and an extra

    shell = SshShell(reach)
    try:
        return shell.get(_ADMIN, Deadline(_READ_SECONDS)).decode()
    except UnicodeDecodeError as error:
        raise BrokenError(doing, f"'{_ADMIN}' is no text") from error
    finally:
        shell.close()
