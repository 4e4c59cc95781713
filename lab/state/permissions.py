"""Who may write a file or a directory, or replace it: by owner, mode, groups and POSIX ACL."""

from __future__ import annotations

import os
import shlex
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lab._dataclass import dataclass

_OTHERS = 0o077
_ACL = "system.posix_acl_access"
"""The extended attribute that has the ACL; see acl(5), and posix_acl_xattr.h of Linux."""
_VERSION, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")
"""The ACL begins with its version, 2; each entry has a tag, permissions and an id."""
_USER, _GROUP_OBJ, _GROUP, _MASK = 0x02, 0x04, 0x08, 0x10
_WRITE = 0o2


@dataclass(frozen=True, slots=True)
class FileAccess:
    """Who may write one file or directory."""

    mode: int
    owner: int
    group: int
    """Ids of its owner and its group."""
    users: tuple[int, ...]
    """Other users whom its ACL lets write."""
    groups: tuple[int, ...]
    """Groups that may write, by its mode or its ACL."""


@dataclass(frozen=True, slots=True)
class UnixGroup:
    """A group of the system's database."""

    name: str
    members: tuple[int | None, ...]
    """Ids of its users, also of those whose primary group it is; None for an unknown user."""


def is_trusted(owner: int, *, sudo: bool = True) -> bool:
    """Whether the user id is trusted: the caller, root, or the user who called sudo."""
    me, caller = os.geteuid(), os.environ.get("SUDO_UID", "") if sudo else ""
    root = Path("/").stat().st_uid  # 0, or another id in a user namespace
    return owner in {0, root, me} or (me == 0 and caller == str(owner))


def writer(
    path: Path, *, own: bool = False, exists: bool = False, held: int | None = None
) -> tuple[str, str] | None:
    """Find an untrusted user who may write the file or directory, or replace it.

    That is a user who owns it, one of its parents or a link on the way to it, or may write one of
    them as "other", as a member of its group, or by its POSIX ACL. In a directory with the sticky
    bit, like /tmp, only the owner of a file can rename or remove it. ACLs of other kinds (NFSv4)
    are not read.

    ``own``: whether only the caller may own it, and no group may write it. Root is then trusted for
    the parents, and the user who called sudo is not trusted. ``exists``: whether it must exist:
    otherwise another user could still create it. ``held``: a descriptor of it, if it is already
    open: that file is checked, too.

    Returns what was found and a hint, as text; None if there is no such user.
    """
    real = _resolve(path)
    places = [(place, read_access(place), str(place) == real) for place in _way_to(path)]
    if held is not None:
        places.append((path, read_access(held), True))
    for place, access, itself in places:
        if access is None:
            if exists:
                return f"'{place}' is not there any more", "see who removes it"
            continue
        wrong = _find_stranger(place, access, own=own, itself=itself) or _open_to_others(
            place, access, own=own, itself=itself
        )
        if wrong:
            return wrong
    return None


def _resolve(path: Path) -> str:
    try:
        return os.path.realpath(path)
    except OSError:  # a link on the way was just removed
        return str(path)


def _way_to(directory: Path) -> Iterator[Path]:
    """The directory, all its parents, and the same for the targets of links on the way."""
    passed: set[Path] = set()
    ahead = [Path(_resolve(directory)), directory]
    while ahead:
        path = ahead.pop()
        if path in passed:
            continue
        passed.add(path)
        ahead += [path.parent]
        with suppress(OSError):  # missing, hidden from the caller, or no link
            ahead.append(path.parent / path.readlink())
        yield path


def _find_stranger(
    path: Path, access: FileAccess, *, own: bool, itself: bool
) -> tuple[str, str] | None:
    """A message and a hint if an untrusted user owns the file; see :func:`writer`."""
    me, owner = os.geteuid(), access.owner
    if (owner == me) if own and itself else is_trusted(owner, sudo=not own):
        return None
    name, hint = _name_user(owner), "use one of your own"
    if me == 0:
        hint = f"run it as {name}, or without {name}'s environment ('sudo -E')"
    elif not access.mode & _OTHERS:
        hint = f"'sudo chown -R $USER {shlex.quote(str(path))}' if 'sudo -E lab' made it"
    return f"'{path}' belongs to {name}, and you are {_name_user(me)}", hint


