"""The plugin's own hooks: how a lab is found, and where a run goes.

``lab test`` passes pytest an object with ``pytest_lab_progress`` and ``pytest_lab_recorded``,
to draw its line and to take the run over in process. Loaded by every pytest of the environment,
and so without importing the types it speaks of.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lab.matrix.verdict import RunResult
    from lab.suites.open_lab import SuiteLab


@pytest.hookspec(firstresult=True)
def pytest_lab_open(name: str) -> SuiteLab | None:
    """Open the lab of that name.

    Raises
    ------
    LabError
        If there is none, or it is broken.

    """


@pytest.hookspec
def pytest_lab_progress(done: int, total: int) -> None:
    """Hear how many of a pass's probes have ended; ``done`` is 0 when a pass begins."""


@pytest.hookspec
def pytest_lab_recorded(run: RunResult, directory: Path) -> None:
    """Take over a run once it is stored, with the directory of its reports."""
