"""Which hypervisor has which machine: decided once, kept in the lab's directory."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from lab.inventory.inventory import Hypervisor
from lab.inventory.uri import check
from lab.plan.canonical import plain
from lab.providers.provider import LabHandle
from lab.state.files import read_private, write_private

FILE = "layout.json"
_FROM_INVENTORY = ("command", "netcat", "no_verify")
"""Parameters of a URI that are the inventory's alone: what libvirt runs, here or on the
hypervisor, and that the hypervisor's key is not checked."""


@dataclass(frozen=True, slots=True)
class LibvirtLayout:
    """Where a lab's machines are."""

    machines: Mapping[str, str]
    """Machine to hypervisor."""
    accelerated: Mapping[str, bool]
    """Hypervisor to whether guests really run on KVM there."""
    homes: Mapping[str, Hypervisor]
    """The hypervisors, as they were in the inventory: a lab is found without one too.

    A URI here has none of :data:`_FROM_INVENTORY`: where one is needed, the lab is
    taken down with its hypervisor in the inventory.
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


def load(lab: LabHandle) -> LibvirtLayout | None:
    """The lab's layout; None before it was decided, or when it was lost."""
    try:
        found = json.loads(read_private(lab.directory / FILE))
        homes = {name: _hypervisor(fields) for name, fields in found["homes"].items()}
        windows = tuple(found.get("windows", ()))
        bundle = str(found.get("bundle", ""))
        return LibvirtLayout(
            found["machines"], found["accelerated"], homes, found["users"], windows, bundle
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def save(lab: LabHandle, layout: LibvirtLayout) -> None:
    """Write it down, before any machine is made."""
    homes = {name: one.replace(uri=_kept(one.uri)) for name, one in layout.homes.items()}
    content = json.dumps(plain(replace(layout, homes=homes)), indent=1)
    write_private(lab.directory / FILE, content + "\n")


def _hypervisor(fields: dict[str, Any]) -> Hypervisor:
    """One of the file, whose URI has passed the inventory's own check."""
    safe = check(_kept(fields["uri"]))
    return Hypervisor(**{**fields, "uri": safe, "tags": frozenset(fields["tags"])})


def _kept(uri: str) -> str:
    place, _, query = uri.partition("?")
    written = re.split("[&;]", query)  # libvirt takes either, and names in any case
    kept = [one for one in written if _name(one) not in _FROM_INVENTORY]
    return "?".join(filter(None, (place, "&".join(kept))))


def _name(parameter: str) -> str:
    return unquote(parameter.partition("=")[0]).lower()
