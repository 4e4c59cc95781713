"""The states that ``lab up`` recorded of machines, pods and the cluster's objects.

They are in one file in the lab's directory. One ``lab up`` at a time writes it, in several threads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

from lab.state.files import write_private

_FILE = "states.json"
_WRITING = Lock()

Records = Mapping[str, Mapping[str, str]]
"""By place: its ``state``, the digest of what made it (``made_by``), and the digest of the commands
that it was read with (``asked``)."""


def read_records(directory: Path) -> Records:
    """The records in the lab's directory; none if an older version made the lab."""
    try:
        records = json.loads((directory / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {place: record for place, record in records.items() if isinstance(record, dict)}


def write_records(directory: Path, records: Records) -> None:
    """Replace all records. Raises StateError when they cannot be written."""
    with _WRITING:
        write_private(directory / _FILE, json.dumps(records))


def forget_record(directory: Path, place: str) -> None:
    """Delete the record of a place whose devices are made anew, so that it is recorded again.

    Raises StateError when the records cannot be written.
    """
    with _WRITING:
        records = read_records(directory)
        if place in records:
            others = {other: record for other, record in records.items() if other != place}
            write_private(directory / _FILE, json.dumps(others))
