"""The files that an agent leaves on its computer.

The agent's record is written before anything is created. Its status script reports the machine's
state without Python: Python and the agent's modules take seconds to load on an emulated processor,
and every command needs the state. The script exists only while the network is complete, so its
absence is informative too.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lab._errors import BrokenError
from lab.providers.netns.isolation import NETNS_DIRECTORY
from lab.providers.netns.services import LIMIT_TABLE, SERVICE_TABLE
from lab.topology.intent import MachineIntent

DIRECTORY = Path("/run/hybridlab")
"""Lost when the computer restarts, like everything that it describes."""
ENTER = DIRECTORY / "enter"
"""For interactive use: ``/run/hybridlab/enter worker1-p1 ping 10.244.1.2``."""
_SUFFIX = ".pyz"


def archive_path(digest: str) -> Path:
    """The archive's file; the first run unpacks it beside it, without the suffix."""
    return DIRECTORY / f"node-{digest}{_SUFFIX}"


def write_file(path: Path, text: str) -> None:
    """Replace a file atomically."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.rename(path)


def remove_old_archives() -> None:
    """On the computer: remove older archives, and write the ``enter`` script."""
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
"""Run it with the work's digest as ``$0``."""

Process = tuple[int, int]
"""Process id and start time, in clock ticks since boot."""


def status_script(digest: str, holder: Process, responder: Process, names: Sequence[str]) -> str:
    """The status script: it prints one sentence if something is wrong, else nothing.

    Parameters
    ----------
    digest
        The digest of the finished work; the script's argument is the digest of the wanted work.
    holder
        The holder's process.
    responder
        The responder's process, with its id inside the holder.
    names
        The namespaces in the holder.

    """
    inside = f"/proc/{holder[0]}/root/proc/{responder[0]}/stat"
    return f"""#!/bin/sh
say() {{ echo "$1"; exit; }}
runs() {{ # stat file, start: whether it is the same process, and not a zombie
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


@dataclass(frozen=True, slots=True)
class Record:
    """What exists, or may exist, of the lab on this computer."""

    machine: str
    devices: tuple[str, ...]
    """Names of the lab's bridges, tunnels and veths."""
    cards: tuple[str, ...]
    """MACs of the network cards that were given addresses."""
    tables: tuple[str, ...]
    """nftables tables of family ``ip``."""

    def joined(self, older: Record | None) -> Record:
        """The record, extended by what an older record may have left."""
        if older is None:
            return self
        return Record(
            self.machine,
            tuple(dict.fromkeys((*self.devices, *older.devices))),
            tuple(dict.fromkeys((*self.cards, *older.cards))),
            tuple(dict.fromkeys((*self.tables, *older.tables))),
        )


def plan_record(machine: MachineIntent) -> Record:
    """The record of what a machine will have. Pure."""
    made = [device.name for device in (machine.bridge, machine.tunnel) if device]
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

    Raises BrokenError if this version did not write it.
    """
    try:
        text = RECORD.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        document = json.loads(text)
        return Record(
            document["machine"],
            tuple(document["devices"]),
            tuple(document["cards"]),
            tuple(document["tables"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenError(
            f"reading '{RECORD}'",
            f"this version did not write it: {error!r}",
            "restart the machine, which removes all of it",
        ) from None


def write_record(record: Record) -> None:
    """Replace the record atomically."""
    write_file(RECORD, json.dumps(asdict(record), indent=1))
