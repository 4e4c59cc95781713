"""The golden order: the commands that the stand-in expects, in order."""

from __future__ import annotations

import json
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "cases/windows/stand_in/order.json"


def golden() -> dict[str, list[str]]:
    """Place to its lines; handwritten, so that a change of the product is deliberate."""
    found: dict[str, list[str]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found
