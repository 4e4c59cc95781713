"""Why there is no run, said on standard error."""

from __future__ import annotations

from lab._log import say

USAGE = 2
"""The product's exit code for wrong usage."""


def complain(text: str) -> None:
    """Say why there is no run."""
    say(f"ERROR: {text}")
