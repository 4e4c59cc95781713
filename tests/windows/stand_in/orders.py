"""The golden order: which commands the stand-in is to be told, and in which order."""

from __future__ import annotations

import json
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "cases/windows/stand_in/order.json"


def golden() -> dict[str, list[str]]:
    """Place to its lines; written by hand, so that a change of the product's has to be meant."""
    found: dict[str, list[str]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found
