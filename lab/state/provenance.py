"""What a run was made with: the version of this program, and the machine that it ran on."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from lab._dataclass import dataclass
from lab._log import quantity

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_IN_VERSION = re.compile(r"\+g([0-9a-f]{7,64})")
_SHOWN = 12
"""Characters of a commit's id."""
_GIB = 1 << 30
SOURCE = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Provenance:
    """What made a run. No name of the machine or of its user: reports may be published."""

    version: str
    """Version of hybridlab, without the commit."""
    commit: str
    """The first 12 characters of its commit's id; empty for a release."""
    python: str
    kernel: str
    host: str
    """Class of the machine: architecture, processors, memory, operating system."""
    changed: bool = False
    """Whether files of the checkout differed from the commit, as far as git could say."""

    @property
    def tool(self) -> str:
        """``hybridlab 0.1.0, commit 1f2e3d4c5b6a with uncommitted changes``."""
        commit = f", commit {self.commit}" if self.commit else ""
        return f"hybridlab {self.version}{commit}{' with uncommitted changes' * self.changed}"

    @property
    def surroundings(self) -> str:
        """``Python 3.11.2, Linux 6.1.0-18-amd64, x86_64, 8 processors, 32 GiB, Debian ...``."""
        return f"Python {self.python}, {self.kernel}, {self.host}"


def provenance(source: Path = SOURCE) -> Provenance:
    """The provenance of a run of this process. ``source``: the checkout, if it is one."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  slow to import

    try:
        written = version("hybridlab")
    except PackageNotFoundError:
        written = "unknown"
    in_version = _IN_VERSION.search(written)
    commit = commit_of(source) or (in_version[1][:_SHOWN] if in_version else "")
    return Provenance(
        version=written.partition("+")[0] if commit else written,
        commit=commit,
        python=".".join(map(str, sys.version_info[:3])),
        kernel=f"{os.uname().sysname} {os.uname().release}",
        host=_describe_host(),
    )


def commit_of(source: Path) -> str:
    """The commit that is checked out in ``source``; empty if it is no checkout of this program.

    An editable installation keeps the version of the day when it was installed.
    """
    with suppress(OSError, ValueError, IndexError):
        if (source / "pyproject.toml").is_file():
            return _head(_git_directory(source / ".git"))[:_SHOWN]
    return ""


def _git_directory(git: Path) -> Path:
    """The git directory; ``.git`` of a worktree is a file that names it."""
    if git.is_dir():
        return git
    return git.parent / _read(git).removeprefix("gitdir: ")


def _head(git: Path) -> str:
    """The commit of HEAD; empty if its branch has none."""
    head = _read(git / "HEAD")
    if not head.startswith("ref: "):
        return _valid(head)
    name = head.removeprefix("ref: ")
    common = git / _read(git / "commondir") if (git / "commondir").is_file() else git
    for place in (git / name, common / name):
        if place.is_file():
            return _valid(_read(place))
    packed = _read(common / "packed-refs").splitlines()
    pairs = (line.split(" ") for line in packed if not line.startswith(("#", "^")))
    return next((_valid(commit) for commit, ref in pairs if ref == name), "")


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()


def _valid(commit: str) -> str:
    return commit if _COMMIT.fullmatch(commit) else ""


def _describe_host() -> str:
    from platform import freedesktop_os_release  # noqa: PLC0415  slow to import

    processors = quantity(len(os.sched_getaffinity(0)), "processor")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    parts = [os.uname().machine, processors, f"{memory:.0f} GiB"]
    with suppress(OSError):  # no /etc/os-release
        parts.append(freedesktop_os_release()["PRETTY_NAME"])
    return ", ".join(parts)
