"""Where bundles are made in tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import upstream_site

from lab.cluster import rules
from lab.cluster.bundle.store import Store
from lab.imaging import download

PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[upstream_site.Site]:
    """Upstream with Kubernetes 1.36.1; nobody's proxy and account, and no pauses."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(download.time, "sleep", lambda _: None)
    with upstream_site.running() as found:
        found.release({**rules.components("1.36"), "kubernetes": "1.36.1"})
        yield found
