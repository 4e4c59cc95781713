"""Read and write files safely: a written file is either complete or unchanged."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from lab._errors import UsageError
from lab.state.directory import fsync
from lab.state.failure import guarded_files
from lab.state.permissions import is_trusted

PRIVATE = 0o600
_SHOWN = 40
"""Characters of a file's name in the name of its draft: a name has at most 255 bytes."""
_DESCRIPTORS = "/proc/self/fd/"
_NO_NAMELESS = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}
"""Error numbers of open(2) if the file system or the kernel does not support ``O_TMPFILE``."""
_MOST_BYTES = 64 << 20
"""Largest file that is read; no file of this program is as large."""


def read_private(path: Path) -> bytes:
    """Read a small private file without blocking.

    Raises OSError when it cannot be read, or is a link, a pipe, a device, or far too large.
    """
    return read_regular(path, os.O_NOFOLLOW)


def read_regular(path: Path, flags: int = 0) -> bytes:
    """Read a small untrusted file without blocking.

    Raises OSError when it cannot be read, or is a pipe, a device, or far too large.
    """
    with open_regular(path, flags) as opened:
        content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        return content


def open_regular(path: Path, flags: int = 0) -> BufferedReader:
    """Open an untrusted file for reading without blocking.

    Raises OSError when it cannot be opened, or is a directory, a pipe or a device.
    """
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode):
        os.close(file)
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        kind = _KINDS.get(stat.S_IFMT(mode), "a device")
        raise OSError(code, f"it is {kind}, not a regular file", str(path))
    return os.fdopen(file, "rb")


_KINDS = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe"}


def remove_tree(name: str, parent: int) -> None:
    """Remove the directory ``name`` in the directory open at ``parent``, of any depth.

    Links are not followed. Raises OSError.
    """
    top = _open_directory(name, parent)
    try:
        while inner := _unlink_files(top):
            for child in inner:
                _empty_directory(child, top)
                os.rmdir(child, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _empty_directory(child: str, top: int) -> None:
    """Remove a directory's files, and move its subdirectories up, so that depth is no limit."""
    descriptor = _open_directory(child, top)
    try:
        for name in _unlink_files(descriptor):
            try:
                os.rmdir(name, dir_fd=descriptor)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise
                fresh = os.urandom(8).hex()
                os.rename(name, fresh, src_dir_fd=descriptor, dst_dir_fd=top)
    finally:
        os.close(descriptor)


def _unlink_files(descriptor: int) -> list[str]:
    """Remove everything except directories; return the names of the directories."""
    with os.scandir(descriptor) as listing:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]
    for name, is_directory in entries:
        if not is_directory:
            os.unlink(name, dir_fd=descriptor)
    return [name for name, is_directory in entries if is_directory]


def _open_directory(name: str, parent: int) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=parent)


