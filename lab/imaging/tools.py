"""Programs that images are made with: found or asked for, run to their end, and heard."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Timer

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError
from lab.imaging.job import MORE_ROOM

PACKAGES = {
    "apt-get": "apt",
    "apt-config": "apt",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "debugfs": "e2fsprogs",
    "newuidmap": "uidmap",
    "qemu-img": "qemu-utils",
    "qemu-io": "qemu-utils",
    "setpriv": "util-linux",
    "tar": "tar",
}
"""Program to the Debian package that has it."""
_SYSTEM_PLACES = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where Debian keeps some of them, off a plain user's PATH."""
_TAIL = 12
"""Last lines of a program's output that a failure repeats."""
_NO_SPACE = "No space left on device"
_GRACE = 10.0
"""Seconds that a program has for its own tidying after SIGTERM."""


def need(doing: str, *names: str) -> None:
    """See that every program is there.

    Raises
    ------
    PreflightError
        Naming all that are not, with the command that installs them.

    """
    missing = [name for name in names if _find(name) is None]
    if missing:
        packages = " ".join(dict.fromkeys(PACKAGES[name] for name in missing))
        listed = ", ".join(f"'{name}'" for name in missing)
        raise PreflightError(doing, f"{listed} not found", f"apt-get install {packages}")


def ask(command: Sequence[str]) -> str:
    """What a short program prints; empty where it fails."""
    path = _find(command[0])
    if path is None:
        return ""
    told = subprocess.run(  # noqa: S603  one of PACKAGES
        [path, *command[1:]], capture_output=True, text=True, check=False, env=_environment({})
    )
    return told.stdout if told.returncode == 0 else ""


def run(  # noqa: PLR0913  each is part of what is asked
    doing: str,
    command: Sequence[str],
    deadline: Deadline,
    *,
    heard: Callable[[str], None] = lambda _: None,
    environment: Mapping[str, str] | None = None,
    stdin: Path | None = None,
) -> None:
    """Run a program to its end; it ends when we do.

    Parameters
    ----------
    heard
        Is told every line that it writes, on either stream.

    Raises
    ------
    DeadlineError
        When it has not ended in time, with the last lines it wrote.
    PreflightError
        When the disk was full.
    BrokenError
        When it failed, with the last lines it wrote.

    """
    tail: deque[str] = deque(maxlen=_TAIL)
    path = _find(command[0])
    assert path is not None, "asked for by need()"
    with (stdin or Path(os.devnull)).open("rb") as source:
        process = subprocess.Popen(  # noqa: S603  one of PACKAGES
            [str(_find("setpriv")), "--pdeathsig", "TERM", "--", path, *command[1:]],
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=_environment(environment or {}),
            start_new_session=True,
        )
    timer = Timer(deadline.left(), _end, [process])
    timer.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if text := line.strip():
                tail.append(text)
                heard(text)
        code = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        timer.cancel()
        if process.stdout is not None:
            process.stdout.close()
    if code != 0:
        raise _failure(doing, command[0], code, list(tail), deadline)


def _failure(
    doing: str, name: str, code: int, tail: list[str], deadline: Deadline
) -> BrokenError | PreflightError:
    said = "".join(f"\n    {line}" for line in tail)
    if any(_NO_SPACE in line for line in tail):
        return PreflightError(doing, f"the disk is full{said}", MORE_ROOM)
    if deadline.left() == 0.0:
        happened = f"'{name}' has not ended within {deadline.seconds:g} s; last lines:{said}"
        return DeadlineError(doing, happened)
    return BrokenError(doing, f"'{name}' failed ({code}):{said or ' it said nothing'}")


def _end(process: subprocess.Popen[str]) -> None:
    """Ask the program's whole session to end, and make it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(_GRACE)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        return


def _find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_PLACES}")


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Ours, with words we can read and every place that programs are in."""
    path = f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_PLACES}"
    return {**os.environ, "LC_ALL": "C.UTF-8", "PATH": path, **more}
