"""Inventory files, found and loaded: every error at once, each with its place in the file."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lab._errors import InventoryError
from lab.scenario.findings import FileFinding, lines, quoted

if TYPE_CHECKING:
    from lab.inventory.inventory import Inventory

VARIABLE = "HYBRIDLAB_INVENTORY"
NAME = "lab.toml"


def find(environment: Mapping[str, str], cwd: Path) -> Path | None:
    """The inventory file that is meant; None where there is none.

    ``$HYBRIDLAB_INVENTORY``, whether or not there is such a file; else the first that is there
    of ``lab.toml`` in ``cwd`` and ``$XDG_CONFIG_HOME/hybridlab/lab.toml`` (``~/.config`` where
    that is not set, or not absolute).

    Raises
    ------
    InventoryError
        When the one in ``cwd`` is another user's: an inventory can name commands to run.

    """
    own = environment.get(VARIABLE, "")
    if own:
        return cwd / own
    here = cwd / NAME
    if _is_file(here):
        _require_own(here, environment)
        return here
    places: list[Path] = []
    shared, home = environment.get("XDG_CONFIG_HOME", ""), environment.get("HOME", "")
    if shared.startswith("/"):
        places.append(Path(shared) / "hybridlab" / NAME)
    elif home.startswith("/"):
        places.append(Path(home) / ".config" / "hybridlab" / NAME)
    return next((place for place in places if _is_file(place)), None)


def current(environment: Mapping[str, str], cwd: Path) -> Inventory | None:
    """The inventory that is meant; None where there is none.

    Raises
    ------
    InventoryError
        With every finding, in file order.

    """
    path = find(environment, cwd)
    return None if path is None else load(path)


def load(path: Path) -> Inventory:
    """The inventory in a file. An empty one is an inventory without hypervisors.

    Raises
    ------
    InventoryError
        With every finding, in file order.

    """
    inventory, findings = check(path)
    if inventory is None or findings:
        raise InventoryError(f"reading inventory {quoted(path)}", lines(str(path), findings))
    return inventory


def check(path: Path) -> tuple[Inventory | None, tuple[FileFinding, ...]]:
    """The inventory in a file, as far as it can be made out, and everything wrong with it."""
    from lab.inventory import reader  # noqa: PLC0415  most labs need none

    return reader.read(path)


def _require_own(path: Path, environment: Mapping[str, str]) -> None:
    """Refuse a file that only lies where the command is run, and that a stranger may have written.

    Of a link both ends count: whoever owns it can have it lead elsewhere at any time.
    Root's own are trusted, and whoever has become root by sudo.
    """
    trusted = {0, os.geteuid()}
    if os.geteuid() == 0 and environment.get("SUDO_UID", "").isdecimal():
        trusted.add(int(environment["SUDO_UID"]))
    for one, found in (
        (path.parent, path.parent.stat()),
        (path, path.lstat()),
        (path, path.stat()),
    ):
        sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
        link = stat.S_ISLNK(found.st_mode)
        open_to_all = found.st_mode & stat.S_IWOTH and not sticky and not link
        if found.st_uid in trusted and not open_to_all:
            continue
        why = "everyone may write it" if open_to_all else f"user {found.st_uid} owns it"
        hint = f"if you trust it, export {VARIABLE}={shlex.quote(str(path))}"
        line = f"{quoted(one)}: {why}, and an inventory can name commands; {hint}"
        raise InventoryError(f"reading inventory {quoted(path)}", (line,))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a directory on the way is closed to us: to us there is none
        return False
