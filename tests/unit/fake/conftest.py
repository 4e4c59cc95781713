"""The small lab of the lifecycle tests serves here too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "lifecycle"))