def read_access(path: Path | int) -> FileAccess | None:
    """Who may write the file or directory at a path or descriptor; None if it cannot be seen."""
    try:
        status = os.fstat(path) if isinstance(path, int) else path.lstat()
    except OSError:  # missing, or hidden from the caller
        return None
    mode, acl = status.st_mode, b""
    if not stat.S_ISLNK(mode):
        with suppress(OSError):  # it has no ACL, or its file system has none
            acl = os.getxattr(path, _ACL)
    users: tuple[int, ...] = ()
    groups: tuple[int, ...] = (status.st_gid,) if mode & stat.S_IWGRP else ()
    if acl:
        users, groups = _acl_writers(acl, status.st_gid)
    return FileAccess(mode, status.st_uid, status.st_gid, users, groups)


def _acl_writers(acl: bytes, group: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The users and groups that an ACL lets write, besides owner and others.

    ``group``: the file's group. With an ACL, the mode's bits of the group are the ACL's mask.
    """
    entries = list(_ENTRY.iter_unpack(acl[_VERSION.size :]))
    mask = next((allowed for tag, allowed, _ in entries if tag == _MASK), _WRITE)
    writing = [(tag, who) for tag, allowed, who in entries if allowed & mask & _WRITE]
    groups = [group for tag, _ in writing if tag == _GROUP_OBJ]
    groups += [who for tag, who in writing if tag == _GROUP]
    return tuple(who for tag, who in writing if tag == _USER), tuple(groups)


def _open_to_others(
    path: Path, access: FileAccess, *, own: bool, itself: bool
) -> tuple[str, str] | None:
    """A message and a hint if others than its owner may write the file; see :func:`writer`."""
    mode = access.mode
    if not (stat.S_ISDIR(mode) or (itself and not stat.S_ISLNK(mode))):
        return None
    users = [user for user in access.users if not is_trusted(user, sudo=not own)]
    groups = [
        group
        for group in access.groups
        if (own and itself) or not _is_private(group, access, sudo=not own)
    ]
    everyone = mode & stat.S_IWOTH
    if not (everyone or users or groups):
        return None
    if stat.S_ISDIR(mode) and mode & stat.S_ISVTX:
        words = f"'{path}' is shared by all users", "use a directory of your own in it"
        return words if itself else None
    hint = f"'chmod go-w {shlex.quote(str(path))}'"  # with an ACL, this takes it from its mask
    if everyone:
        return f"everyone may write '{path}'", hint
    if users:
        name = _name_user(users[0]).removeprefix("user ")
        return f"user '{name}' may write '{path}' by its ACL", hint
    name = _group_name(groups[0])
    others = ", which has other members," if name == _name_user(access.owner) and not own else ""
    return f"group '{name}'{others} may write '{path}'", hint


def _is_private(number: int, access: FileAccess, *, sudo: bool) -> bool:
    """Whether the group is the owner's private group, which many systems create."""
    group = read_group(number)
    if group is None or group.name != _name_user(access.owner):
        return False
    return all(
        user == access.owner or (user is not None and is_trusted(user, sudo=sudo))
        for user in group.members
    )


def read_group(number: int) -> UnixGroup | None:
    """The group with this id; None if it is unknown."""
    import grp  # noqa: PLC0415  seldom needed
    import pwd  # noqa: PLC0415  the same

    try:
        group = grp.getgrgid(number)
    except KeyError:
        return None
    users = pwd.getpwall()
    ids = {user.pw_name: user.pw_uid for user in users}
    listed = (ids[name] if name in ids else _user_id(name) for name in group.gr_mem)
    primary = (user.pw_uid for user in users if user.pw_gid == number)
    return UnixGroup(group.gr_name, (*listed, *primary))


def _user_id(name: str) -> int | None:
    """The id of a user; directory services need not list all their users. None if unknown."""
    import pwd  # noqa: PLC0415  seldom needed

    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def _name_user(number: int) -> str:
    import pwd  # noqa: PLC0415  seldom needed

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _group_name(number: int) -> str:
    group = read_group(number)
    return group.name if group else str(number)
