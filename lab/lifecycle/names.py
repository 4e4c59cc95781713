"""Names of labs: which may be given, and which was meant."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lab._errors import UsageError

LONGEST = 63
"""A lab's name is a DNS label (RFC 1123): letters of its length and kind fit everywhere."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def is_name(name: str) -> bool:
    """Whether a lab can have that name."""
    return len(name) <= LONGEST and _LABEL.fullmatch(name) is not None


def check_name(name: str, *, new: bool = False) -> None:
    """Refuse a name that no lab can have; with ``new`` that of a lab which is to be made.

    Raises
    ------
    UsageError
        Saying what a name may be.

    """
    if not is_name(name):
        raise UsageError(
            f"naming a lab '{name}'" if new else f"looking for lab '{name}'",
            "a lab's name is 1 to 63 lower-case letters, digits and '-', "
            "and neither starts nor ends with '-'",
            "give another one with --name" if new else "'lab list' names the labs that there are",
        )


def unknown_lab(doing: str, name: str, known: Iterable[str], more: str = "") -> UsageError:
    """The error for a name that means no lab: with the nearest one, and the whole list."""
    from difflib import get_close_matches  # noqa: PLC0415  only a wrong name pays for it

    labs = sorted(set(known))
    near = get_close_matches(name, labs, n=1)
    meant = f"did you mean '{near[0]}'? " if near else ""
    listed = ", ".join(f"'{lab}'" for lab in labs)
    are = "the only lab is" if len(labs) == 1 else "the labs are"
    there = f"{are} {listed}" if labs else "there are no labs; 'lab up' makes one"
    hint = f"{meant}{there}{f'; {more}' if more else ''}"
    return UsageError(doing, f"there is no lab named '{name}'", hint)
