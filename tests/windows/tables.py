"""Tables of cases and recorded answers, below ``tests/cases/windows``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

CASES = Path(__file__).parents[1] / "cases" / "windows"


def table(name: str) -> Any:
    return YAML(typ="safe").load(CASES / f"{name}.yaml")


def named(case: dict[str, Any]) -> str:
    """The id of a test: the case's name."""
    return str(case["name"])
