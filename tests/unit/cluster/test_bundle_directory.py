"""Bundles made from a directory."""

from __future__ import annotations

import io
import json
import os
import tarfile
import threading

import bundle_parts as parts
import pytest

from lab._errors import LabError, PreflightError
from lab.cluster.bundle import store as stores
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.bundle.store import BundleStore
from lab.state.lock import lab_lock


def left(store: BundleStore) -> list[str]:
    return sorted(path.name for path in store._root.iterdir())


def test_all_that_the_directory_has_is_in_the_bundle_and_whole(store, source):
    made = parts.create(store, source)
    assert made.kubernetes == "1.36.1"
    assert {one.name for one in made.programs} == set(parts.LINUX)
    assert {one.name for one in made.images} == set(parts.IMAGES)
    assert made.program("cni/flannel", "linux").component == "flannel-cni"
    assert made.program("cni/bridge", "linux").component == "cni-plugins"
    kubelet = store.blob(made, made.program("kubelet", "linux").blob)
    assert kubelet.read_bytes() == parts.elf("kubelet")
    store.verify(made, print)
    assert left(store) == [made.short]


def test_a_docker_archives_layers_stay_as_they_are_below_an_oci_manifest(store, source):
    for name in (parts.IMAGES[4], NAME):
        file = f"{name.replace('/', '_').replace(':', '_')}.tar"
        (source / "images" / file).write_bytes(parts.docker_archive(name))
    made = parts.create(store, source)
    pause = made.image("registry.k8s.io/pause")
    manifest = json.loads(store.blob(made, pause.manifest).read_bytes())
    assert manifest["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert [one["digest"] for one in manifest["layers"]] == [
        f"sha256:{parts.sha256(parts.layer(name))}" for name in ("base", pause.name)
    ]
    assert {one.media_type for one in pause.layers} == {"application/vnd.oci.image.layer.v1.tar"}
    shared = made.image("registry.k8s.io/etcd").layers[0]
    assert shared == pause.layers[0]


def test_windows_images_keep_the_builds_that_they_are_for(store, tmp_path):
    made = parts.create(store, parts.directory(tmp_path / "both", windows=True))
    pause = [one for one in made.images if (one.os, "pause" in one.name) == ("windows", True)]
    assert [one.os_version for one in pause] == ["10.0.17763.6054", "10.0.20348.2762"]
    assert made.program("kubelet.exe", "windows").component == "kubernetes"
    linux = parts.create(store, tmp_path / "both", "linux")
    assert {one.os for one in linux.programs} == {one.os for one in linux.images} == {"linux"}


def test_everything_that_is_wrong_with_a_directory_is_said_at_once(store, source):
    (source / "linux-amd64" / "kubelet").unlink()
    (source / "linux-amd64" / "kubletd").write_bytes(parts.elf("x"))
    (source / "linux-amd64" / "runc").write_text("#!/bin/sh\n")
    (source / "linux-arm64").mkdir()
    (source / "images" / "pause.tar.gz").write_bytes(b"")
    with pytest.raises(PreflightError) as refused:
        parts.create(store, source)
    said = refused.value.happened
    assert "'linux-amd64/kubelet' is missing" in said
    assert "unknown program 'linux-amd64/kubletd' (did you mean \"kubelet\"?)" in said
    assert "'linux-amd64/runc' is not a program for linux on amd64" in said
    assert "unknown directory 'linux-arm64'" in said
    assert "'images/pause.tar.gz' is not a .tar file" in said
    assert not (store._root).exists()


NAME = "registry.k8s.io/pause:3.10.2"


def test_an_image_that_is_there_twice_is_refused(store, source):
    (source / "images" / "again.tar").write_bytes(parts.docker_archive(NAME))
    with pytest.raises(PreflightError, match=r"pause:3.10.2' for linux is also in '.*again.tar'"):
        parts.create(store, source)


def test_layers_that_docker_has_linked_together_are_found(store, source):
    image = parts.docker_archive("registry.k8s.io/linked:1")
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(image)) as old,
        tarfile.open(fileobj=out, mode="w") as new,
    ):
        for member in old:
            content = old.extractfile(member)
            if member.name == "a/layer.tar":
                member.name = "base/layer.tar"
            new.addfile(member, content)
        link = tarfile.TarInfo("a/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, "../base/layer.tar"
        new.addfile(link)
    (source / "images" / "linked.tar").write_bytes(out.getvalue())
    assert parts.create(store, source).image("registry.k8s.io/linked").layers


def test_a_full_disk_is_said_with_the_cure_and_leaves_nothing(store, source, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PreflightError, match="the disk is full") as refused:
        parts.create(store, source)
    assert "lab image gc" in refused.value.hint
    assert left(store) == []


def test_two_that_make_the_same_at_once_wait_for_one_another(store, source):
    made: list[Manifest | LabError] = []

    def run() -> None:
        made.append(parts.create(store, source))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 2
    assert made[0] == made[1]
    assert left(store) == [made[0].short]


def test_one_that_is_being_made_is_no_garbage(store):
    half = store._root / ".directory-0123456789ab.partial"
    half.mkdir(parents=True)
    with lab_lock(store.lock("directory-0123456789ab"), "lab bundle create"):
        assert store.gc((), yes=True).found == ()
    assert half.exists()


def test_a_killed_create_leaves_no_bundle_and_the_next_one_makes_it(store, source):
    child = os.fork()
    if child == 0:
        stores.fsync = lambda _: os.kill(os.getpid(), 9)  # at the end: blobs are there
        parts.create(store, source)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 9
    assert [name[0] for name in left(store)] == ["."]
    told: list[str] = []
    made = parts.create(store, source, say=told.append)
    assert "an earlier attempt was interrupted; starting over" in told
    assert left(store) == [made.short]
