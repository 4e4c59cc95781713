"""``lab`` run as a process of its own, its output in a file, ended in time or on request.

The one module outside providers, guests and imaging that starts processes: see
docs/decisions/0008-nightly-runs-commands.md.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab._log import CAUSE

_ROOT = Path(__file__).parents[2]
_GRACE_SECONDS = 60.0
"""For a command that was sent SIGTERM to put its words into the journal."""
_EVERY = 0.05


def run_lab(
    words: Sequence[str], log: Path, deadline: Deadline, stopped: Callable[[], bool]
) -> int | None:
    """Run ``lab WORDS...`` to its end; standard output and error go into ``log``.

    It is in a session of its own, so that Ctrl-C on the terminal reaches the caller alone. At
    the deadline, and when ``stopped`` says so, it is sent SIGTERM, and SIGKILL a minute later.

    Why it failed, if it says so, is then in the file of :func:`cause_file`.

    Returns
    -------
    int or None
        Its exit code; None where it was ended for want of time or on request.

    """
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    with (
        open(log, "ab", opener=_unlinked) as output,
        subprocess.Popen(  # noqa: S603  our own command
            [sys.executable, "-P", "-m", "lab", *words],
            env={**os.environ, "PYTHONPATH": path, CAUSE: str(cause_file(log))},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            deadline.wait(
                f"running 'lab {words[0]}'",
                lambda: process.poll() is not None or stopped(),
                every=_EVERY,
            )
        except DeadlineError:
            _end(process)
            return None
        except BaseException:
            _end(process)
            raise
        if process.poll() is None:
            _end(process)
            return None
        return process.returncode


def _unlinked(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def cause_file(log: Path) -> Path:
    """Where a command leaves the cause of its failure in one line, beside its log."""
    return log.with_suffix(".cause")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
