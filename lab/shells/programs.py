"""Find and run programs on this machine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError

MORE_ROOM = "free some space ('lab image gc'), or put 'cache' of the inventory on a larger disk"
PACKAGES = {
    "apt-get": "apt",
    "apt-config": "apt",
    "curl": "curl",
    "skopeo": "skopeo",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "debugfs": "e2fsprogs",
    "newuidmap": "uidmap",
    "qemu-img": "qemu-utils",
    "qemu-io": "qemu-utils",
    "prlimit": "util-linux",
    "setpriv": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ntfscat": "ntfs-3g",
    "ntfsls": "ntfs-3g",
    "tar": "tar",
    "wimlib-imagex": "wimtools",
    "x86_64-w64-mingw32-gcc": "gcc-mingw-w64-x86-64-win32",
    "x86_64-w64-mingw32-windres": "binutils-mingw-w64-x86-64",
}
"""Debian package by program."""
_SYSTEM_PLACES = "/usr/local/sbin:/usr/sbin:/sbin"
"""Directories of some programs that are not in an unprivileged user's PATH on Debian."""
_TAIL = 12
"""Number of last output lines shown in an error."""
_LINE = 1000
"""Most characters kept per line."""
_NO_SPACE = "No space left on device"
_FILE_LIMIT = re.compile("file size limit exceeded|file too large", re.IGNORECASE)
"""Error messages for writing past the limit, from Go and the C library."""
_GRACE = 10.0
"""Seconds for a program to clean up after SIGTERM."""


class FileLimitError(BrokenError):
    """A program exceeded its file size limit."""


def need(action: str, *names: str) -> None:
    """Check that every program is installed.

    Raises PreflightError with all missing programs and the command that installs them.
    """
    missing = [name for name in names if _find(name) is None]
    if missing:
        packages = " ".join(dict.fromkeys(PACKAGES[name] for name in missing))
        listed = ", ".join(f"'{name}'" for name in missing)
        raise PreflightError(action, f"{listed} not found", f"apt-get install {packages}")


def read_output(command: Sequence[str]) -> str:
    """The standard output of a short program; empty if it fails."""
    path = _find(command[0])
    if path is None:
        return ""
    done = subprocess.run(  # noqa: S603  one of PACKAGES
        [path, *command[1:]], capture_output=True, text=True, check=False, env=_environment({})
    )
    return done.stdout if done.returncode == 0 else ""


@contextmanager
def unnamed_file() -> Iterator[Path]:
    """An unlinked file with mode 0600, which disappears with this process.

    Its path, in /proc, is valid for programs that this process runs.
    """
    with TemporaryFile() as file:
        yield Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")


@dataclass(frozen=True, slots=True)
class Redirection:
    """Files instead of a program's standard input, which is empty, and its standard output."""

    stdin: Path | None = None
    output: Path | None = None


def run(  # noqa: PLR0913  each is an option of the process
    action: str,
    command: Sequence[str],
    deadline: Deadline,
    *,
    on_line: Callable[[str], None] = lambda _: None,
    environment: Mapping[str, str] | None = None,
    redirection: Redirection = Redirection(),
    file_limit: int | None = None,
) -> None:
    """Run a program; it is terminated if this process dies.

    ``on_line``: called with every line that it prints, on either stream, except into a file.
    ``file_limit``: most bytes that it may write to one file.

    Raises DeadlineError when it does not finish in time; shows its last lines. Raises
    PreflightError when the disk is full. Raises FileLimitError when it exceeds ``file_limit``.
    Raises BrokenError when it fails; shows its last lines.
    """
    tail: deque[str] = deque(maxlen=_TAIL)
    path = _find(command[0])
    assert path is not None, "need() has found it"
    start = [str(_find("setpriv")), "--pdeathsig", "TERM", "--"]
    if file_limit is not None:
        start += [str(_find("prlimit")), f"--fsize={file_limit}", "--"]
    past_limit = False
    with ExitStack() as files:
        source = files.enter_context((redirection.stdin or Path(os.devnull)).open("rb"))
        output = redirection.output
        kept = files.enter_context(output.open("wb")) if output else None
        process = subprocess.Popen(  # noqa: S603  one of PACKAGES
            [*start, path, *command[1:]],
            stdin=source,
            stdout=kept or subprocess.PIPE,
            stderr=subprocess.PIPE if kept else subprocess.STDOUT,
            text=True,
            errors="replace",
            env=_environment(environment or {}),
            start_new_session=True,
        )
    timer = Timer(deadline.left(), _end, [process])
    timer.start()
    try:
        lines = process.stderr if output else process.stdout
        assert lines is not None, "one of the two is a pipe"
        for line in lines:
            if text := line.strip():
                tail.append(text[:_LINE])
                past_limit |= _FILE_LIMIT.search(text) is not None
                on_line(text)
        code = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        timer.cancel()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    if file_limit is not None and (code == -signal.SIGXFSZ or (code and past_limit)):
        happened = f"'{command[0]}' has written more than {file_limit:,} bytes to one file"
        raise FileLimitError(action, happened)
    if code != 0:
        raise _failure(action, command[0], code, list(tail), deadline)


def _failure(
    action: str, name: str, code: int, tail: list[str], deadline: Deadline
) -> BrokenError | PreflightError:
    output = "".join(f"\n    {line}" for line in tail)
    if any(_NO_SPACE in line for line in tail):
        return PreflightError(action, f"the disk is full{output}", MORE_ROOM)
    if deadline.left() == 0.0:
        happened = f"'{name}' has not ended within {deadline.seconds:g} s; last lines:{output}"
        return DeadlineError(action, happened)
    return BrokenError(action, f"'{name}' failed ({code}):{output or ' it printed nothing'}")


def _end(process: subprocess.Popen[str]) -> None:
    """Terminate the program's process group; kill it if it does not exit."""
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
    """The environment of this process with English messages, and the sbin directories in PATH."""
    path = f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_PLACES}"
    return {**os.environ, "LC_ALL": "C.UTF-8", "PATH": path, **more}
