"""Root runs what is in the cache, so it must be root's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.providers.nspawn.preflight import strangers_cache

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@as_root
def test_a_cache_of_roots_own_or_none_at_all_is_used(tmp_path: Path) -> None:
    assert strangers_cache(tmp_path / "none") is None
    (tmp_path / "roots").mkdir(mode=0o755)
    assert strangers_cache(tmp_path) is None


# SECURITY.md: Root runs what is in its own cache alone.
@as_root
@pytest.mark.parametrize("place", ["", "roots", "containers", "bundles"])
def test_a_cache_that_another_user_owns_or_may_write_is_refused(tmp_path: Path, place: str) -> None:
    path = tmp_path / place
    path.mkdir(exist_ok=True)
    path.chmod(0o777)
    found = strangers_cache(tmp_path)
    assert found is not None
    assert str(path) in found.seen
    path.chmod(0o755)
    os.chown(path, 65534, 65534)
    assert strangers_cache(tmp_path) is not None


# SECURITY.md: Root runs what is in its own cache alone.
@as_root
def test_a_cache_that_another_user_may_move_away_is_refused(tmp_path: Path) -> None:
    cache = tmp_path / "theirs" / "cache"
    cache.mkdir(parents=True)
    os.chown(cache.parent, 65534, 65534)
    assert strangers_cache(cache) is not None
