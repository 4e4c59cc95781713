from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.store.close()
