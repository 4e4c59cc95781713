"""Why there is no run, said on standard error."""

from __future__ import annotations

from lab._errors import first_line
from lab._log import leave_cause, say

USAGE = 2
"""The product's exit code for wrong usage."""


def complain(text: str) -> None:
    """Say why there is no run."""
    say(f"ERROR: {text}")
    leave_cause(first_line(text))
