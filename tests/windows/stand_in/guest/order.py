"""Commands of answer files, and steps of scripts; none of them is run.

Only ``echo TEXT>COM1`` has an effect if there is a serial port: the text is written to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from stand_in.guest import habits
from stand_in.guest.record import Record
from stand_in.guest.screen import StopError

_STEP = re.compile(r"^    '(?P<name>[a-z0-9-]+)' = \{$", re.MULTILINE)
_TABLE = re.compile(r"^\$steps = \[ordered\]@\{$(?P<body>.*?)^\}$", re.MULTILINE | re.DOTALL)
_AT = re.compile(r"^\s+\$at = '(?P<name>[a-z0-9-]+)'$", re.MULTILINE)
_LOGON = re.compile(r"^function Invoke-FirstLogon \{$(?P<body>.*?)^\}$", re.MULTILINE | re.DOTALL)


def run(place: str, lines: Sequence[str], record: Record, say: Callable[[str], None]) -> None:
    """Record commands of a pass, and write their echoes."""
    for number, line in enumerate(lines, 1):
        said = habits.run_command(place, line).said
        record.add("command", place=place, number=number, line=line, run=bool(said))
        if said:
            say(said)


def steps(script: str, module: str) -> list[str]:
    """Names of a first-logon script's steps, as it would report them; StopError if none is found.

    They are read from the table ``$steps``, between Invoke-FirstLogon's first and last steps.
    """
    table, around = _TABLE.search(script), _LOGON.search(module)
    if table is None or around is None:
        raise StopError("the script has no table of steps, or its module no Invoke-FirstLogon")
    inside = [one["name"] for one in _STEP.finditer(table["body"])]
    outside = [one["name"] for one in _AT.finditer(around["body"])]
    if not inside or len(outside) != 2:
        raise StopError(f"steps {inside} between {outside}: another script than is known here")
    return [outside[0], *inside, outside[1]]