def write_private(path: Path, text: str) -> None:
    """Write the file to the disk; a reader sees the old text or the new one, never a part.

    Raises StateError when it cannot be written; the old file is then unchanged.
    """
    with guarded_files(f"writing '{path}'"), replacing(path) as file:
        file.write(text.encode())


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write to a new file of mode 0600 in the same directory, which replaces ``path`` at the end.

    Until then it has no name, so nothing is left if the process is killed. On a file system without
    unnamed files (NFS) its name is random, and an existing file or link of that name is never
    opened: in a shared directory, another user may have put it there. A link at ``path`` itself is
    replaced.

    At the end, the file and its name are on the disk: after a loss of power there is the old file
    or the new one.

    Raises OSError when it cannot be written; the old file is then unchanged.
    """
    with ExitStack() as drafts:
        number, draft = _open_draft(path, drafts)
        with os.fdopen(number, "wb") as file:
            yield file
            file.flush()
            os.fsync(number)
            if draft is None and not _link(number, path):  # path exists: link a draft, then rename
                draft = path.with_name(f"{_hidden_name(path)}{os.urandom(8).hex()}")
                drafts.callback(draft.unlink, missing_ok=True)
                _link(number, draft)
        if draft:
            draft.replace(path)
    with suppress(PermissionError):  # a directory that the caller may write, but not read
        fsync(path.parent)


def _open_draft(path: Path, drafts: ExitStack) -> tuple[int, Path | None]:
    """Open a new file beside ``path``; return its descriptor, and its name or None.

    ``drafts`` removes the name.
    """
    try:
        return os.open(path.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, PRIVATE), None
    except OSError as error:
        if error.errno not in _NO_NAMELESS:
            raise
    number, name = tempfile.mkstemp(dir=path.parent, prefix=_hidden_name(path))
    draft = Path(name)
    drafts.callback(draft.unlink, missing_ok=True)
    return number, draft


def _hidden_name(path: Path) -> str:
    """Prefix of the name of a draft of ``path``."""
    return f".{path.name[:_SHOWN]}."


def _link(number: int, path: Path) -> bool:
    """Link the open file to ``path``; False if a file or link exists there."""
    try:  # os.link follows the link in /proc only if it is given a descriptor
        os.link(f"{_DESCRIPTORS}{number}", path, src_dir_fd=number, follow_symlinks=True)
    except FileExistsError:
        return False
    return True


_MOST_LINKS = 40
"""Largest number of links on the way to a file, as in the kernel, see path_resolution(7)."""


@contextmanager
def open_output(
    path: Path, action: str, replaceable: Callable[[bytes], bool] | None = None
) -> Iterator[BinaryIO]:
    """Open a file that the user has named, for writing.

    A regular file gets mode 0600. When the block ends without an error, it replaces the existing
    file and takes over its owner. A pipe or a device is written to directly. Symbolic links are
    followed, and every directory on the way is held open, so that nobody can redirect the file
    meanwhile.

    ``replaceable``: whether a file with these contents may be replaced; None to replace any.

    Raises UsageError when the file, or a symbolic link on the way to it, belongs to a user other
    than root, the caller, and the user who called sudo, or may not be replaced. Raises OSError when
    it cannot be written; the old file is then unchanged.
    """
    with ExitStack() as opened:
        directory, name, file = _resolve(path, action, opened)
        target = Path(f"{_DESCRIPTORS}{directory}", name)
        held = Path(f"{_DESCRIPTORS}{file}")
        status = _require_replaceable(file, action)
        try:
            if status and not stat.S_ISREG(status.st_mode):
                with held.open("wb") as pipe:
                    yield pipe
                return
            if status and replaceable and not replaceable(read_regular(held)):
                raise UsageError(action, "the file has other contents", "give another file")
            with replacing(target) as draft:
                yield draft
                if status and os.geteuid() == 0:
                    os.fchown(draft.fileno(), status.st_uid, status.st_gid)
        except OSError as error:
            if str(error.filename).startswith(_DESCRIPTORS):
                error.filename = str(path)
            raise


def require_output(path: Path, action: str) -> None:
    """Check that :func:`open_output` can write the file, and leave it as it is.

    Raises UsageError and OSError as it does.
    """
    with ExitStack() as opened:
        directory, name, file = _resolve(path, action, opened)
        status = _require_replaceable(file, action)
        if status is None or stat.S_ISREG(status.st_mode):
            number, _ = _open_draft(Path(f"{_DESCRIPTORS}{directory}", name), opened)
            os.close(number)
        elif not os.access(f"{_DESCRIPTORS}{file}", os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def _require_replaceable(file: int | None, action: str) -> os.stat_result | None:
    """The status of the file, which has to be missing or of a trusted user; None if missing."""
    status = None if file is None else os.fstat(file)
    if status and not stat.S_ISCHR(status.st_mode):  # a terminal is its user's
        _require_trusted(status, "it", action)
    return status


def _resolve(path: Path, action: str, opened: ExitStack) -> tuple[int, str, int | None]:
    """Resolve a path to a directory, the file's name in it, and the file, or None if it is missing.

    The directory and the file are open descriptors.
    """
    name, links = ".", 0
    directory = file = _open_at(path, name, None, opened)
    ahead = [*reversed(path.parts)]
    while ahead:
        name = ahead.pop()
        try:
            file = _open_at(path, name, directory, opened, os.O_NOFOLLOW)
        except FileNotFoundError:
            if ahead:
                raise
            return directory, name, None
        status = os.fstat(file)
        if stat.S_ISLNK(status.st_mode):
            _require_trusted(status, f"the symbolic link '{name}'", action)
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            if status.st_dev != Path("/proc").stat().st_dev:
                ahead += reversed(Path(os.readlink("", dir_fd=file)).parts)
                continue
            file = _open_at(path, name, directory, opened)  # a link in /proc: may lead to a pipe
        if ahead:
            directory = file
    if stat.S_ISDIR(os.fstat(file).st_mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return directory, name, file


def _open_at(
    path: Path, name: str, directory: int | None, opened: ExitStack, flags: int = 0
) -> int:
    try:
        descriptor = os.open(name, os.O_PATH | os.O_CLOEXEC | flags, dir_fd=directory)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    opened.callback(os.close, descriptor)
    return descriptor


def _require_trusted(status: os.stat_result, subject: str, action: str) -> None:
    if not is_trusted(status.st_uid):
        raise UsageError(action, f"{subject} belongs to user {status.st_uid}", "give another file")
