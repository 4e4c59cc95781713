"""What an agent has made on its computer: written down before it is made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from lab._errors import BrokenError
from lab.providers.netns.services import LIMIT_TABLE, SERVICE_TABLE
from lab.providers.node import place
from lab.providers.node.looking import RECORD
from lab.providers.node.management import TABLE as MANAGEMENT_TABLE
from lab.providers.node.strangers import Demoted
from lab.topology.intent import MachineIntent


@dataclass(frozen=True, slots=True)
class Record:
    """What is there, or may be."""

    machine: str
    devices: tuple[str, ...]
    """Names of bridges, tunnels and veths of ours."""
    cards: tuple[str, ...]
    """MACs of the network cards that were given addresses."""
    tables: tuple[str, ...]
    """Tables of nftables, family ``ip``."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Kernel settings as they were before the first of ours."""
    demoted: tuple[Demoted, ...] = ()
    """Strangers' default routes that were given a higher metric."""

    def joined(self, older: Record | None) -> Record:
        """The record, with all that an older one may have left."""
        if older is None:
            return self
        return Record(
            self.machine,
            tuple(dict.fromkeys((*self.devices, *older.devices))),
            tuple(dict.fromkeys((*self.cards, *older.cards))),
            tuple(dict.fromkeys((*self.tables, *older.tables))),
            older.settings,
            older.demoted,
        )


def of(machine: MachineIntent) -> Record:
    """What is going to be there for a machine. Pure."""
    made = [one.name for one in (machine.bridge, machine.tunnel) if one]
    tables = [MANAGEMENT_TABLE]
    if machine.translation:
        tables.append(SERVICE_TABLE)
    if machine.drops:
        tables.append(LIMIT_TABLE)
    return Record(
        machine.name,
        (*made, *(pod.port for pod in machine.pods)),
        tuple(interface.mac for interface in machine.interfaces),
        tuple(tables),
    )


def read() -> Record | None:
    """The record, if there is one.

    Raises
    ------
    BrokenError
        If it is none of this version's.

    """
    try:
        text = RECORD.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        found = json.loads(text)
        return Record(
            found["machine"],
            tuple(found["devices"]),
            tuple(found["cards"]),
            tuple(found["tables"]),
            dict(found["settings"]),
            tuple((device, via, onlink) for device, via, onlink in found["demoted"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenError(
            f"reading '{RECORD}'",
            f"it is not what this version writes: {error!r}",
            "restart the machine, which takes all of it away",
        ) from None


def write(record: Record) -> None:
    """Put a record in the place of the one before, whole or not at all."""
    place.write(RECORD, json.dumps(asdict(record), indent=1))


def remove() -> None:
    """There is nothing of ours any more."""
    RECORD.unlink(missing_ok=True)
