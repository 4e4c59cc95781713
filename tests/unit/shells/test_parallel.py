"""Jobs of many machines: how many at once, what a failure does, and that Ctrl-C ends it."""

import threading
from collections.abc import Callable

import pytest

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError, PreflightError, UsageError
from lab.shells.parallel import run_jobs

LIMIT = 10.0
"""Seconds after which a test that hangs fails; none takes as long."""


class Gate:
    """Jobs that say when they begin, and end when they are let."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._changed = threading.Condition()
        self._let: set[str] = set()

    def job(self, name: str, raises: BaseException | None = None) -> Callable[[], str]:
        def run() -> str:
            with self._changed:
                self.begun.append(name)
                self._changed.notify_all()
                assert self._changed.wait_for(lambda: name in self._let, LIMIT)
            if raises is not None:
                raise raises
            return name.upper()

        return run

    def let(self, *names: str) -> None:
        with self._changed:
            self._let.update(names)
            self._changed.notify_all()

    def await_begun(self, *names: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: set(names) <= set(self.begun), LIMIT), self.begun

    def await_ended(self, name: str) -> None:
        for thread in threading.enumerate():
            if thread.name == name:
                thread.join(LIMIT)
                assert not thread.is_alive()


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.let(*"abcdef")


class Running:
    """``in_parallel`` in a thread of its own, and what came of it."""

    def __init__(self, *arguments: object) -> None:
        self._arguments = arguments
        self.result: object = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = run_jobs(*self._arguments)
        except Exception as error:  # noqa: BLE001  the test looks at whatever it is
            self.error = error

    def end(self) -> None:
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()


def test_results_come_by_machine_in_the_order_they_were_given():
    jobs = {"x": {"b": lambda: 1, "a": lambda: 2}, "y": {"c": lambda: 3}}
    assert list(run_jobs(jobs, {"x": 2, "y": 1}, Deadline(LIMIT)).items()) == [
        ("b", 1),
        ("a", 2),
        ("c", 3),
    ]


def test_nothing_to_do_is_done():
    assert run_jobs({"x": {}}, {}, Deadline(LIMIT)) == {}


def test_each_hypervisor_has_its_own_limit(gate):
    jobs = {"x": {name: gate.job(name) for name in "abc"}, "y": {"d": gate.job("d")}}
    running = Running(jobs, {"x": 2, "y": 1}, Deadline(LIMIT))
    gate.await_begun("a", "b", "d")
    assert "c" not in gate.begun
    gate.let("d")
    gate.let("b")
    gate.await_begun("c")
    assert gate.begun.index("c") == 3
    gate.let("a", "c")
    running.end()
    assert running.result == {"a": "A", "b": "B", "c": "C", "d": "D"}


def test_after_a_failure_none_is_begun_and_those_that_run_are_waited_for(gate):
    broken = PreflightError("booting 'a'", "no kernel")
    jobs = {
        "x": {"a": gate.job("a", broken), "b": gate.job("b"), "c": gate.job("c")},
        "y": {"d": gate.job("d"), "e": gate.job("e")},
    }
    running = Running(jobs, {"x": 2, "y": 1}, Deadline(LIMIT))
    gate.await_begun("a", "b", "d")
    gate.let("a")
    gate.await_ended("a")
    gate.let("b", "d", "c", "e")
    running.end()
    assert running.error is broken
    assert sorted(gate.begun) == ["a", "b", "d"]


def test_several_failures_are_reported_together_by_machine(gate):
    jobs = {
        "x": {
            "a": gate.job("a", BrokenError("booting 'a'", "no kernel", "look")),
            "b": gate.job("b", BrokenError("booting 'b'", "no disk")),
        },
        "y": {"d": gate.job("d"), "e": gate.job("e")},
    }
    running = Running(jobs, {"x": 2}, Deadline(LIMIT))
    gate.await_begun("a", "b", "d")
    gate.let("a", "b")
    gate.await_ended("a")
    gate.let("d")
    running.end()
    assert isinstance(running.error, BrokenError)
    text = str(running.error)
    assert "a: booting 'a': no kernel\n  try: look" in text
    assert "b: booting 'b': no disk" in text
    assert "not started: e" in text


@pytest.mark.parametrize("kind", [PreflightError, UsageError, BrokenError])
def test_several_failures_of_one_kind_are_one_of_that_kind(kind):
    def fail() -> None:
        raise kind("asking a host", "no")

    with pytest.raises(LabError) as told:
        run_jobs({"x": {"x": fail}, "y": {"y": fail}}, {}, Deadline(LIMIT))
    assert type(told.value) is kind


def test_a_defect_of_ours_is_raised_as_it_is(gate):
    defect = RuntimeError("a defect")
    jobs = {"x": {"a": gate.job("a", BrokenError("1", "2")), "b": gate.job("b", defect)}}
    running = Running(jobs, {"x": 2}, Deadline(LIMIT))
    gate.await_begun("a", "b")
    gate.let("a", "b")
    running.end()
    assert running.error is defect


def test_what_has_not_ended_in_time_is_named(gate):
    jobs = {"x": {"a": gate.job("a"), "b": gate.job("b")}}
    with pytest.raises(DeadlineError, match="a still running; b not started"):
        run_jobs(jobs, {"x": 1}, Deadline(0.2))


def test_an_interruption_begins_nothing_more(gate):
    def interrupted() -> str:
        raise KeyboardInterrupt

    jobs = {"x": {"a": interrupted, "b": gate.job("b")}}
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, {"x": 1}, Deadline(LIMIT))
    assert gate.begun == []
