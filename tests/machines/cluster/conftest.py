"""Fixtures for tests of bundles and clusters."""

import bundle_parts as parts
import pytest
import registry as registries
import upstream_site
from web_server import served

from lab.machines.bundle.store import BundleStore
from lab.machines.cluster import rules
from lab.machines.images import download

PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
VERSIONS = {**rules.components("1.36"), "kubernetes": "1.36.1"}


@pytest.fixture
def store(tmp_path):
    return BundleStore(tmp_path / "cache")


@pytest.fixture
def source(tmp_path, request):
    """An input directory of a bundle for Linux, or for both systems if the module says so."""
    windows = getattr(request.module, "WINDOWS", False)
    return parts.directory(tmp_path / "given", windows=windows)


@pytest.fixture
def made(store, source):
    """The bundle of that directory."""
    return parts.create(store, source)


@pytest.fixture(scope="session")
def release_registry(tmp_path_factory):
    """A registry with the images of Kubernetes 1.36.1."""
    if registries.MISSING:
        pytest.skip(f"not installed: {', '.join(registries.MISSING)}")
    with registries.running(tmp_path_factory.mktemp("registry")) as running:
        upstream_site.push_images(running, VERSIONS)
        yield running


@pytest.fixture
def registry(release_registry, monkeypatch, tmp_path):
    """The registry, trusted, with the user's account and without a proxy."""
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    (home / ".netrc").write_text(f"machine 127.0.0.1 login me password {registries.PASSWORD}\n")
    (home / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SSL_CERT_FILE", str(release_registry.authority))
    return release_registry


@pytest.fixture
def site(registry, monkeypatch):
    """Upstream with Kubernetes 1.36.1, without delays between retries."""
    monkeypatch.setattr(download.time, "sleep", lambda _: None)
    monkeypatch.setattr(download, "_BUSY_TRIES", 0)
    with served(upstream_site.Site(registry)) as found:
        found.release(VERSIONS)
        yield found
