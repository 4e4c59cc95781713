from collections.abc import Callable
from pathlib import Path

import processes
import pytest
from api_double import served, write_kubeconfig

from lab.machines.attached import cluster, credentials


@pytest.fixture
def double():
    """A cluster of somebody's."""
    pytest.importorskip("kubernetes")
    with served() as made:
        yield made


@pytest.fixture
def lab(capfd, monkeypatch, tmp_path) -> Callable[..., tuple[int, str, str]]:
    """``lab`` with a state directory of its own."""
    monkeypatch.setenv("HYBRIDLAB_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(cluster, "PODS_SECONDS", 60.0)
    monkeypatch.setattr(credentials, "SECONDS", 1.0)
    return lambda *words: processes.lab(capfd, *map(str, words))


@pytest.fixture
def impatient(lab, monkeypatch):
    """``lab``, for tests whose API server stops answering: each command waits only for seconds."""
    monkeypatch.setattr(cluster, "PODS_SECONDS", 3.0)
    return lab


@pytest.fixture
def kubeconfig(double, tmp_path) -> Path:
    return write_kubeconfig(tmp_path / "a.conf", double.url)
