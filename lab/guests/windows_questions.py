"""What a Windows machine is asked when somebody wants to know how it is, or why it is stuck."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lab._deadline import Deadline
from lab.guests.windows_shell import WindowsShell

QUESTIONS: Mapping[str, str] = {
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
"""Name of the answer to what PowerShell is asked."""
_EACH_SECONDS = 60.0


def answers(shell: WindowsShell, deadline: Deadline) -> Iterator[tuple[str, bytes]]:
    """Every answer by its name; what a command complains of stands in it.

    Raises
    ------
    LabError
        When it cannot be asked, or not in time: after that nothing more is.

    """
    for name, question in QUESTIONS.items():
        own = Deadline(min(_EACH_SECONDS, deadline.left()))
        done = shell.powershell(question, own)
        yield name, (done.stdout + done.stderr).encode()
