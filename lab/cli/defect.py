"""Unexpected exceptions: one sentence on the terminal, and a log with the traceback."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from pathlib import Path

from lab._errors import LabError
from lab._log import leave_cause, say
from lab.state.directory import make_own, make_private, state_directory
from lab.state.stamps import in_order, stamp

EXIT_CODE = 70
"""``EX_SOFTWARE`` of sysexits.h: an internal software error."""
LOGS = "defects"
"""Directory of the logs, in the state directory."""
KEPT = 20
"""Number of logs kept; older ones are removed."""
_SHOWN = 300
"""Characters of the exception's message that the sentence has."""


def report(error: Exception, begin: str = "this is a bug in lab itself", hint: str = "") -> None:
    """Say in one sentence what happened and where the traceback is."""
    words = " ".join(str(error).split())
    cause = f"{type(error).__name__}: {words}" if words else type(error).__name__
    where = _log("".join(traceback.format_exception(error)))
    traceback_place = (
        f"the traceback is in '{where}'" if where else "its traceback could not be written"
    )
    shown = cause if len(cause) <= _SHOWN else f"{cause[:_SHOWN]}..."
    sentence = f"{begin}: {shown}; {traceback_place}{hint}"
    say(sentence)
    leave_cause(sentence)


def _log(trace: str) -> Path | None:
    """Write the traceback to a file with mode 0600; return its path, or None if that fails."""
    head = f"command: {sys.argv!r}\npython:  {sys.version}\n\n"
    content = (head + trace).encode(errors="backslashreplace")
    try:
        state = state_directory(os.environ)
        make_own(state)
        directory = state / LOGS
        make_private(directory)
        path = _write(directory, content, [path.name for path in directory.iterdir()])
        for old in sorted(directory.iterdir())[:-KEPT]:
            old.unlink()
    except (LabError, OSError):
        try:
            return _write(Path(tempfile.gettempdir()), content)
        except OSError:
            return None
    return path


def _write(directory: Path, content: bytes, others: Iterable[str] = ()) -> Path:
    """Write a new file whose name sorts after ``others``."""
    begin = in_order(stamp(time.time()), (name.removeprefix("lab-") for name in others))
    number, name = tempfile.mkstemp(".log", f"lab-{begin}-", directory)
    with os.fdopen(number, "wb") as file:
        file.write(content)
    return Path(name)
