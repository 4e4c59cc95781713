"""The medium that guests are given."""

import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
import threading
from pathlib import Path

import bundle_parts as parts
import pytest
from processes import run_program

from lab._errors import BrokenError, PreflightError, StateError
from lab.machines.bundle import medium
from lab.machines.bundle.images import full_name
from lab.machines.bundle.manifest import Manifest
from lab.machines.images.medium import opened, write
from lab.state.lock import lab_lock

PAUSE = "registry.k8s.io/pause:3.10.2"
needs_xorriso = pytest.mark.skipif(
    shutil.which("xorriso") is None, reason="xorriso is not installed: nobody else reads the medium"
)


WINDOWS = True


def read(image: Path, path: str) -> bytes:
    with opened(image, "reading", "") as medium:
        return medium.read(path)


def test_programs_plugins_images_and_manifest_are_on_it(store, made):
    image = medium.medium(store, made, "linux")
    with opened(image, "reading", "") as found:
        assert found.label == "HYBRIDBUNDLE"
    assert read(image, "/bin/kubelet") == parts.elf("kubelet")
    assert read(image, "/cni/flannel") == parts.elf("cni/flannel")
    assert hashlib.sha256(read(image, "/manifest.json")).hexdigest()[:12] == (
        store.directory(made).name
    )
    with tarfile.open(fileobj=io.BytesIO(read(image, f"/{medium.image_path(PAUSE)}"))) as archive:
        assert archive.getnames()[:2] == ["oci-layout", "index.json"]
        index = json.load(archive.extractfile("index.json"))
    assert index["manifests"][0]["annotations"] == {
        "io.containerd.image.name": PAUSE,
        "org.opencontainers.image.ref.name": "3.10.2",
    }


def test_windows_is_given_one_archive_with_an_image_for_each_build(store, made, tmp_path):
    image = medium.medium(store, made, "windows")
    assert read(image, "/bin/kubelet.exe") == parts.pe("kubelet.exe")
    with pytest.raises(PreflightError, match="there is no such file"):
        read(image, "/bin/kubelet")
    (tmp_path / "pause.tar").write_bytes(read(image, f"/{medium.image_path(PAUSE)}"))
    with tarfile.open(tmp_path / "pause.tar") as archive:
        top = json.load(archive.extractfile("index.json"))["manifests"][0]
        assert top["mediaType"] == "application/vnd.oci.image.index.v1+json"
        below = archive.extractfile(f"blobs/sha256/{top['digest'][7:]}").read()
        assert hashlib.sha256(below).hexdigest() == top["digest"][7:]
        builds = [manifest["platform"]["os.version"] for manifest in json.loads(below)["manifests"]]
    assert builds == ["10.0.17763.6054", "10.0.20348.2762"]


def test_what_is_on_a_medium_can_be_made_into_the_same_bundle_again(store, made, tmp_path):
    again = tmp_path / "again"
    parts.directory(again, windows=True)
    for path in (again / "images").iterdir():
        path.unlink()
    for name in {image.name for image in made.images}:
        for system in ("linux", "windows"):
            if any((image.name, image.os) == (name, system) for image in made.images):
                content = read(medium.medium(store, made, system), f"/{medium.image_path(name)}")
                (again / "images" / f"{system}-{Path(medium.image_path(name)).name}").write_bytes(
                    content
                )
    assert parts.create(store, again) == made


def test_the_same_bundle_gives_the_same_bytes_and_is_written_once(store, made):
    path = medium.medium(store, made, "linux")
    first = path.read_bytes()
    before = path.stat().st_mtime_ns
    assert medium.medium(store, made, "linux") == path
    assert path.stat().st_mtime_ns == before
    path.unlink()
    assert medium.medium(store, made, "linux").read_bytes() == first
    other = Manifest((*made.versions, ("x", "1")), made.programs, made.images)
    different = (made, "linux"), (made, "windows"), (other, "linux")
    assert len({medium.identity(*one) for one in different}) == 3


