"""Fixtures from the tests with real namespaces: the handwritten Intents."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "netns"))
