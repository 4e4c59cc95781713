"""Keep recordings usable when the words of a command change, but not what it prints.

    PYTHONPATH=tests .venv/bin/python tests/netns/alias_commands.py OLD NEW

OLD and NEW are command lines of the scripts, as the error of a replay shows them. Both have
the answers then, so that earlier revisions can be compared. A command that prints something else
needs new recordings: ``make record``.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from recorded_answers import read_packed, write_packed
from replayed_labs import RECORDED


def add_alias(content: dict[str, Any], old: str, new: str) -> int:
    """Give a command's answers to another one, too; return in how many places."""
    every = [content, *content["recordings"]]
    parts = [one[part] for one in every for part in ("healthy", "places", "copy") if part in one]
    places = [place for part in parts for place in part.values() if old in place]
    for place in places:
        place.setdefault(new, place[old])
    return len(places)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    namespace = parser.parse_args()
    total = 0
    for path in sorted(RECORDED.glob("*.json.xz")):
        content = read_packed(path)
        if number := add_alias(content, namespace.old, namespace.new):
            write_packed(path, content)
            total += number
    print(f"{total:,} places answer it")
    return 0 if total else 1


if __name__ == "__main__":
    sys.exit(main())
