"""JSON with parts gone, doubled, exchanged or replaced.

``HYBRIDLAB_MUTATIONS`` says how many broken files are tried, and ``HYBRIDLAB_SEED`` which.
"""

import copy
import json
import os
import random
from collections.abc import Iterator
from typing import Any

COUNT = int(os.environ.get("HYBRIDLAB_MUTATIONS", "300"))
SEED = int(os.environ.get("HYBRIDLAB_SEED", "1"))
ESCAPES = "\x1b[2J\x1b]0;owned\x07"
JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 1e308, 10**30, -(10**400), float("nan"), float("inf")),
    *("", "x", "1.36", "../../x", "/etc/passwd", "a\nb: c", "\0", "\ud800", "\u202e", "9" * 50),
    *(ESCAPES, "x" * 5000, "linux", "netns", "2026-11-21T10:15:00+00:00"),
    *([], {}, [None], [[]], {"a": 1}, {"": None}, ["x"]),
)


def _paths(tree: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield (*above, key)
        yield from _paths(tree[key], (*above, key))


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def broken(tree: Any, chance: random.Random) -> Iterator[str]:
    """The tree with one to three parts gone, doubled, exchanged or replaced, as JSON, for ever."""
    paths = list(_paths(tree))

    def other(made: Any, old: Any) -> Any:
        found = [_at(tree, path) for path in chance.sample(paths, 20)]
        alike = [one for one in (*JUNK, *found) if type(one) is type(old)]
        return chance.choice(alike if chance.random() < 0.5 and alike else [*JUNK, *found, made])

    while True:
        made = copy.deepcopy(tree)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            path = chance.choice(paths)
            try:
                above, key = _at(made, path[:-1]), path[-1]
                if chance.random() < 0.2:
                    del above[key]
                else:
                    above[key] = copy.deepcopy(other(made, above[key]))
            except (KeyError, IndexError, TypeError):
                continue  # it went with another part
        text = json.dumps(made)
        at = chance.randrange(len(text))
        yield text if chance.random() < 0.9 else text[:at] + chance.choice('"{}[],\0') + text[at:]
