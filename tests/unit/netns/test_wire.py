"""Values that cross a pipe: they come back as they were, and nothing else is taken."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab._errors import BrokenError, DeadlineError, LabError, ScenarioError, UsageError
from lab.providers.capture import Frame, KernelTrace, RouteQuestion, Taken, Tap
from lab.providers.failover import Silence
from lab.providers.provider import Diagnosis, Outcome
from lab.providers.wire import Failure, decode, encode
from lab.shells.shell import Completed, UnreachableError

OUTCOME = Outcome(1, "ok", "", "10.0.0.1", ("a", "b"), None, 1.5, ("10.0.0.2",), 9.4e8)
QUESTION = RouteQuestion("10.0.0.1", "10.0.0.2", "tcp", 80, True, "", "eth0")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, None),
        (True, bool),
        (4711, int),
        (2, float),
        (2.5, float),
        ("a\x00\udcff ü", str),
        (b"\x00\xff", bytes),
        ((1, "a"), tuple[int, str]),
        ((1, 2), tuple[int, ...]),
        ([], list[int]),
        ({"a"}, set[str]),
        (frozenset({("a", "b")}), frozenset[tuple[str, str]]),
        ({5: OUTCOME}, dict[int, Outcome]),
        ({"a": 1}, Mapping[str, int]),
        ("b", Literal["a", "b"]),
        (None, int | None),
        (Completed(-9, "out", "err"), Completed),
        (Silence("a", "b", 0.5, 9, 8), Silence),
        ((Diagnosis("here", "it", "warn", "seen"),), tuple[Diagnosis, ...]),
        ([Taken(Tap("p", "eth0"), (Frame(1, "in", b"\x01", 9),), 2)], list[Taken]),
        ([KernelTrace("p", "t", routes=((QUESTION, "via"),))], list[KernelTrace]),
    ],
)
def test_a_value_comes_back_as_it_was(value, kind):
    text = decode(encode(value), kind)
    assert (text, type(text)) == (value, float if kind is float else type(value))


@pytest.mark.parametrize(
    ("value", "kind", "says"),
    [
        (1, bool, "bool is wanted, not int"),
        (True, int, "int is wanted, not bool"),
        (True, float, "int is wanted, not bool"),
        (10**400, float, "too large"),
        ("1", int, "int is wanted, not str"),
        (1, None, "NoneType is wanted, not int"),
        ("not base64!", bytes, "base64"),
        ([1], tuple[int, int], "2 values are wanted, not 1"),
        ("ab", list[str], "list is wanted, not str"),
        ({"x": 1}, dict[int, int], "invalid literal"),
        ("c", Literal["a", "b"], "none of a, b"),
        (1, Literal[True], "none of True"),
        ("1", int | None, "int is wanted, not str; NoneType is wanted, not str"),
        (asdict(OUTCOME) | {"more": 1}, Outcome, "not the fields of Outcome"),
        (asdict(OUTCOME) | {"status": "great"}, Outcome, "none of"),
        ({"key": 1}, Outcome, "not the fields of Outcome"),
    ],
)
def test_a_value_of_another_type_is_refused(value, kind, says):
    with pytest.raises(ValueError, match=says):
        decode(json.dumps(value).encode(), kind)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(st.binary(max_size=60) | ANYTHING.map(lambda value: json.dumps(value).encode()))
@pytest.mark.parametrize("kind", [Outcome, list[Taken], dict[int, Outcome], Failure])
def test_whatever_is_written_is_read_as_that_type_or_refused(kind: Any, data: bytes):
    try:
        text = decode(data, kind)
    except ValueError:
        return
    assert decode(encode(text), kind) == text


def test_deep_nesting_is_refused():
    with pytest.raises(ValueError, match="nested too deeply"):
        decode(b"[" * 100_000, Outcome)


def test_a_type_without_a_form_is_a_defect_of_the_caller():
    with pytest.raises(TypeError, match="no value of type"):
        decode(b"1", object)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UsageError("a", "b", "c"), UsageError),
        (DeadlineError("a", "b"), DeadlineError),
        (UnreachableError("a", "b"), BrokenError),
        (ScenarioError("a", ("x", "y")), UsageError),
    ],
)
def test_an_error_of_ours_keeps_its_words_and_its_nearest_class(error, kind):
    found = sent(error)
    assert type(found) is kind
    assert isinstance(found, LabError)
    assert (found.doing, found.happened, found.hint) == (error.doing, error.happened, error.hint)


def sent(error: BaseException) -> Exception:
    return decode(encode(Failure.of(error)), Failure).error()


def test_an_error_of_the_system_keeps_its_number_and_its_file():
    error = sent(FileNotFoundError(2, "No such file or directory", b"/x\xff"))
    assert isinstance(error, FileNotFoundError)
    assert (error.errno, error.filename) == (2, "/x\udcff")
    assert str(sent(OSError("only words"))) == "only words"
    assert sent(OSError(9, "Bad file descriptor", 7)).__class__ is OSError


def test_exhausted_memory_is_distinguished_from_a_defect():
    assert isinstance(sent(MemoryError()), MemoryError)
    assert type(sent(ZeroDivisionError("x"))) is RuntimeError
    assert type(sent(SystemExit(3))) is RuntimeError


def test_a_thread_that_cannot_be_started_is_an_error_of_the_system():
    usual = threading.stack_size(1 << 46)  # more than a process can have
    try:
        with pytest.raises(RuntimeError) as raised:
            threading.Thread(target=print).start()
    finally:
        threading.stack_size(usual)
    assert isinstance(sent(raised.value), BlockingIOError)
