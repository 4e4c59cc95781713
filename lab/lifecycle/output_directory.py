"""The directory that a user has named for a capture's files, had before anything is captured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from lab._errors import UsageError
from lab.state.directory import writer


@contextmanager
def made_empty(directory: Path | None) -> Iterator[None]:
    """Have that directory, new or empty, before the work whose files it is for.

    What was made of it is removed again where the block fails. None is a directory of the lab's
    own, which is made when there is something for it.

    Raises
    ------
    UsageError
        When it has something in it, is none, or cannot be made or written into; when another
        user may write it or lead it elsewhere.

    """
    made: list[Path] = []
    try:
        if directory is not None:
            _require_empty(directory)
            _make(directory, made)
            _require_own(directory)  # somebody else may have made one above it
        yield
    except BaseException:
        for one in reversed(made):
            with suppress(OSError):  # not empty any more
                one.rmdir()
        raise


def _require_empty(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise _unfit(f"'{directory}' is no directory")
    _require_own(directory)
    if not directory.exists():
        return
    try:
        empty = not any(directory.iterdir())
    except OSError as error:
        raise _unfit(f"'{directory}' cannot be read: {_words(error)}") from error
    if not empty:
        raise _unfit(f"'{directory}' has something in it")


def _require_own(directory: Path) -> None:
    if stranger := writer(directory.absolute()):
        raise _unfit(f"'{directory}': {stranger}")


def _make(directory: Path, made: list[Path]) -> None:
    try:
        for one in (*reversed(directory.parents), directory):
            if not one.exists():
                one.mkdir()
                made.append(one)
        with TemporaryFile(dir=directory):
            pass
    except OSError as error:
        lacks = "no file can be made in it" if directory.is_dir() else "it cannot be made"
        raise _unfit(f"'{directory}': {lacks}: {_words(error)}") from error


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _unfit(happened: str) -> UsageError:
    return UsageError(
        "capturing packets",
        happened,
        "give --output a new or an empty directory that you may write into, or leave it out: the "
        "files are then kept beside the lab's runs",
    )
