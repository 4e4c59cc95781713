"""Names that begin with a time keep the order in which they were given."""

import pytest

from lab.state.stamps import in_order, is_stamp, stamp


def test_a_time_is_a_moment_of_the_calendar_in_utc():
    assert stamp(1_764_065_700.9) == "20251125-101500"
    assert is_stamp("20251125-101500")
    assert not any(map(is_stamp, ("20251325-101500", "20251125-101500-x", "2025", "")))


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ([], "20251125-101500-x"),
        (["20251125-101459-z"], "20251125-101500-x"),
        (["20251125-101500-a"], "20251125-101501-x"),
        (["20261231-235959", "20251125-101500"], "20270101-000000-x"),
        (["99999999-999999", "99991231-235959", "notes", "202611250-1"], "20251125-101500-x"),
    ],
)
def test_a_name_is_behind_those_before_it(others, named):
    assert in_order("20251125-101500-x", others) == named


def test_a_name_without_a_time_stays_as_it_is():
    assert in_order("mine", ["20251125-101500"]) == "mine"
