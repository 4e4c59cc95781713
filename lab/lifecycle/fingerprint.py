"""A hash of plain data that is the same in every process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass


def fingerprint(value: object) -> str:
    """SHA-256, in hexadecimal, of frozen dataclasses and what they hold.

    Sets are put in order first: the order that Python keeps them in differs by process.
    """
    text = json.dumps(_plain(value), separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: object) -> object:
    if is_dataclass(value):
        return [[item.name, _plain(getattr(value, item.name))] for item in fields(value)]
    if isinstance(value, Mapping):
        return sorted([str(key), _plain(item)] for key, item in value.items())
    if isinstance(value, frozenset | set):
        return sorted(str(item) for item in value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | None) else str(value)
