"""Find and load inventory files; all errors are reported at once, each with its key or line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lab._errors import InventoryError
from lab.state.permissions import writer

if TYPE_CHECKING:
    from lab.inventory.inventory import Inventory
    from lab.scenario.findings import FileFinding

VARIABLE = "HYBRIDLAB_INVENTORY"
NAME = "lab.toml"
EXAMPLE = "lab.example.toml"


class Found(NamedTuple):
    """An inventory file."""

    path: Path
    named: bool
    """Whether ``$HYBRIDLAB_INVENTORY`` names it."""


def find(environment: Mapping[str, str], cwd: Path) -> Found | None:
    """Find the inventory file; None if there is none.

    It is ``$HYBRIDLAB_INVENTORY``, even if that file does not exist; else the first existing one
    of ``lab.toml`` in ``cwd`` and ``$XDG_CONFIG_HOME/hybridlab/lab.toml`` (``~/.config`` if the
    variable is not set or not absolute).
    """
    own = environment.get(VARIABLE, "")
    if own:
        return Found(cwd / own, named=True)
    here = cwd / NAME
    if _is_file(here):
        return Found(here, named=False)
    places: list[Path] = []
    shared, home = environment.get("XDG_CONFIG_HOME", ""), environment.get("HOME", "")
    if shared.startswith("/"):
        places.append(Path(shared) / "hybridlab" / NAME)
    elif home.startswith("/"):
        places.append(Path(home) / ".config" / "hybridlab" / NAME)
    return next((Found(place, named=False) for place in places if _is_file(place)), None)


def current(environment: Mapping[str, str], cwd: Path) -> Inventory | None:
    """Load the inventory that :func:`find` finds; None if there is none.

    Raises InventoryError as :func:`load` does.
    """
    file = find(environment, cwd)
    return None if file is None else load(file.path, named=file.named)


def load(path: Path, *, named: bool = True) -> Inventory:
    """Load an inventory file. An empty file is an inventory without hypervisors.

    Raises InventoryError with every finding, in file order; and as :func:`check` does.
    """
    inventory, findings = check(path, named=named)
    if inventory is None or findings:
        from lab.scenario.findings import lines  # noqa: PLC0415  only for errors

        raise InventoryError(_describe_reading(path), lines(str(path), findings))
    return inventory


def check(path: Path, *, named: bool = True) -> tuple[Inventory | None, tuple[FileFinding, ...]]:
    """The inventory, with stand-ins for broken parts, and all findings; None if it is unreadable.

    Raises InventoryError when the user has not named the file and another user may have written it:
    an inventory can name commands to run.
    """
    from lab.inventory import reader  # noqa: PLC0415  most labs need none

    def require_own(descriptor: int) -> None:
        wrong = None if named else writer(path, held=descriptor)
        if wrong:
            hint = f"{wrong[1]}, or, if you trust it, export {VARIABLE}={shlex.quote(str(path))}"
            line = f"{wrong[0]}, and an inventory can name commands; try {hint}"
            raise InventoryError(_describe_reading(path), (line,))

    return reader.read(path, require_own)


def _describe_reading(path: Path) -> str:
    from lab.scenario.findings import quoted  # noqa: PLC0415  only for errors

    return f"reading inventory {quoted(path)}"


def example() -> str:
    """A sample inventory with every key, commented: in the package (wheel), or in docs/."""
    package = Path(__file__).resolve().parents[1]
    inside = package / EXAMPLE
    path = inside if inside.is_file() else package.parent / "docs" / EXAMPLE
    return path.read_text(encoding="utf-8")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # below an unreadable directory
        return False
