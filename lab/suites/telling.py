"""What pytest is told of a cell, without the calls that a test function would need.

A cell has been judged before its item runs, so there is nothing to set up, to capture or to tear
down. pytest's own protocol spends a third of the time of a large matrix on that; the reports made
here are the same. Where another plugin listens to these calls, they are made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Literal

import pytest

from lab.suites.connectivity import CellItem, properties

_CALLS = (
    "pytest_runtest_setup",
    "pytest_runtest_call",
    "pytest_runtest_teardown",
    "pytest_runtest_makereport",
    "pytest_exception_interact",
)
_OF_FUNCTIONS = {"_pytest", "_hypothesis_pytestplugin", "pytest_benchmark", "pytest_timeout"}
"""Modules of plugins that listen to them, and do nothing with items that are no functions."""
_STEPS = ("setuponly", "setupshow", "usepdb", "trace")
"""Options of pytest that show, or stop at, single calls."""

Phase = Literal["setup", "call", "teardown"]


def is_watched(config: pytest.Config) -> bool:
    """Whether somebody must hear of the calls around a cell's item, or they are to be shown."""
    if any(config.getoption(name, False) for name in _STEPS):
        return True
    return any(
        one.function.__module__.partition(".")[0] not in _OF_FUNCTIONS
        for name in _CALLS
        for one in getattr(config.hook, name).get_hookimpls()
    )


def tell(item: CellItem) -> None:
    """Report the item's setup, call and teardown, as they would have come out."""
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item):
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _reports(item: CellItem) -> Iterator[pytest.TestReport]:
    now = time.time()
    phase, outcome, words = item.outcome()
    item.user_properties.extend(properties(item.found))
    keywords: dict[str, Literal[1]] = dict.fromkeys(item.keywords, 1)
    phases: tuple[Phase, ...] = (
        ("setup", "teardown") if phase == "setup" else ("setup", "call", "teardown")
    )
    for one in phases:
        yield pytest.TestReport(
            item.nodeid,
            item.location,
            keywords,
            outcome if one == phase else "passed",
            words if one == phase else None,
            one,
            start=now,
            stop=now,
            user_properties=item.user_properties,
        )
