"""Programs that tests run to their end."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def run_program(command: Sequence[str | Path], **changes: Any) -> subprocess.CompletedProcess[Any]:
    """Run a program whose output is text that is captured, and which has to succeed in 300 s.

    ``changes`` are other arguments of :func:`subprocess.run`.
    """
    usual = {"capture_output": True, "text": True, "check": True, "timeout": 300}
    return subprocess.run(command, **usual | changes)  # noqa: PLW1510  it is in the usual ones
