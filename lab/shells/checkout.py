"""Provenance with what only git can say: whether the files differ from the commit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lab.shells.programs import read_output
from lab.state.provenance import SOURCE, Provenance, provenance

_UNSET = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
"""Set where a hook of another repository runs this program."""
_SECONDS = 5
"""For git, which on a slow disk must not keep a run from being recorded."""
_MADE_FROM = ("lab", "scenarios", "images", "pyproject.toml")


def made_here(source: Path = SOURCE) -> Provenance:
    """The provenance of a run of this process. ``source``: the checkout, if it is one.

    Files that git does not track are not looked at. Without git nothing counts as changed.
    """
    made = provenance(source)
    if not made.commit or not (source / ".git").exists():
        return made
    without = [word for name in _UNSET for word in ("-u", name)]
    status = ("status", "--porcelain", "--untracked-files=no", "--", *_MADE_FROM)
    git = ("git", "--no-optional-locks", "-C", str(source), *status)
    return replace(
        made, changed=bool(read_output(("env", *without, "timeout", f"{_SECONDS}", *git)))
    )
