"""Whether there is room, and where to look when there is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.state.capacity import check_room
from lab.state.failure import FullError


def test_what_the_error_says_to_look_at_is_there(tmp_path):
    (tmp_path / "overlay").mkdir()
    with pytest.raises(FullError, match="MiB are free") as raised:
        check_room(tmp_path / "overlay", 1 << 60)
    (tmp_path / "overlay").rmdir()  # as the lock does, where no lab came of it
    shown = re.search("df -h '(.+)'", raised.value.hint)
    assert shown is not None
    assert Path(shown[1]).is_mount()
