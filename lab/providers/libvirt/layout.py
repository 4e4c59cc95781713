"""Which hypervisor has which machine: decided once, kept in the lab's directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from lab.inventory.inventory import Hypervisor
from lab.plan.canonical import plain
from lab.providers.provider import LabHandle
from lab.state.files import read_private, write_private

FILE = "layout.json"
_PROGRAMS = frozenset({"command", "netcat"})
"""Parameters of a URI that libvirt runs, here or on the hypervisor."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a lab's machines are."""

    machines: Mapping[str, str]
    """Machine to hypervisor."""
    accelerated: Mapping[str, bool]
    """Hypervisor to whether guests really run on KVM there."""
    homes: Mapping[str, Hypervisor]
    """The hypervisors, as they were in the inventory: a lab is found without one too.

    Only the inventory says what is run to reach one: a URI here names no program.
    """
    users: Mapping[str, str] = field(default_factory=dict)
    """Machine to who logs in; empty until its image is known."""
    windows: tuple[str, ...] = ()
    """Those that run Windows."""
    bundle: str = ""
    """Digest of what its cluster is made from; empty where pods are namespaces."""

    def hypervisors(self) -> tuple[str, ...]:
        """Those that have a machine, in order."""
        return tuple(dict.fromkeys(self.machines.values()))

    def on(self, hypervisor: str) -> tuple[str, ...]:
        """The machines of one hypervisor, in order."""
        return tuple(name for name, where in self.machines.items() if where == hypervisor)


def load(lab: LabHandle) -> Layout | None:
    """The lab's layout; None before it was decided, or when it was lost."""
    try:
        found = json.loads(read_private(lab.directory / FILE))
        homes = {name: _hypervisor(fields) for name, fields in found["homes"].items()}
        windows = tuple(found.get("windows", ()))
        bundle = str(found.get("bundle", ""))
        return Layout(
            found["machines"], found["accelerated"], homes, found["users"], windows, bundle
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def save(lab: LabHandle, layout: Layout) -> None:
    """Write it down, before any machine is made."""
    write_private(lab.directory / FILE, json.dumps(plain(layout), indent=1) + "\n")


def _hypervisor(fields: dict[str, Any]) -> Hypervisor:
    uri = urlsplit(fields["uri"])
    kept = [one for one in parse_qsl(uri.query, keep_blank_values=True) if one[0] not in _PROGRAMS]
    safe = uri._replace(query=urlencode(kept)).geturl()
    return Hypervisor(**{**fields, "uri": safe, "tags": frozenset(fields["tags"])})
