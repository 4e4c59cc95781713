"""What is done on a Linux machine, as data: printable, hashable, and the same when done again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from lab.plan.canonical import digest

QUICK_SECONDS = 60.0
"""For what starts one program that has little to do."""


@dataclass(frozen=True, slots=True)
class WriteFile:
    """A file with this content; its directories are made."""

    path: str
    content: str
    mode: int = 0o644
    secret: bool = field(default=False, compare=False)
    """Whether its content stays out of what is printed."""


@dataclass(frozen=True, slots=True)
class Symlink:
    """A symbolic link to ``target``; its directories are made."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class Remove:
    """None of these files, links and directories is there; patterns of a shell are followed."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """A command that runs unless ``unless``, a shell's line, says that it need not."""

    command: tuple[str, ...]
    unless: str = ""
    seconds: float = QUICK_SECONDS
    """On hardware."""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class SystemdUnit:
    """A unit that starts with the machine and runs with these inputs.

    It is started anew when they are others than those that it was last started with.
    """

    unit: str
    inputs: str = ""
    """Hash of the files it reads."""
    wait: bool = True
    """Whether starting it takes until it is ready; without, it is only set off."""
    seconds: float = QUICK_SECONDS


@dataclass(frozen=True, slots=True)
class Enabled:
    """A unit that starts with the machine, and is left alone now."""

    unit: str


Operation = WriteFile | Symlink | Remove | Run | SystemdUnit | Enabled
Operations = tuple[Operation, ...]


def inputs(files: Iterable[Operation]) -> str:
    """The hash that :class:`SystemdUnit` wants, of those operations that are files."""
    return digest(*(one for one in files if isinstance(one, WriteFile | Symlink)))


def told(operations: Iterable[Operation]) -> Iterator[str]:
    """One line for each operation, without contents."""
    for one in operations:
        match one:
            case WriteFile():
                yield f"write {one.path} ({one.mode:04o}, {len(one.content)} characters)"
            case Symlink():
                yield f"link {one.path} -> {one.target}"
            case Remove():
                yield f"remove {' '.join(one.paths)}"
            case Run():
                but = f" unless {one.unless}" if one.unless else ""
                yield f"run {shlex.join(one.command)}{but}"
            case SystemdUnit():
                yield f"service {one.unit}" + ("" if one.wait else " (not waited for)")
            case Enabled():
                yield f"enable {one.unit}"


def printed(operations: Iterable[Operation]) -> str:
    """Everything, contents of files too, as golden files hold it; secrets are left out."""
    lines: list[str] = []
    for one, line in zip(operations := tuple(operations), told(operations), strict=True):
        lines.append(line)
        if isinstance(one, WriteFile):
            shown = "(secret)\n" if one.secret else one.content
            lines += [f"    | {text}".rstrip() for text in shown.splitlines()]
    return "".join(f"{line}\n" for line in lines)


def public(operations: Iterable[Operation]) -> Operations:
    """The operations without the content of secret files: what a digest may be made of."""
    return tuple(
        replace(one, content="") if isinstance(one, WriteFile) and one.secret else one
        for one in operations
    )
