"""A state directory for each test, and a check that nothing is left."""

from __future__ import annotations

import pytest
from lab_command import Lab, assert_nothing_is_left


@pytest.fixture
def lab(tmp_path):
    used = Lab(tmp_path / "state")
    yield used
    names = [path.name for path in (used.state / "labs").glob("*")]
    for name in names:
        used.call(used.command("down", name))
    assert_nothing_is_left(used.state)
