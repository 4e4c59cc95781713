"""Which image of a medium each recipe asks for, without reading recipes whole.

What reads recipes takes ten times as long as reading a medium, and who only looks at a medium asks
for three words. A recipe that is written in another way than ours is read whole.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast, get_args

from lab.imaging import recipes
from lab.imaging.windows.release import Edition, Surface, Wanted, Year

_SECTION = re.compile(r"^windows:[ ]*\n((?:[ ].*\n|[ ]*(?:#.*)?\n)*)", re.MULTILINE)
_ANY = re.compile(r"""^["']?windows["']?\s*:|^[ ]*[{?]|<<""", re.MULTILINE)
"""A table of that name however it is written, or marks of YAML by which one could come in."""
_WORD = re.compile(r'^  ([a-z]+):[ ]+("?)([a-z0-9]+)\2[ ]*(?:#.*)?$', re.MULTILINE)
_NEEDED = {"release": get_args(Year), "edition": get_args(Edition), "surface": get_args(Surface)}


def all_wanted(folder: Path | None = None) -> dict[str, Wanted]:
    """What the recipes of Windows ask for, by their names.

    Raises
    ------
    RecipeError
        When one that has to be read whole is wrong.

    """
    found = {name: _wanted(name, folder) for name in recipes.shipped(folder)}
    return {name: wanted for name, wanted in found.items() if wanted is not None}


def _wanted(name: str, folder: Path | None) -> Wanted | None:
    path = (folder or recipes.directory()) / name / recipes.FILE
    text = path.read_text(encoding="utf-8", errors="replace")
    section = _SECTION.search(text)
    if section is None and not _ANY.search(text):
        return None
    words = {key: value for key, _, value in _WORD.findall(section[1])} if section else {}
    if all(words.get(key) in allowed for key, allowed in _NEEDED.items()):
        return Wanted(
            cast("Year", words["release"]),
            cast("Edition", words["edition"]),
            cast("Surface", words["surface"]),
        )
    whole = recipes.load(name, folder).windows
    return None if whole is None else whole.wanted