def test_several_that_want_it_at_once_get_one(store, made):
    paths: list[Path] = []
    threads = [
        threading.Thread(target=lambda: paths.append(medium.medium(store, made, "linux")))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 3
    assert len({*paths}) == 1
    names = sorted(path.name for path in paths[0].parent.iterdir())
    assert names == [paths[0].name, f"{paths[0].name}.sha256"]


def test_a_blob_that_is_cut_short_is_refused_and_no_medium_is_left(store, made):
    kubelet = store.blob(made, made.program("kubelet", "linux").blob)
    kubelet.write_bytes(b"x")
    with pytest.raises(PreflightError, match="has 1 bytes of") as refused:
        medium.medium(store, made, "linux")
    assert str(kubelet) in str(refused.value)
    assert not (store.directory(made) / "media").exists()


def test_a_blob_that_shrinks_while_a_medium_is_written_leaves_none(store, made, monkeypatch):
    kubelet = store.blob(made, made.program("kubelet", "linux").blob)
    monkeypatch.setattr(medium, "check", lambda *_: kubelet.write_bytes(b"x"))
    with pytest.raises(StateError, match="its size is not") as refused:
        medium.medium(store, made, "linux")
    assert str(kubelet) in str(refused.value)
    assert list((store.directory(made) / "media").iterdir()) == []


def test_too_little_space_is_reported_before_anything_is_written(store, made, monkeypatch):
    class Full:
        f_bavail = 1
        f_frsize = 4096

    monkeypatch.setattr(medium.os, "statvfs", lambda _: Full)
    with pytest.raises(PreflightError, match="0 MiB are free"):
        medium.medium(store, made, "linux")


WHOLE = {
    "manifest.json",
    *(medium.program_path(name) for name in parts.LINUX),
    *(medium.image_path(name) for name in parts.IMAGES),
}


def test_what_is_unpacked_is_what_is_on_the_medium(store, made, tmp_path):
    image = medium.medium(store, made, "linux")
    into = tmp_path / "a new" / "directory"
    medium.unpack(store, made, "linux", into)
    files = {path.relative_to(into).as_posix(): path for path in into.rglob("*") if path.is_file()}
    assert set(files) == WHOLE
    for name, path in files.items():
        assert path.read_bytes() == read(image, f"/{name}")
        mode = 0o555 if name.startswith(("bin/", "cni/")) else 0o444
        assert stat.S_IMODE(path.stat().st_mode) == mode


@needs_xorriso
def test_another_reader_finds_names_modes_and_bytes(store, made, tmp_path):
    image = medium.medium(store, made, "linux")
    out = tmp_path / "out"
    command = ["xorriso", "-osirrox", "on:auto_chmod_off", "-indev", str(image)]
    run_program([*command, "-extract", "/", str(out)])
    assert {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()} == WHOLE
    assert (out / "bin" / "kubelet").stat().st_mode & 0o7777 == 0o555
    assert (out / "manifest.json").stat().st_mode & 0o7777 == 0o444
    assert (out / "cni" / "bridge").read_bytes() == parts.elf("cni/bridge")


class Large(io.RawIOBase):
    """Nothing but zeros up to its end, without a file or memory for them."""

    zeros = bytes(1 << 20)

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.at = 0

    def seek(self, offset: int, _whence: int = 0) -> int:
        self.at = offset
        return offset

    def read(self, size: int = -1) -> bytes:
        self.at += size
        return self.zeros if size == len(self.zeros) else b"e" * size


class Sparse(io.FileIO):
    """A file that has holes where those zeros are: the disk of a test is small."""

    def write(self, data) -> int:
        if data is Large.zeros:
            self.seek(len(data), io.SEEK_CUR)
            return len(data)
        return super().write(data)


@needs_xorriso
def test_a_file_of_more_than_4_gib_is_one_file_to_another_reader(tmp_path):
    size = (4 << 30) + 5000
    image = tmp_path / "large.iso"
    with Sparse(image, "w+b") as out:
        write("LARGE", {"images/large.tar": (Large(size), size)}, out)
    command = ["xorriso", "-indev", str(image), "-lsl", "/images/large.tar"]
    listed = run_program(command)
    assert str(size) in listed.stdout
    with image.open("rb") as file:
        file.seek(-10_000, io.SEEK_END)
        assert file.read().strip(b"\0") == b"e" * 5000


FULL = {
    "busybox:1": "docker.io/library/busybox:1",
    "me/it:1": "docker.io/me/it:1",
    "registry.k8s.io/pause:3.10": "registry.k8s.io/pause:3.10",
    "localhost:5000/a/b:1": "localhost:5000/a/b:1",
    "localhost/a:1": "localhost/a:1",
    "Registry.k8s.io/pause:1": "Registry.k8s.io/pause:1",
    "registry.k8s.io/Pause:1": None,
    "registry.k8s.io/../pause:1": None,
    "registry.k8s.io/pause@sha256:0": None,
    "busybox": None,
    "": None,
}


def test_names_of_images_are_made_full_as_docker_does():
    assert {name: full_name(name) for name in FULL} == FULL


def test_file_names_fit_into_joliet():
    long = f"registry.k8s.io/{'a' * 80}:1"
    assert medium.image_path(PAUSE) == "images/registry.k8s.io_pause_3.10.2.tar"
    assert len(medium.image_path(long)) == len("images/") + 64
    assert medium.image_path(long) != medium.image_path(long.replace(":1", ":2"))


# SECURITY.md: What root writes is not given away.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("place", ["..", ".", "media"])
def test_root_writes_no_medium_where_another_user_may_put_links(store, made, tmp_path, place):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path = medium.medium(store, made, "linux")
    path.rename(path.with_name("old"))
    path.with_name(f".{path.name}.partial").symlink_to(victim)
    os.chown(store.directory(made) / place, 65534, 65534)
    with pytest.raises(PreflightError, match="belongs to"):
        medium.medium(store, made, "linux")
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("damage", ["other", "short", "unsealed"])
def test_a_medium_that_is_not_as_it_was_written_is_named_and_written_anew(store, made, damage):
    path = medium.medium(store, made, "linux")
    said: list[str] = []
    store.verify(made, said.append)
    assert said[-1].endswith("and 1 finished medium")
    if damage == "unsealed":
        path.with_name(f"{path.name}.sha256").unlink()
    else:
        content = path.read_bytes()
        path.write_bytes(content[:-1] if damage == "short" else content[:-1] + b"?")
    with pytest.raises(BrokenError, match=rf"medium '{path}'") as raised:
        store.verify(made, print)
    assert "the next 'lab up' that needs it writes it again" in raised.value.hint
    path.unlink()
    assert medium.medium(store, made, "linux") == path
    store.verify(made, print)


def test_what_a_killed_command_left_beside_media_is_removed_by_the_next_and_by_gc(store, made):
    image = medium.medium(store, made, "linux")
    linux, windows = (image.with_name(f".{name}.images") for name in (image.name, "windows-0.iso"))
    earlier = image.with_name(".images-abcdefgh")
    for left in (linux, windows, earlier):
        (left / "images").mkdir(parents=True)
        (left / "images" / "one.tar").write_bytes(b"1")
    image.unlink()
    medium.medium(store, made, "linux")
    assert not linux.exists()
    with lab_lock(store.lock(f"medium-{made.short}-windows"), "writing a medium"):
        assert store.gc((made.digest,), yes=True).paths == (str(earlier.relative_to(store._cache)),)
    assert store.gc((made.digest,), yes=True).paths == (str(windows.relative_to(store._cache)),)
    assert [path for path in image.parent.iterdir() if path.name.startswith(".")] == []
