"""Kernel settings of the computer, as they were before the lab, and put back after it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from lab.providers.netns.operations import NamespaceOperations, SysctlSet


def before(one: NamespaceOperations, devices: Iterable[str]) -> dict[str, str]:
    """What the settings that are going to be written say now.

    Those of ``devices``, which are ours and go with the lab, are left out.
    """
    made = frozenset(devices)
    keys = (op.key for op in one.operations if isinstance(op, SysctlSet))
    found: dict[str, str] = {}
    for key in keys:
        if made.isdisjoint(key.split("/")):
            with suppress(OSError):
                found[key] = Path("/proc/sys", key).read_text(encoding="ascii").strip()
    return found


def restore(settings: Mapping[str, str]) -> None:
    """Write them back; what is not there any more needs no setting."""
    for key, value in settings.items():
        with suppress(OSError):
            Path("/proc/sys", key).write_text(value, encoding="ascii")
