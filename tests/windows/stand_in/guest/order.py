"""Compare commands with the golden order of the test; none of them is run.

Only ``echo TEXT>COM1`` has an effect if there is a serial port: the text is written to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from stand_in.guest import habits
from stand_in.guest.record import Record
from stand_in.guest.screen import StopError

_STEP = re.compile(r"^    '(?P<name>[a-z0-9-]+)' = \{$", re.MULTILINE)
_TABLE = re.compile(r"^\$steps = \[ordered\]@\{$(?P<body>.*?)^\}$", re.MULTILINE | re.DOTALL)
_AT = re.compile(r"^\s+\$at = '(?P<name>[a-z0-9-]+)'$", re.MULTILINE)
_LOGON = re.compile(r"^function Invoke-FirstLogon \{$(?P<body>.*?)^\}$", re.MULTILINE | re.DOTALL)


def run(
    place: str,
    lines: Sequence[str],
    golden: Mapping[str, Sequence[str]],
    record: Record,
    say: Callable[[str], None],
) -> None:
    """Record commands of a pass, and write their echoes; StopError if the order differs."""
    compare(place, lines, golden)
    for number, line in enumerate(lines, 1):
        said = habits.run_command(place, line).said
        record.add("command", place=place, number=number, line=line, run=bool(said))
        if said:
            say(said)


def compare(place: str, lines: Sequence[str], golden: Mapping[str, Sequence[str]]) -> None:
    """Raise StopError at the first line that differs from the golden order."""
    wanted = golden.get(place)
    if wanted is None:
        raise StopError(f"no golden order for {place}")
    for number in range(max(len(lines), len(wanted))):
        got = lines[number] if number < len(lines) else "nothing"
        want = wanted[number] if number < len(wanted) else "nothing"
        if got != want:
            raise StopError(f"order of {place}: command {number + 1} is {got!r}, not {want!r}")


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
