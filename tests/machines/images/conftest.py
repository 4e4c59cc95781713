"""A web server, and an environment without proxies."""

import pytest
import web_server


@pytest.fixture
def web():
    with web_server.served(web_server.Web()) as found:
        yield found


@pytest.fixture
def rude():
    with web_server.rudely() as rudely:
        yield rudely


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path):
    """Hide proxies and accounts of the user who runs the tests."""
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
