"""Canonical JSON of frozen data: printable, hashable, diffable."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network

from pydantic import BaseModel

UNLESS_NONE = "unless None"
"""In the metadata of a field that was added later: it is left out while it is None, so that what
does not use it keeps its digest."""


def plain(value: object) -> object:
    """Convert dataclasses, models, addresses and sets to JSON types; sets are sorted.

    Raises TypeError for a value without a canonical form.
    """
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {
            field.name: plain(part)
            for field, part in pairs
            if part is not None or UNLESS_NONE not in field.metadata
        }
    if isinstance(value, BaseModel | Mapping):
        items = value.items() if isinstance(value, Mapping) else value
        return {str(key): plain(item) for key, item in items}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, frozenset | set):
        return sorted((plain(item) for item in value), key=repr)
    if isinstance(value, IPv4Address | IPv4Network):
        return str(value)
    raise TypeError(f"no canonical form for {type(value).__name__}")


def digest(*values: object) -> str:
    """First 16 hex digits of the SHA-256 of the values' canonical JSON."""
    text = json.dumps([plain(value) for value in values], separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
