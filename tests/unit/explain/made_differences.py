"""Differences made by hand, as the comparison of whole states and of objects yields them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lab.facts.difference import DEVIATION, Difference, name_in_state
from lab.facts.effect import read_effect
from lab.topology.subject import Subject, values_of


def of_state(
    subject: Subject, seen: str = "there", mends: str = "", *, made: str = "none", **more: Any
) -> Difference:
    """A difference of a whole state, before its place is known; ``seen`` as a tool prints it."""
    name = name_in_state(subject, more.get("attribute", ""))
    return Difference(
        *(DEVIATION, "", "", name, made, seen, "", mends, ""),
        subject=subject,
        **{
            "effect": read_effect(" ".join((*values_of(subject), seen)), made),
            "values": (*values_of(subject), seen),
            **more,
        },
    )


def at_place(place: str, subject: Subject, seen: str = "there", **more: Any) -> Difference:
    """A difference of the state of a machine or pod."""
    return replace(of_state(subject, seen, **more), node=place, place=place)
