"""Where the user's files were when an image was last built: said once, known from then on.

``lab image build NAME --iso PATH`` writes it down in the cache, so that ``lab up`` finds the image
that was built so. What the inventory says counts more, so a path beside it that is another one is
refused: ``lab up`` would look for another image. So is ``--firmware`` written down, for the same
reason; where it says what the recipe says, nothing is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

from lab._errors import PreflightError, UsageError
from lab.imaging import inputs, source
from lab.imaging.recipe import Recipe
from lab.imaging.source import Need
from lab.imaging.windows.settings import Firmware
from lab.inventory.inventory import ImageSource, Inventory
from lab.state.failure import guarded_files
from lab.state.files import write_private

FILE = "inputs.json"
FIRMWARE = "firmware.json"


def merged(cache: Path, inventory: Inventory) -> Inventory:
    """The inventory, and for images that it says no place of, what is remembered."""
    images = dict(inventory.images)
    for name, path in _read(cache / FILE).items():
        there = images.get(name)
        if there is None or there.url is None:
            images[name] = ImageSource(path, there.sha256 if there else None)
    return replace(inventory, images=images)


def remember(cache: Path, inventory: Inventory, recipe: Recipe, given: Mapping[str, Path]) -> None:
    """Write down where files are, by the names of the recipe's inputs.

    Raises
    ------
    PreflightError
        When the recipe has no such input, there is no such file, or it is the wrong one.
    UsageError
        When the inventory says that it is somewhere else.

    """
    needs = {need.name: need for need in source.needs(recipe)}
    kept = dict(_read(cache / FILE))
    for name, path in given.items():
        if name not in needs or name == source.FILE:
            raise _unasked(recipe, name, needs)
        if not path.is_file():
            raise PreflightError(
                f"building image '{recipe.name}'",
                f"--{name}: '{path}' is no file",
                f"give the path of {needs[name].what}",
            )
        inputs.look_at(recipe, name, path)
        own = inventory.images.get(needs[name].image)
        if own is not None and own.url is not None and not _same(own.url, path):
            raise UsageError(
                f"building image '{recipe.name}'",
                f"--{name} is '{path}', and [images.{needs[name].image}] of the inventory says "
                f"'{own.url}'",
                "leave the option out, or change the inventory: 'lab up' reads that",
            )
        kept[needs[name].image] = str(path.absolute())
    _write("writing down where media are", cache / FILE, kept)


def chosen(cache: Path, recipe: Recipe) -> Recipe:
    """The recipe with the firmware that was last asked for."""
    kept = _read(cache / FIRMWARE).get(recipe.name)
    found = next((one for one in get_args(Firmware) if one == kept), None)
    return recipe if found is None or not recipe.windows else replace(recipe, firmware=found)


def choose(cache: Path, recipe: Recipe, firmware: Firmware) -> None:
    """Write down how an image's machines are to start.

    Parameters
    ----------
    recipe
        As it stands in its file.

    Raises
    ------
    UsageError
        When only the recipe can say that: its answers are for one firmware.

    """
    if recipe.windows is None:
        raise UsageError(
            f"building image '{recipe.name}'",
            f"--firmware is for images of Windows, and this one boots by '{recipe.firmware}'",
            "leave the option out",
        )
    kept = dict(_read(cache / FIRMWARE))
    kept.pop(recipe.name, None)
    if firmware != recipe.firmware:
        kept[recipe.name] = firmware
    if kept != _read(cache / FIRMWARE):
        _write("writing down the firmware of images", cache / FIRMWARE, kept)


def _same(said: str, path: Path) -> bool:
    """Whether the inventory says that file, whatever links and dots are in the two paths."""
    try:
        return Path(said).samefile(path)
    except (OSError, ValueError):  # an address of the web, or a file that is not there
        return False


def _unasked(recipe: Recipe, name: str, needs: Mapping[str, Need]) -> PreflightError:
    options = [f"--{one}" for one in needs if one != source.FILE]
    return PreflightError(
        f"building image '{recipe.name}'",
        f"it is made from no '{name}'",
        f"give it {', '.join(options)}" if options else "leave the option out",
    )


def _write(doing: str, path: Path, kept: Mapping[str, str]) -> None:
    with guarded_files(doing):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, json.dumps(kept, indent=1, sort_keys=True) + "\n")


def _read(path: Path) -> Mapping[str, str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(value) for name, value in found.items()}
    except (OSError, ValueError, AttributeError):
        return {}
