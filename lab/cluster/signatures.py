"""What is known of the lines that Kubernetes' programs complain in: data, matched."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True, slots=True)
class Signature:
    """A line of a log that has one known cause."""

    id: str
    pattern: str
    """A regular expression, found anywhere in a line, in any case."""
    cause: str
    cure: str
    source: str
    """Who says so."""


@cache
def signatures() -> tuple[Signature, ...]:
    """Every signature, the most special first."""
    text = resources.files("lab.cluster").joinpath("signatures.json").read_text(encoding="utf-8")
    return tuple(Signature(**one) for one in json.loads(text))


def matches(log: str) -> tuple[Signature, ...]:
    """The signatures that a log has, in the order of the data file."""
    return tuple(_matching(log))


def _matching(log: str) -> Iterator[Signature]:
    for one in signatures():
        if re.search(one.pattern, log, re.IGNORECASE | re.MULTILINE):
            yield one
