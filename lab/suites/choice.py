"""What pytest's options ask of a matrix: a sample, and cells by name."""

from __future__ import annotations

import re

import pytest

from lab._errors import UsageError
from lab.matrix.sampling import STRATEGIES, Choice, Strategy

_ID = re.compile(r"[^\s()]+/[^\s()]+/[^\s()]+/[^\s()]+")
"""What looks like a cell's id in an expression for ``-k``."""


def choice_of(config: pytest.Config) -> Choice:
    """The choice that ``--lab-sample``, ``--lab-seed`` and ``-k`` make.

    A cell whose id stands in ``-k`` is asked whatever the sample.

    Raises
    ------
    UsageError
        If there is no such strategy.

    """
    return Choice(
        strategy=_strategy(config.getoption("--lab-sample")),
        seed=config.getoption("--lab-seed"),
        named=tuple(_ID.findall(config.getoption("keyword") or "")),
    )


def _strategy(asked: str | None) -> Strategy | None:
    if asked is None:
        return None
    for known in STRATEGIES:
        if asked == known:
            return known
    raise UsageError(
        f"choosing cells by the strategy '{asked}'",
        "there is no such strategy",
        f"one of {', '.join(STRATEGIES)}",
    )


def failed_before(config: pytest.Config) -> tuple[str, ...]:
    """Ids of the cells that failed when they were last asked, if ``--lf`` or ``--ff`` wants them.

    Known from ``pytest_configure`` on.
    """
    wanted = any(getattr(config.option, name, False) for name in ("lf", "failedfirst"))
    cache = getattr(config, "cache", None)
    if not wanted or cache is None:
        return ()
    return tuple("/".join(node.split("::")[1:]) for node in cache.get("cache/lastfailed", {}))
