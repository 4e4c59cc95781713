"""Golden files: what was made once, looked at and meant so.

A golden that is much like another is kept as what differs from that one, in ``NAME.diff``: so a
change that concerns them all is read once. After a wanted change:

    LAB_REGENERATE=1 pytest TEST; git diff tests

A run that regenerates fails, so that it is never mistaken for a test; with ``CI`` set in the
environment nothing is regenerated at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

import pytest

REGENERATE = os.environ.get("LAB_REGENERATE") == "1" and "CI" not in os.environ


def check_golden(path: Path, made: str, like: str | None = None) -> None:
    """Compare with ``path``, or with ``path.diff`` if it is kept as a difference from ``like``."""
    if like is not None:
        path, made = path.with_name(f"{path.name}.diff"), difference(like, made)
    if REGENERATE and (not path.exists() or path.read_bytes() != made.encode()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made.encode())
        pytest.fail(f"wrote {path.name}; run again without LAB_REGENERATE")
    assert made == path.read_bytes().decode()


def difference(one: str, other: str) -> str:
    """What ``other`` lacks (``-``) and has more (``+``), each run headed by the line before it.

    Without line numbers: those would change with every line above.
    """
    return "".join(f"{line}\n" for line in _differing(one.split("\n"), other.split("\n")))


def _differing(one: list[str], other: list[str]) -> Iterator[str]:
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    for kind, begin, end, from_, to in matcher.get_opcodes():
        if kind != "equal":
            yield f"@@ {one[begin - 1].strip()}" if begin else "@@"
            yield from (f"-{line}" for line in one[begin:end])
            yield from (f"+{line}" for line in other[from_:to])
