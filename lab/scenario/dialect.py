"""How a kind of file is written, and its parts are spoken of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs in messages between one kind of file and another."""

    whole: str
    """``"the scenario"``."""
    entries: Mapping[str, str]
    """What one entry of a list or table is called: ``{"nodes": "node group"}``."""
    other_entry: str
    """What an entry of any other list is called."""
    mapping: str
    """``"mapping"``."""
    assign: str
    """What stands between a key and its value."""
    listing: str
    """How a list is written, as advice."""
    written: Callable[[object], str]
    """A value as one would write it in the file, on one line."""


def as_yaml(value: object) -> str:
    """A value as one would write it in YAML, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {as_yaml(one)}' for name, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(as_yaml(one) for one in value)}]"
    if isinstance(value, str) and re.fullmatch(r"[0-9.]*", value) and value.count(".") <= 1:
        return f'"{value}"'
    return str(value)


YAML = Dialect(
    whole="the scenario",
    entries={
        "nodes": "node group",
        "shared": "shared service",
        "special": "special service",
        "ports": "port",
        "nics": "network card",
        "routes": "route",
    },
    other_entry="exception",
    mapping="mapping",
    assign=": ",
    listing='begin each entry on a line of its own with "- "',
    written=as_yaml,
)
"""Scenario files."""
