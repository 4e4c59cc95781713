"""Faults that a stand-in can be made with, each as a true installation has shown it.

``mutant.txt`` on the setup medium names them; they go to the disk with the rest.
"""

from __future__ import annotations

from stand_in.guest.screen import StopError

IMAGE = "image-name"
"""Setup finds no image of the name."""
DRIVER = "driver"
"""Setup does not take the storage driver: there is no disk."""
COPY = "copy-hangs"
"""Setup copies no more."""
SPECIALIZE_ONCE = "specialize-restarts-once"
"""Windows restarts in the middle of the pass, does it again from the start, and goes on."""
SPECIALIZE_EVER = "specialize-restarts"
"""The same, for ever."""
SPECIALIZE_STOPS = "specialize-stops"
"""Windows restarts in the middle of the pass, and then says that it cannot proceed."""
LOGON_FAILS = "first-logon-fails"
"""A step of the first logon fails, and says so."""
LOGON_DIES = "first-logon-dies"
"""The first logon's script ends in the middle, and says nothing."""
WINRM = "winrm-refuses"
"""WinRM answers, and lets nobody in."""
SYSPREP = "sysprep-hangs"
"""Sysprep does not come to an end."""
RESTARTS = frozenset({SPECIALIZE_ONCE, SPECIALIZE_EVER, SPECIALIZE_STOPS})
ALL = RESTARTS | {IMAGE, DRIVER, COPY, LOGON_FAILS, LOGON_DIES, WINRM, SYSPREP}


def read(text: str) -> tuple[str, ...]:
    """Names in a text; StopError where there is no such fault."""
    names = tuple(text.split())
    if unknown := set(names) - ALL:
        raise StopError(f"unknown mutants {sorted(unknown)}")
    return names
