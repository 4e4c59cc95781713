"""The state directory: found from the environment, created with mode 0700, owned by the user."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from lab._errors import StateError
from lab.state.failure import ELSEWHERE, guarded_files

VARIABLE = "HYBRIDLAB_STATE"
PRIVATE = 0o700
_OTHERS = 0o077
_DOING = "finding the state directory"


def state_directory(environment: Mapping[str, str]) -> Path:
    """The state directory for this environment; nothing is created.

    ``$HYBRIDLAB_STATE``, or ``$XDG_STATE_HOME/hybridlab``, or ``~/.local/state/hybridlab``. An
    ``$XDG_STATE_HOME`` that is not absolute is ignored, as the XDG specification requires.

    Raises StateError when ``$HYBRIDLAB_STATE`` is not absolute, when there is no ``$HOME`` to fall
    back on, when the path is not UTF-8 (it is written into JSON and shown in reports), or when
    another user owns or could replace the directory, whose contents are trusted.
    """
    directory = _meant(environment)
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


def _meant(environment: Mapping[str, str]) -> Path:
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


def require_own(directory: Path, *, there: bool = False) -> None:
    """Refuse a state directory that another user owns or may write.

    The same holds for its parents, from which another user could move it away: those owned by
    another user, and those that others may write, unless they have the sticky bit like /tmp. In
    such a directory only the owner of a file can rename or remove it. Root is trusted.

    ``there``: whether it must exist; see :func:`writer`.

    Raises StateError naming the directory, and how to fix it.
    """
    if wrong := writer(directory, own=True, there=there):
        happened, hint = wrong
        raise StateError(
            f"using the state directory '{directory}'",
            happened,
            f"{hint}, or export {VARIABLE}=/a/directory/of/yours",
        )


def is_trusted(owner: int, *, sudo: bool = True) -> bool:
    """Whether the user id is trusted: the caller, root, or the user who called sudo."""
    me, caller = os.geteuid(), os.environ.get("SUDO_UID", "") if sudo else ""
    root = Path("/").stat().st_uid  # 0, or another id in a user namespace
    return owner in {0, root, me} or (me == 0 and caller == str(owner))


def writer(
    path: Path, *, own: bool = False, there: bool = False, held: int | None = None
) -> tuple[str, str] | None:
    """Find an untrusted user who may write the file or directory, or replace it.

    That is a user who owns it, one of its parents or a link on the way to it, or may write one of
    them as "other" or as a member of its group. In a directory with the sticky bit, like /tmp, only
    the owner of a file can rename or remove it.

    ``own``: whether only the caller may own it, and no group may write it. Root is then trusted for
    the parents, and the user who called sudo is not trusted. ``there``: whether it must exist:
    otherwise another user could still create it. ``held``: a descriptor of it, if it is already
    open: that file is checked, too.

    Returns what was found and a hint, as text; None if there is no such user.
    """
    real = _real(path)
    looked = [(one, found, str(one) == real) for one, found in _way_to(path)]
    if held is not None:
        looked.append((path, os.fstat(held), True))
    for one, found, itself in looked:
        if found is None:
            if there:
                return f"'{one}' is not there any more", "see who removes it"
            continue
        wrong = _stranger(one, found, own=own, itself=itself) or _open_to_others(
            one, found, own=own, itself=itself
        )
        if wrong:
            return wrong
    return None


def make_own(directory: Path) -> None:
    """Create the state directory if it does not exist, and check that the caller owns it.

    Raises StateError when it cannot be created, or another user has created it since its path was
    checked.
    """
    make_private(directory)
    require_own(directory, there=True)


def _real(path: Path) -> str:
    try:
        return os.path.realpath(path)
    except OSError:  # a link on the way was just removed
        return str(path)


def _way_to(directory: Path) -> Iterator[tuple[Path, os.stat_result | None]]:
    """The directory, all its parents, and the same for the targets of links on the way.

    The status is None for a path that does not exist.
    """
    passed: set[Path] = set()
    ahead = [Path(_real(directory)), directory]
    while ahead:
        path = ahead.pop()
        if path in passed:
            continue
        passed.add(path)
        ahead += [path.parent]
        found = None
        with suppress(OSError):  # missing, or hidden from the caller
            found = path.lstat()
            if stat.S_ISLNK(found.st_mode):
                ahead.append(path.parent / path.readlink())
        yield path, found


def _stranger(
    path: Path, found: os.stat_result, *, own: bool, itself: bool
) -> tuple[str, str] | None:
    """A message and a hint if an untrusted user owns the file; see :func:`writer`."""
    me, owner = os.geteuid(), found.st_uid
    if (owner == me) if own and itself else is_trusted(owner, sudo=not own):
        return None
    name, hint = _user(owner), "use one of your own"
    if me == 0:
        hint = f"run it as {name}, or without {name}'s environment ('sudo -E')"
    elif not found.st_mode & _OTHERS:
        hint = f"'sudo chown -R $USER {shlex.quote(str(path))}' if 'sudo -E lab' made it"
    return f"'{path}' belongs to {name}, and you are {_user(me)}", hint


def _open_to_others(
    path: Path, found: os.stat_result, *, own: bool, itself: bool
) -> tuple[str, str] | None:
    """A message and a hint if others than its owner may write the file; see :func:`writer`."""
    mode = found.st_mode
    if not (stat.S_ISDIR(mode) or (itself and not stat.S_ISLNK(mode))):
        return None
    if not mode & (stat.S_IWOTH | stat.S_IWGRP):
        return None
    if stat.S_ISDIR(mode) and mode & stat.S_ISVTX:
        words = f"'{path}' is shared by all users", "use a directory of your own in it"
        return words if itself else None
    hint = f"'chmod go-w {shlex.quote(str(path))}'"
    if mode & stat.S_IWOTH:
        return f"everyone may write '{path}'", hint
    if _is_alone(found) and not (own and itself):
        return None
    return f"group '{_group(found.st_gid)}' may write '{path}'", hint


def _is_alone(found: os.stat_result) -> bool:
    """Whether the file's group is the owner's private group, which many systems create."""
    import grp  # noqa: PLC0415  seldom needed

    try:
        group = grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    owner = _user(found.st_uid)
    return group.gr_name == owner and not set(group.gr_mem) - {owner}


def _user(number: int) -> str:
    import pwd  # noqa: PLC0415  seldom needed

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _group(number: int) -> str:
    import grp  # noqa: PLC0415  seldom needed

    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


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
