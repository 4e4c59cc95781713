"""A machine that boots is asked until it answers."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.providers.nspawn import bring_up, containers


def test_a_question_that_is_never_answered_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(words: object, deadline: Deadline) -> Any:
        asked.append(words)
        if len(asked) == 1:
            time.sleep(deadline.left())
            raise DeadlineError("asking", "no answer")
        return SimpleNamespace(stdout="running\n")

    monkeypatch.setattr(bring_up, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(containers, "log", lambda *_: "switched on\n")
    guests: Any = SimpleNamespace(patience=1, shell=lambda _: SimpleNamespace(run=run))
    made = bring_up.NspawnBringUp
    made._wait(SimpleNamespace(), guests, None, "worker", Deadline(2))  # type: ignore[arg-type]
    assert len(asked) == 2


def test_a_machine_that_is_off_for_good_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "switched on\nExecutable format error\nsystemd-nspawn ended with 1\n"

    def shell(_: str) -> Any:
        raise BrokenError("entering machine 'worker'", "it is switched off")

    monkeypatch.setattr(containers, "log", lambda *_: said)
    guests: Any = SimpleNamespace(patience=1, shell=shell)
    made = bring_up.NspawnBringUp
    with pytest.raises(BrokenError, match="Executable format error") as failed:
        made._wait(SimpleNamespace(), guests, None, "worker", Deadline(60))  # type: ignore[arg-type]
    assert not isinstance(failed.value, DeadlineError)


def test_a_machine_that_was_switched_on_again_is_waited_for() -> None:
    assert not containers.has_ended("systemd-nspawn ended with 1\nswitched on\n")
