"""Habits of Windows; docs/how-to/windows.md, "What has stopped others", has their sources.

Pure: the stand-in and the double of a node use it, and tests call it directly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

REMOVABLE = ("autounattend.xml", "unattend.xml")
"""File names searched on removable media, in this order."""
_FORCED = re.compile(r'cmd(?:\.exe)? /c "(?!for )(?P<inner>.*) & exit /b 0"')
"""A command after a loop without parentheses is part of the loop, and ends it."""
_ECHO = re.compile(r"(?:cmd(?:\.exe)? /c )?echo (?P<text>[^<>|&]+?)> ?COM1")


@dataclass(frozen=True)
class Ran:
    """The result of one command."""

    said: str
    """Output on COM1."""
    code: int
    """The worst possible exit code."""


def run_command(place: str, line: str) -> Ran:
    """Simulate a command of a pass in the worst case: whatever can fail, fails."""
    forced = _FORCED.fullmatch(line)
    echo = _ECHO.fullmatch(forced["inner"] if forced else line)
    has_port = place != "windowsPE"
    text = echo["text"] if echo and has_port else ""
    if forced:
        return Ran(text, 0)
    return Ran(text, 0 if echo and has_port else 1)


def why_it_stops(place: str, line: str, will_reboot: str) -> str:
    """Why Setup stops after a failed command; empty if it continues."""
    code = run_command(place, line).code
    if code == 0:
        return ""
    if place == "windowsPE":
        return f"Setup aborts: {line!r} ended with {code} in windowsPE"
    if place.endswith("specialize") and will_reboot != "Never":
        return f"Windows restarts in specialize: {line!r} ended with {code}"
    return ""


def find_answer(
    phase: str, kept: Mapping[str, bytes], roots: Sequence[Mapping[str, bytes]]
) -> tuple[str, bytes] | None:
    r"""The answer file of a pass, and its location.

    Parameters
    ----------
    kept
        Answer files on the system's own disk, by path below ``C:\Windows``.
    roots
        Roots of the removable drives in the order of letters: lower-case name to content.

    """
    for place in (r"Panther\Unattend\unattend.xml", r"Panther\unattend.xml"):
        if place in kept:
            return place, kept[place]
    names = REMOVABLE[:1] if phase == "windowsPE" else REMOVABLE
    for root in roots:
        for name in names:
            if name in root and f'pass="{phase}"'.encode() in root[name]:
                return name, root[name]
    return None


def kubeadm_refuses(script: str) -> str:
    """kubeadm's error for a script that runs it before its folder is on PATH; else empty."""
    before, runs, _ = script.partition("Invoke-Join -Program $Given.kubeadm")
    if runs and '$env:Path = "$folder;$env:Path"' in before:
        return ""
    return (
        "couldn't get kubelet version: cannot execute 'kubelet --version': executable file not "
        "found in %PATH%"
    )


OPEN_CARD = "198.51.100.5"
"""Address of the management card, which is in no virtual switch: HNS takes such a card for a
network without a card's name (an author of HNS in Virtualization-Documentation 595)."""


def hns_refuses(adapter: str, *, switched: bool) -> str:
    """The error of HNS for a network on this adapter; empty if it creates the network.

    ``switched``: whether the card already is in a virtual switch.
    """
    if adapter.startswith("vEthernet"):
        return (
            "hcnCreateNetwork failed in Win32: The parameter is incorrect. (0x57) "
            '{"Success":false,"Error":"The parameter is incorrect. ","ErrorCode":2147942487}'
        )
    if adapter and switched:
        return '{"Error":"An adapter was not found. ","ErrorCode":2151350278,"Success":false}'
    return ""


def guest_utc(rtc: datetime, zone: timedelta, *, universal: bool) -> datetime:
    """The guest's idea of UTC, from its hardware clock and its time zone."""
    return rtc if universal else rtc - zone
