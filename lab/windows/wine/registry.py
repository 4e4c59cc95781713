"""The registry of a Wine node, as text for regedit. Pure.

Windows' version is what the registry says: any build can be told. Names and values are those that a
kubelet (``getOSInfo``), kubeadm and cadvisor read, from a real Windows Server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lab.machines.images.terms import RELEASES, Year

REVISIONS: Mapping[Year, int] = {"2019": 6893, "2022": 2652, "2025": 1742}
"""The patch level that a node of each release tells."""
UNUSED = (
    "Eventlog",
    "PlugPlay",
    "winebus",
    "winehid",
    "wineusb",
    "winexinput",
    "Spooler",
    "StiSvc",
    "wuauserv",
    "TermService",
)
"""Services that neither a node nor a pod needs; each is a process, or keeps one alive."""
_DISABLED = 4


def settings(year: Year, native: Iterable[str]) -> str:
    """The settings of a prefix. ``native``: programs whose file is taken instead of Wine's own."""
    build, version = (
        RELEASES[year].build,
        r"HKEY_LOCAL_MACHINE\Software\Microsoft\Windows NT\CurrentVersion",
    )
    services = r"HKEY_LOCAL_MACHINE\System\CurrentControlSet\Services"
    control = r"HKEY_LOCAL_MACHINE\System\CurrentControlSet\Control"
    keys: dict[str, dict[str, str | int]] = {
        r"HKEY_CURRENT_USER\Software\Wine\DllOverrides": dict.fromkeys(native, "native,builtin"),
        r"HKEY_CURRENT_USER\Software\Wine\Drivers": {"Graphics": "null", "Audio": ""},
        rf"{version}\AeDebug": {"Debugger": ""},
        version: {
            "CurrentBuild": str(build),
            "CurrentBuildNumber": str(build),
            "CurrentMajorVersionNumber": 10,
            "CurrentMinorVersionNumber": 0,
            "EditionID": "ServerStandard",
            "InstallationType": "Server Core",
            "ProductName": f"Windows Server {year} Standard",
            "UBR": REVISIONS[year],
        },
        r"HKEY_LOCAL_MACHINE\System\HardwareConfig": {
            "LastConfig": "{5e2f1f52-6a7b-4c1e-9d1e-0c5a3b7d9e11}",
            "LastId": 0,
        },
        rf"{control}\Session Manager\Memory Management\PrefetchParameters": {"BootId": 1},
        rf"{services}\hns": {
            "DisplayName": "Host Network Service",
            "ErrorControl": 1,
            "ImagePath": r"C:\windows\system32\svchost.exe -k NetSvcs",
            "ObjectName": "LocalSystem",
            "Start": 3,
            "Type": 16,
        },
    }
    keys |= {rf"{services}\{name}": {"Start": _DISABLED} for name in UNUSED}
    lines = ["REGEDIT4"]
    for key, values in keys.items():
        lines += ["", f"[{key}]"]
        lines += [f'"{name}"={_value(value)}' for name, value in values.items()]
    return "\r\n".join(lines) + "\r\n"


def _value(value: str | int) -> str:
    if isinstance(value, int):
        return f"dword:{value:08x}"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
