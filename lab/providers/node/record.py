"""The files that an agent leaves on its computer: its record, its archive, and a status script.

The record is written before anything is made. The status script answers how the machine is
without starting Python there: Python and the agent's modules take seconds to load where the
processor is emulated, and every command asks. It exists from when the network is complete until
the network is changed again, so its absence says something too.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lab._errors import BrokenError
from lab.providers.netns.isolation import NETNS_DIRECTORY
from lab.providers.netns.services import LIMIT_TABLE, SERVICE_TABLE
from lab.topology.intent import MachineIntent

DIRECTORY = Path("/run/hybridlab")
"""Gone with a restart of the computer, as is all that it speaks of."""
ENTER = DIRECTORY / "enter"
"""For people: ``/run/hybridlab/enter worker1-p1 ping 10.244.1.2``."""
_SUFFIX = ".pyz"


def archive_path(digest: str) -> Path:
    """The archive's file; unpacked beside it, without the ending, when it is first run."""
    return DIRECTORY / f"node-{digest}{_SUFFIX}"


def write_file(path: Path, text: str) -> None:
    """Put a file in the place of the one before, whole or not at all."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.rename(path)


def remove_old_archives() -> None:
    """On the computer: take older archives away, and write the way in for people."""
    unpacked = Path(__file__).parents[3]
    packed = unpacked.with_suffix(_SUFFIX)
    for path in DIRECTORY.glob("node-*"):
        if path in {unpacked, packed}:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    command = shlex.join([sys.executable, "-I", "-S", str(packed), "attach"])
    ENTER.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
    ENTER.chmod(0o755)


STATUS_SCRIPT = DIRECTORY / "look"
RECORD = DIRECTORY / "record.json"
ABSENT = "the lab's network is missing: the machine was restarted, or never had it"
UNFINISHED = "its network is incomplete"
OTHER = "its network was made for another intent"
NO_HOLDER = "the holder of its pods is not running"
NO_RESPONDER = "its responder is not running"

STATUS_COMMAND = f"""
[ ! -e {STATUS_SCRIPT} ] || exec sh {STATUS_SCRIPT} "$0"
if [ -e {RECORD} ]; then echo {shlex.quote(UNFINISHED)}; else echo {shlex.quote(ABSENT)}; fi
"""
"""To be asked with the digest of the work as its name."""

Process = tuple[int, int]
"""Its id, and when it started, in clock ticks since boot."""


def status_script(digest: str, holder: Process, responder: Process, names: Sequence[str]) -> str:
    """The script: says what is wrong, in a sentence; nothing where nothing is.

    Parameters
    ----------
    digest
        Of the work that was done; the script is asked with that of the work there should be.
    holder
        The holder's process.
    responder
        The responder's process, its id as it is inside the holder.
    names
        The namespaces that the holder holds.

    """
    inside = f"/proc/{holder[0]}/root/proc/{responder[0]}/stat"
    return f"""#!/bin/sh
say() {{ echo "$1"; exit; }}
runs() {{ # stat file, start: whether it is that very process, and no zombie
    read -r line 2> /dev/null < "$1" || return 1
    set -- "$2" ${{line##*) }}
    [ "$2" != Z ] && [ "$2" != X ] && [ "${{21}}" = "$1" ]
}}
[ "$1" = {digest} ] || say {shlex.quote(OTHER)}
runs /proc/{holder[0]}/stat {holder[1]} || say {shlex.quote(NO_HOLDER)}
there=' '
while read -r _ place _; do there="$there$place "; done < /proc/{holder[0]}/mounts
for name in {shlex.join(names)}; do
    case $there in
        *" {NETNS_DIRECTORY}/$name "*) ;;
        *) say "its namespace '$name' is missing" ;;
    esac
done
runs {inside} {responder[1]} || say {shlex.quote(NO_RESPONDER)}
"""


MANAGEMENT_TABLE = "hybridlab-management"
Demoted = tuple[str, str | None, bool]
"""Device, gateway, and whether the gateway is on the link."""


@dataclass(frozen=True, slots=True)
class Record:
    """The things that exist, or may."""

    machine: str
    devices: tuple[str, ...]
    """Names of the lab's bridges, tunnels and veths."""
    cards: tuple[str, ...]
    """MACs of the network cards that were given addresses."""
    tables: tuple[str, ...]
    """Tables of nftables, family ``ip``."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Kernel settings as they were before the lab."""
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


def plan_record(machine: MachineIntent) -> Record:
    """The record of what a machine is going to have. Pure."""
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


def read_record() -> Record | None:
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
            "restart the machine, which removes all of it",
        ) from None


def write_record(record: Record) -> None:
    """Put a record in the place of the one before, whole or not at all."""
    write_file(RECORD, json.dumps(asdict(record), indent=1))


def remove_record() -> None:
    """Remove the record: nothing of the lab is left."""
    RECORD.unlink(missing_ok=True)
