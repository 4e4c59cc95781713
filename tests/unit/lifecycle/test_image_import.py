"""Images of a user's own in a cluster's nodes: what is checked before any node gets one."""

import json
import tarfile
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import pytest

from lab._errors import PreflightError, UsageError
from lab.machines import caches as images

LAYER = BytesIO()
tarfile.open(fileobj=LAYER, mode="w").close()


def archive(path: Path, name: str, system: str = "linux") -> Path:
    """A docker-archive with an empty image."""
    layer = LAYER.getvalue()
    config = json.dumps(
        {
            "os": system,
            "architecture": "amd64",
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer).hexdigest()}"]},
        }
    ).encode()
    listed = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    members = {
        "config.json": config,
        "layer.tar": layer,
        "manifest.json": json.dumps(listed).encode(),
    }
    with tarfile.open(path, "w") as tar:
        for member, content in members.items():
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, BytesIO(content))
    return path


class PaperCluster:
    def __init__(self, *takers: str) -> None:
        self.imported: list[tuple[Path, frozenset[str]]] = []
        self.takers = takers

    def import_images(self, path: Path, systems: frozenset[str]) -> tuple[str, ...]:
        self.imported.append((path, systems))
        return self.takers


@pytest.fixture
def opened(desk):
    desk.up()
    return desk.opened()


def test_every_archive_goes_to_the_nodes_and_its_images_are_named(opened, monkeypatch, tmp_path):
    cluster = PaperCluster("master", "worker1")
    monkeypatch.setattr(images, "find_cluster", lambda *_: cluster)
    path, two = archive(tmp_path / "one.tar", "web:1"), archive(tmp_path / "two.tar", "a.org/b:2")
    said: list[str] = []
    names = images.import_images(opened, [path, two], said.append)
    assert names == ("docker.io/library/web:1", "a.org/b:2")
    assert cluster.imported == [(path, {"linux"}), (two, {"linux"})]
    assert said == [f"imported '{path}' on master, worker1" for path in (path, two)]


def test_a_damaged_archive_is_refused_and_none_is_imported(opened, monkeypatch, tmp_path):
    cluster = PaperCluster()
    monkeypatch.setattr(images, "find_cluster", lambda *_: cluster)
    whole, cut = archive(tmp_path / "whole.tar", "web:1"), tmp_path / "cut.tar"
    cut.write_bytes(whole.read_bytes()[:700])
    with pytest.raises(PreflightError, match=r"cut\.tar"):
        images.import_images(opened, [whole, cut], print)
    assert cluster.imported == []


def test_an_archive_for_windows_that_no_node_takes_is_refused(opened, monkeypatch, tmp_path):
    cluster = PaperCluster()
    monkeypatch.setattr(images, "find_cluster", lambda *_: cluster)
    path = archive(tmp_path / "one.tar", "web:1", "windows")
    with pytest.raises(PreflightError, match="are for windows, and no node") as raised:
        images.import_images(opened, [path], print)
    assert "Wine nodes" in raised.value.hint
    assert cluster.imported == [(path, {"windows"})]


def test_a_lab_without_a_cluster_takes_no_images(opened, tmp_path):
    path = archive(tmp_path / "one.tar", "web:1")
    with pytest.raises(UsageError, match="its pods are network namespaces") as raised:
        images.import_images(opened, [path], print)
    assert "--provider nspawn" in raised.value.hint
