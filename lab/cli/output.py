"""Output of commands: results on standard output, and files that the user names."""

from __future__ import annotations

import io
import select
import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lab._errors import PreflightError, UsageError, os_words
from lab._log import clean, quantity, say, table_lines

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from lab.lifecycle.open_lab import OpenLab


class ReaderGoneError(Exception):
    """The reader of standard output has gone; a command that only streams to it ends."""


class _StandardOutput(io.FileIO):
    """The file of standard output; after a failure it discards all later output.

    A reader that closes the pipe, which ``lab list | head`` does, is no failure: the command goes
    on, and its exit code is that of what it did.
    """

    _failed = False

    def write(self, content: ReadableBuffer) -> int:
        """Write some of the bytes, and return their number; wait while a pipe is full.

        Raises PreflightError when the bytes cannot be written, such as to a full disk.
        """
        if self._failed:
            return memoryview(content).nbytes
        try:
            while (count := super().write(content)) is None:
                select.select([], [self], [])
        except BrokenPipeError:
            self._failed = True
            return memoryview(content).nbytes
        except OSError as error:
            self._failed = True
            action = "writing the result to standard output"
            raise PreflightError(action, os_words(error), "redirect it elsewhere") from error
        return count


def open_standard_output() -> None:
    """Replace ``sys.stdout``, unless it is replaced already, by one that writes everything.

    Python's own loses what a full disk does not take if it is unbuffered (``PYTHONUNBUFFERED``).
    Characters that its encoding lacks are escaped: file names may have any.
    """
    plain = sys.stdout
    if plain is not sys.__stdout__ or not isinstance(plain, io.TextIOWrapper):
        return
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_StandardOutput(plain.fileno(), "w", closefd=False)),
        encoding=plain.encoding,
        errors="backslashreplace",
        line_buffering=plain.line_buffering or plain.write_through,
    )


def echo(result: object = "", *, nl: bool = True) -> None:
    """Print a result, with control characters escaped.

    Results quote files, machines and servers that are not trusted; their text must not colour the
    terminal, move its cursor or set its clipboard.
    """
    click.echo(clean(str(result)), nl=nl)


def echo_json(result: object, indent: int = 2) -> None:
    """Print a result as JSON; dataclasses in it are written field by field."""
    import json

    echo(json.dumps(result, indent=indent, default=_plain))


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return str(value)


def echo_table(*rows: Sequence[str]) -> None:
    """Print rows in columns as wide as they need to be."""
    for line in table_lines(rows):
        echo(line)


def say_disclaimer(opened: OpenLab) -> None:
    """Say, before anything else of the lab, which of its nodes are not what they look like."""
    if opened.disclaimer:
        say(opened.disclaimer)


def echo_collected(count: int, size: float, command: str, *, yes: bool) -> None:
    """Print how many objects were removed, or what ``command`` would remove; ``size`` in bytes."""
    after = "" if yes or not count else f"; '{command} --yes' removes it"
    done = "removed" if yes else "would remove"
    echo(f"{done} {quantity(count, 'object')}, {size / 1e6:.0f} MB{after}")


def echo_raw(content: str | bytes) -> None:
    """Print text or bytes unchanged, such as a picture or a console log, and flush."""
    click.echo(content, nl=False)


def echo_part(content: bytes) -> None:
    """Print a part of a file unchanged, and flush.

    Raises ReaderGoneError when the reader has closed the pipe, also for an empty part.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(event & select.POLLERR for _, event in poll.poll(0)):
        raise ReaderGoneError
    echo_raw(content)


def write_file(path: Path, content: bytes, action: str) -> None:
    """Write a file that the user has named; see :func:`lab.state.files.open_output`.

    Raises UsageError if it cannot be written, or an existing file or link there belongs to another
    user; PreflightError if a resource of the machine is used up.
    """
    from lab.state.failure import exhausted
    from lab.state.files import open_output

    try:
        with open_output(path, action) as file:
            file.write(content)
    except OSError as error:
        words = f"'{path}' cannot be written: {os_words(error)}"
        hint = "name another file with -o"
        raise exhausted(error, action) or UsageError(action, words, hint) from error
