"""What commands print and write: results on standard output, and files that the user named."""

from __future__ import annotations

from pathlib import Path

import click

from lab._errors import UsageError
from lab._log import clean


def echo(result: object = "", *, nl: bool = True) -> None:
    """Print a result. Control characters in it are shown as numbers.

    Files, machines and servers of others are quoted in results; what they say must not paint the
    terminal, move its cursor or set its clipboard.
    """
    click.echo(clean(str(result)), nl=nl)


def echo_raw(content: str | bytes) -> None:
    """Print text or bytes as they are: a picture, or what a machine's console has said."""
    click.echo(content, nl=False)


def write_file(path: Path, content: bytes, doing: str) -> None:
    """Write a file that the user has named; see :func:`lab.state.files.open_output`.

    Raises
    ------
    UsageError
        When it cannot be written, or a file or a link there is another user's.

    """
    from lab.state.files import open_output

    try:
        with open_output(path, doing) as file:
            file.write(content)
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise UsageError(
            doing, f"'{path}' cannot be written: {words}", "name another file with -o"
        ) from error
