"""Many machines at once: what one has to show is not held up by another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import cast

from lab._deadline import Deadline
from lab.providers.node.control import NodeControl
from lab.providers.node.fleet import Fleet
from lab.providers.provider import Evidence

ENOUGH_SECONDS = 20.0


class Slow:
    """A machine that shows something once it may."""

    def __init__(self, name: str, may: threading.Event) -> None:
        self.name = name
        self.may = may

    def evidence(self, _deadline: Deadline) -> Iterator[Evidence]:
        assert self.may.wait(ENOUGH_SECONDS)
        yield Evidence(f"{self.name}.txt", b"")


def test_evidence_of_one_machine_does_not_wait_for_another() -> None:
    last, first = threading.Event(), threading.Event()
    first.set()
    machines = {"a": Slow("a", last), "b": Slow("b", first)}
    fleet = Fleet(cast("dict[str, NodeControl]", machines))
    pieces = fleet.evidence(Deadline(ENOUGH_SECONDS))
    assert next(pieces).path == "b.txt"
    last.set()
    assert [one.path for one in pieces] == ["a.txt"]
