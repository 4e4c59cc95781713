"""SECURITY.md and the tests that hold it: each paragraph is named by a test, and none is made up.

A test names a paragraph by a comment above it: "SECURITY.md: " and the paragraph's bold words.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def paragraphs() -> set[str]:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    return set(re.findall(r"^- \*\*(.+?)\*\*", text, re.MULTILINE))


def named() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        found.update(re.findall(r"^# SECURITY\.md: (.+)$", text, re.MULTILINE))
    return found


def test_every_paragraph_has_a_test_and_every_test_its_paragraph():
    assert paragraphs()
    assert named() == paragraphs()
