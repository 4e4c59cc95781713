"""Where the state lives: decided from the environment alone, made with mode 0700."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lab._errors import StateError
from lab.state.failure import ELSEWHERE, guarded_files

VARIABLE = "HYBRIDLAB_STATE"
PRIVATE = 0o700
_DOING = "finding the state directory"


def state_directory(environment: Mapping[str, str]) -> Path:
    """The state directory that the environment means; nothing is looked at or made.

    ``$HYBRIDLAB_STATE``, or ``$XDG_STATE_HOME/hybridlab``, or ``~/.local/state/hybridlab``. An
    ``$XDG_STATE_HOME`` that is not absolute is ignored, as the XDG specification asks.

    Raises
    ------
    StateError
        When ``$HYBRIDLAB_STATE`` is not absolute, or there is no ``$HOME`` to fall back on, or
        the path is no UTF-8: it is written into JSON and shown in reports.

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


def lab_directory(state: Path, name: str) -> Path:
    """A lab's own directory in that state directory. Not made here."""
    return state / "labs" / name


def make_private(directory: Path, elsewhere: str = ELSEWHERE) -> None:
    """Make the directory with mode 0700, and its parents as usual; one that exists is left alone.

    Parameters
    ----------
    directory
        The directory.
    elsewhere
        What else can be tried when it cannot be made; see ``guarded_files``.

    Raises
    ------
    StateError
        When it cannot be made, or something else has its name.

    """
    with guarded_files(f"making the directory '{directory}'", elsewhere):
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode=PRIVATE, exist_ok=True)
