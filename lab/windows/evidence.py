"""Evidence of Windows nodes and machines: facts, logs and configuration, through PowerShell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from lab._deadline import Deadline
from lab.facts.node import NodeFacts
from lab.machines.evidence import LOG_LINES, facts_json, printed_by
from lab.machines.system import EvidencePiece
from lab.windows.facts import observe
from lab.windows.images.image_steps import MODULE, Observe, script, settings
from lab.windows.shell import WindowsShell

_OF_NODE: Mapping[str, str] = {
    **{
        f"{name}.log": (
            f"Get-Content -LiteralPath 'C:\\var\\log\\{name}\\{name}.log' -Tail {LOG_LINES}"
        )
        for name in ("kubelet", "containerd", "kube-proxy", "flanneld")
    },
    "crictl.txt": "crictl.exe pods; crictl.exe ps --all; crictl.exe images",
    "hns.txt": (
        "hnsdiag.exe list networks; hnsdiag.exe list endpoints; hnsdiag.exe list loadbalancers; "
        "Get-HnsPolicyList | ConvertTo-Json -Depth 8"
    ),
    "configuration.txt": (
        "Get-ChildItem -LiteralPath 'C:\\etc\\cni\\net.d' -File | ForEach-Object -Process "
        "{ $_.FullName; Get-Content -LiteralPath $_.FullName }; "
        "Get-Content -LiteralPath 'C:\\var\\lib\\kubelet\\config.yaml'"
    ),
}
"""PowerShell command by file name of its answer."""
_OF_MACHINE: Mapping[str, str] = {
    "systeminfo.txt": "systeminfo.exe",
    "ipconfig.txt": "ipconfig.exe /all; route.exe print",
    "adapters.txt": (
        "Get-NetAdapter | Format-List -Property Name, InterfaceIndex, MacAddress, Status, "
        "DriverDescription, MtuSize; Get-NetIPAddress | Format-Table -AutoSize"
    ),
    "services.txt": "Get-Service | Format-Table -AutoSize -Property Status, StartType, Name",
    "events-system.txt": (
        "Get-WinEvent -LogName 'System' -MaxEvents 200 | Format-List -Property TimeCreated, "
        "LevelDisplayName, ProviderName, Id, Message"
    ),
    "events-application.txt": (
        "Get-WinEvent -LogName 'Application' -MaxEvents 200 | Format-List -Property "
        "TimeCreated, LevelDisplayName, ProviderName, Id, Message"
    ),
    "lab-log.txt": (
        "Get-ChildItem -LiteralPath 'C:\\hybridlab\\log' -Filter '*.log' | ForEach-Object "
        "-Process { $_.FullName; Get-Content -LiteralPath $_.FullName -Tail 1000 }"
    ),
    "panther-setupact.txt": (
        "Get-Content -LiteralPath 'C:\\Windows\\Panther\\setupact.log' -Tail 2000"
    ),
    "panther-setuperr.txt": (
        "Get-Content -LiteralPath 'C:\\Windows\\Panther\\setuperr.log' -Tail 2000"
    ),
    "panther-unattendgc.txt": (
        "Get-Content -LiteralPath 'C:\\Windows\\Panther\\UnattendGC\\setupact.log' -Tail 2000"
    ),
    "sysprep-setupact.txt": (
        "Get-Content -LiteralPath 'C:\\Windows\\System32\\Sysprep\\Panther\\setupact.log' "
        "-Tail 2000"
    ),
}
"""PowerShell command by file name of its answer."""


def observe_node(shell: WindowsShell, deadline: Deadline) -> NodeFacts:
    """Observe a node by the step ``observe``.

    Raises StepError, DeadlineError, BrokenError when the node cannot be queried.
    """
    return observe(shell, script("observe.ps1"), script(MODULE), settings(Observe()), deadline)


def node_evidence(shell: WindowsShell) -> Iterator[EvidencePiece]:
    """A node's facts, logs and configuration."""
    yield "facts.json", lambda within: facts_json(observe_node(shell, within))
    yield from _answers(shell, _OF_NODE)


def machine_evidence(shell: WindowsShell) -> Iterator[EvidencePiece]:
    """System information, services, event logs, and the logs of Setup and of the lab's scripts."""
    yield from _answers(shell, _OF_MACHINE)


def _answers(shell: WindowsShell, commands: Mapping[str, str]) -> Iterator[EvidencePiece]:
    for file, command in commands.items():
        yield file, printed_by(partial(shell.powershell, command))


_EACH_SECONDS = 60.0


def collect_facts(shell: WindowsShell, deadline: Deadline) -> Iterator[tuple[str, bytes]]:
    """Yield file name and content of each piece of :func:`machine_evidence`.

    Raises LabError at the first one that fails or is not answered in time.
    """
    for file, make in machine_evidence(shell):
        yield file, make(Deadline(min(_EACH_SECONDS, deadline.left()))).encode()
