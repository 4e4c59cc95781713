"""A machine that boots is asked until it answers."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.providers.nspawn import bring_up


def test_a_question_that_is_never_answered_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(words: object, deadline: Deadline) -> Any:
        asked.append(words)
        if len(asked) == 1:
            time.sleep(deadline.left())
            raise DeadlineError("asking", "no answer")
        return SimpleNamespace(stdout="running\n")

    monkeypatch.setattr(bring_up, "_LOOK_SECONDS", 0.01)
    guests: Any = SimpleNamespace(patience=1, shell=lambda _: SimpleNamespace(run=run))
    made = bring_up.NspawnBringUp
    made._wait(SimpleNamespace(), guests, None, "worker", Deadline(2))  # type: ignore[arg-type]
    assert len(asked) == 2
