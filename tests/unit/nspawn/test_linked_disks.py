"""What stands behind a link is not the lab's."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab._errors import BrokenError
from lab.providers.nspawn.containers import require_own_disks
from lab.providers.provider import LabHandle


def test_a_link_in_the_place_of_the_disks_is_refused(tmp_path: Path) -> None:
    lab = LabHandle("small", tmp_path, "0" * 16)
    require_own_disks(lab)
    (tmp_path / "machines").symlink_to(tmp_path)
    with pytest.raises(BrokenError, match="is a link"):
        require_own_disks(lab)
