"""The state directory: found from the environment, created with mode 0700, owned by the user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lab._errors import StateError
from lab.state.failure import ELSEWHERE, guarded_files
from lab.state.permissions import writer

VARIABLE = "HYBRIDLAB_STATE"
PRIVATE = 0o700
_DOING = "finding the state directory"


def state_directory(environment: Mapping[str, str]) -> Path:
    """The state directory for this environment; nothing is created.

    ``$HYBRIDLAB_STATE``, or ``$XDG_STATE_HOME/hybridlab``, or ``~/.local/state/hybridlab``. An
    ``$XDG_STATE_HOME`` that is not absolute is ignored, as the XDG specification requires.

    Raises StateError when ``$HYBRIDLAB_STATE`` is not absolute, when there is no ``$HOME`` to fall
    back on, when the path is not UTF-8 (it is written into JSON and shown in reports), or when
    another user owns or could replace the directory, whose contents are trusted.
    """
    directory = _choose_directory(environment)
    try:
        str(directory).encode()
    except UnicodeEncodeError:
        raise StateError(
            _DOING,
            f"the path {str(directory)!r} is not UTF-8",
            f"export {VARIABLE}=/another/directory",
        ) from None
    require_own(directory)
    return directory


def _choose_directory(environment: Mapping[str, str]) -> Path:
    own = environment.get(VARIABLE, "")
    if own:
        if not own.startswith("/"):
            raise StateError(
                _DOING,
                f"{VARIABLE} is '{own}', which is not an absolute path",
                f'export {VARIABLE}="$PWD/{own}"',
            )
        return Path(own)
    shared = environment.get("XDG_STATE_HOME", "")
    if shared.startswith("/"):
        return Path(shared) / "hybridlab"
    home = environment.get("HOME", "")
    if not home.startswith("/"):
        raise StateError(
            _DOING,
            f"HOME is '{home}', which is not an absolute path" if home else "HOME is not set",
            f"export {VARIABLE}=/a/directory/of/yours",
        )
    return Path(home) / ".local" / "state" / "hybridlab"


def require_own(directory: Path, *, exists: bool = False) -> None:
    """Refuse a state directory that another user owns or may write.

    The same holds for its parents, from which another user could move it away: those owned by
    another user, and those that others may write, unless they have the sticky bit like /tmp. In
    such a directory only the owner of a file can rename or remove it. Root is trusted.

    ``exists``: whether it must exist; see :func:`~lab.state.permissions.writer`.

    Raises StateError naming the directory, and how to fix it.
    """
    if wrong := writer(directory, own=True, exists=exists):
        happened, hint = wrong
        raise StateError(
            f"using the state directory '{directory}'",
            happened,
            f"{hint}, or export {VARIABLE}=/a/directory/of/yours",
        )


def make_own(directory: Path) -> None:
    """Create the state directory if it does not exist, and check that the caller owns it.

    Raises StateError when it cannot be created, or another user has created it since its path was
    checked.
    """
    make_private(directory)
    require_own(directory, exists=True)


def lab_directory(state: Path, name: str) -> Path:
    """A lab's directory in the state directory. Not created here."""
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise StateError(
            "finding the directory of a lab",
            f"{name!r} is not a lab name, so another program wrote it into the journal",
            f"check the table 'labs' of '{state}/state.db'",
        )
    return state / "labs" / name


def open_unlinked(directory: Path) -> int:
    """Open a lab's directory, where neither it nor its parent ``labs`` is a link.

    Raises OSError when one of them is a link, is not a directory, or does not exist.
    """
    above = _open_unlinked(directory.parent, directory.parent)
    try:
        return _open_unlinked(directory.name, directory, above)
    finally:
        os.close(above)


def _open_unlinked(name: str | Path, path: Path, above: int | None = None) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=above)
    except NotADirectoryError as error:
        raise OSError(error.errno, "it is a link, or not a directory", str(path)) from error


def nights_directory(state: Path) -> Path:
    """The directory of nights of ``lab nightly`` in the state directory. Not created here."""
    return state / "nightly"


def fsync(path: Path) -> None:
    """Flush a file or a directory to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_private(directory: Path, elsewhere: str = ELSEWHERE) -> None:
    """Create the directory with mode 0700, and missing parents; an existing one is unchanged.

    A new one is on the disk at the end.

    ``elsewhere``: hint if it cannot be created; see :func:`~lab.state.failure.file_failure`.

    Raises StateError when it cannot be created, or something else has its name.
    """
    with guarded_files(f"making the directory '{directory}'", elsewhere):
        directory.parent.mkdir(parents=True, exist_ok=True)
        if not directory.is_dir():
            directory.mkdir(mode=PRIVATE, exist_ok=True)
            with suppress(PermissionError):  # a parent that the caller may write, but not read
                fsync(directory.parent)
