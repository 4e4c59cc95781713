"""The rows of the journal. Times are seconds since 1970, UTC."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from typing import Any, Literal, TypeVar, cast, get_args

from lab._dataclass import dataclass

Row = TypeVar("Row")
LabState = Literal["starting", "up", "broken", "interrupted", "going", "down"]
"""``starting``: an ``up`` is running or was killed; ``interrupted``: it was stopped;
``going``: a ``down`` is running or was killed; ``down``: removed, only the name is kept."""
StepState = Literal["intended", "done"]
ResourceState = Literal["intended", "made", "gone"]


@dataclass(frozen=True, slots=True)
class LabRow:
    """One lab: the request, and its state."""

    name: str
    scenario: str
    scenario_text: str
    scenario_path: str
    provider: str
    token: str
    status: LabState
    created: float
    updated: float
    """When it was last brought up, changed or tested."""
    plan_digest: str
    options: Mapping[str, object] = field(default_factory=dict)
    detail: str = ""
    """Why it is broken or interrupted."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of bringing a lab up."""

    position: int
    name: str
    digest: str
    state: StepState
    at: float


@dataclass(frozen=True, slots=True)
class ResourceRow:
    """One resource of a lab, with the provider's ``kind`` and ``name``."""

    kind: str
    name: str
    state: ResourceState


@dataclass(frozen=True, slots=True)
class FaultRow:
    """One fault that was injected into a lab."""

    number: int
    """Increases within a lab, in the order in which faults were injected."""
    token: str
    """The lab's token at the time; empty once the lab was rebuilt under the same token."""
    name: str
    node: str
    peer: str
    """Empty for a fault that concerns one machine."""
    state: StepState
    at: float
    observed: str
    """The cluster's addresses at the time, see :func:`lab.topology.observed.to_text`; empty without
    a cluster, and in rows of earlier versions."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of the matrix. It outlives its lab."""

    id: str
    lab: str
    token: str
    """The lab's token at the time: it changes if the lab is taken down and brought up again."""
    scenario: str
    provider: str
    started: str
    """ISO 8601, UTC."""
    seconds: float
    green: bool
    counts: Mapping[str, int]
    """Cells per verdict."""
    number: int = 0
    """Increases within a lab, in the order in which runs are recorded; the journal assigns it."""


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_whole(value: object) -> bool:
    return isinstance(value, int)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_option(name: str, value: object) -> bool:
    match name:
        case "windows_rules_off":
            return isinstance(value, list) and all(map(_is_text, value))
        case "node_mtu":
            return _is_whole(value)
        case "only" | "pods" | "banner":
            return _is_text(value)
        case _:
            return True


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "str": _is_text,
    "int": _is_whole,
    "float": _is_number,
    "bool": lambda value: value in (0, 1),
    "LabState": get_args(LabState).__contains__,
    "StepState": get_args(StepState).__contains__,
    "ResourceState": get_args(ResourceState).__contains__,
    "Mapping[str, object]": lambda value: all(_is_option(*item) for item in value.items()),
    "Mapping[str, int]": lambda value: all(map(_is_whole, value.values())),
}
"""Checks of a column's value by its type: SQLite accepts any value in any column."""


def columns_of(kind: type[Any]) -> str:
    """The columns of a kind of row, as a list for SQL."""
    return ", ".join(column.name for column in fields(kind))


def values_of(row: Any) -> tuple[Any, ...]:
    """The values of a row for the database; see :func:`row_of`."""
    values = (getattr(row, column.name) for column in fields(row))
    return tuple(
        json.dumps(dict(value)) if isinstance(value, Mapping) else value for value in values
    )


class DamagedRowError(ValueError):
    """A row with a value that this program did not write; the message names the value."""


def row_of(kind: type[Row], values: Sequence[Any]) -> Row:
    """A row from the values in the database, whose types are checked.

    Raises DamagedRowError when a value has the wrong type.
    """
    checked = []
    for column, value in zip(fields(cast("Any", kind)), values, strict=True):
        kind_of = str(column.type)
        try:
            decoded = json.loads(value) if kind_of.startswith("Mapping") else value
            fits = _FITS[kind_of](decoded)
        except (TypeError, ValueError, AttributeError, RecursionError):
            fits = False
        if not fits:
            raise DamagedRowError(f"{values[0]!r:.60} has the '{column.name}' {value!r:.60}")
        checked.append(bool(decoded) if kind_of == "bool" else decoded)
    return kind(*checked)
