"""Bundles made from a directory: whole, or refused by name where something is not as it seems."""

import io
import itertools
import json
import os
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path

import bundle_parts as parts
import pytest

from lab._errors import LabError, PreflightError
from lab.machines.bundle import directory, images, medium
from lab.machines.bundle import store as stores
from lab.machines.bundle.manifest import Manifest, decode
from lab.machines.bundle.store import BundleStore, Scratch
from lab.state.lock import lab_lock


def left(store: BundleStore) -> list[str]:
    return sorted(path.name for path in store._root.iterdir())


def test_all_that_the_directory_has_is_in_the_bundle_and_whole(store, source):
    made = parts.create(store, source)
    assert made.kubernetes == "1.36.1"
    assert {program.name for program in made.programs} == set(parts.LINUX)
    assert {image.name for image in made.images} == set(parts.IMAGES)
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
    assert [layer["digest"] for layer in manifest["layers"]] == [
        f"sha256:{parts.sha256(parts.layer(name))}" for name in ("base", pause.name)
    ]
    assert {layer.media_type for layer in pause.layers} == {
        "application/vnd.oci.image.layer.v1.tar"
    }
    shared = made.image("registry.k8s.io/etcd").layers[0]
    assert shared == pause.layers[0]


def test_windows_images_keep_the_builds_that_they_are_for(store, tmp_path):
    made = parts.create(store, parts.directory(tmp_path / "both", windows=True))
    pause = [
        image for image in made.images if (image.os, "pause" in image.name) == ("windows", True)
    ]
    assert [image.os_version for image in pause] == ["10.0.17763.6054", "10.0.20348.2762"]
    assert made.program("kubelet.exe", "windows").component == "kubernetes"
    linux = parts.create(store, tmp_path / "both", "linux")
    assert (
        {program.os for program in linux.programs}
        == {image.os for image in linux.images}
        == {"linux"}
    )


def test_powershells_archive_is_a_program_for_windows_that_no_medium_has(store, tmp_path):
    folder = parts.directory(tmp_path / "both", windows=True)
    path = folder / "windows-amd64" / "powershell.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("pwsh.exe", "")
    made = parts.create(store, folder)
    assert made.program("powershell.zip", "windows").component == "powershell"
    medium.unpack(store, made, "windows", tmp_path / "medium")
    names = {path.name for path in (tmp_path / "medium/bin").iterdir()}
    assert "kubelet.exe" in names
    assert "powershell.zip" not in names
    path.write_bytes(b"cut short")
    with pytest.raises(PreflightError, match=r"'windows-amd64/powershell\.zip' is not a program"):
        parts.create(store, folder)


def test_everything_wrong_with_a_directory_is_reported_at_once(store, source):
    (source / "linux-amd64" / "kubelet").unlink()
    (source / "linux-amd64" / "kubletd").write_bytes(parts.elf("x"))
    (source / "linux-amd64" / "runc").write_text("#!/bin/sh\n")
    (source / "linux-arm64").mkdir()
    (source / "images" / "pause.tar.gz").write_bytes(b"")
    with pytest.raises(PreflightError) as refused:
        parts.create(store, source)
    message = refused.value.happened
    assert "'linux-amd64/kubelet' is missing" in message
    assert "unknown program 'linux-amd64/kubletd' (did you mean \"kubelet\"?)" in message
    assert "'linux-amd64/runc' is not a program for linux on amd64" in message
    assert "unknown directory 'linux-arm64'" in message
    assert "'images/pause.tar.gz' is not a .tar file" in message
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


@pytest.mark.parametrize("flushed", [0, 1], ids=["the-locks", "a-blob"])
def test_a_full_disk_is_reported_with_a_hint_and_leaves_nothing(
    flushed, store, source, monkeypatch
):
    flush, flushes = os.fsync, itertools.count()

    def fill(descriptor):
        if next(flushes) >= flushed:
            raise OSError(28, "No space left on device")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fill)
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
        assert store.gc((), yes=True).paths == ()
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


DEEP = b"[" * 100_000 + b"]" * 100_000


def refused(store: BundleStore, source: Path) -> str:
    with pytest.raises(PreflightError) as error:
        parts.create(store, source)
    root = store._root
    assert not root.exists() or not list(root.iterdir())
    return str(error.value)


@pytest.mark.parametrize(
    ("versions", "words"),
    [
        (None, "it has no 'versions.json'"),
        (b"{", "the file: invalid JSON"),
        (b"[]", "the file: input should be an object"),
        (DEEP, "recursion limit exceeded"),
        (b'{"containerd": "2.3.7"}', "'' in 'versions.json' is not a version of Kubernetes"),
        (b'{"kubernetes": 1.36}', "kubernetes: input should be a valid string"),
        (b'{"kubernetes": "v1.36.1"}', "kubernetes: 'v1.36.1' is not a valid version"),
        (b'{"kubernetes": "1.36"}', "'1.36' in 'versions.json' is not a version of Kubernetes"),
        (b'{"kubernetes": "1.20.2"}', "Kubernetes 1.20.2 is too old"),
        (b'{"kubernetes": "1.36.1", "\\ud800": "1"}', "invalid JSON"),
        (b'{"kubernetes": "1.36.1", "red\\u001b[31m": "1"}', "is not a valid component name"),
        (b'{"kubernetes": "1.36.' + b"9" * 5000 + b'"}', "is not a valid version"),
        ('{"kubernetes": "1.36.\u0661"}'.encode(), "is not a valid version"),
        (b'{"kubernetes": "1.36.1\\n"}', "is not a valid version"),
    ],
    ids=lambda one: "" if isinstance(one, bytes) else str(one)[:40],
)
def test_wrong_versions_are_refused(store, source, versions, words):
    (source / "versions.json").unlink()
    if versions is not None:
        (source / "versions.json").write_bytes(versions)
    said = refused(store, source)
    assert "versions.json" in said or "1.20.2" in said
    assert words in said


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("versions.json", "it has no 'versions.json'"),
        ("images/pipe.tar", "'images/pipe.tar' is not a .tar file"),
        ("linux-amd64/crictl", "'linux-amd64/crictl' is not a file"),
        ("linux-amd64/cni/pipe", "'linux-amd64/cni/pipe' is not a file"),
    ],
)
def test_a_pipe_is_never_waited_for(store, source, path, words):
    (source / path).unlink(missing_ok=True)
    os.mkfifo(source / path)
    assert words in refused(store, source)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("cni/my plugin", "'linux-amd64/cni/my plugin' is not a program name"),
        ("cni/a/b", "'linux-amd64/cni/a' is not a file"),
        ("cni/" + os.fsdecode(b"\xff"), "is not a program name"),
        ("other/kubelet", "unknown program 'linux-amd64/other'"),
    ],
)
def test_odd_names_are_reported_before_anything_is_copied(store, source, path, words):
    parts.put(source / "linux-amd64" / path, parts.elf("x"))
    (source / "linux-amd64" / "runc").unlink()
    said = refused(store, source)
    assert words in said
    assert "'linux-amd64/runc' is missing" in said


def test_plugins_behind_a_link_are_taken(store, source):
    plain = parts.create(store, source)
    plugins = source / "linux-amd64" / "cni"
    plugins.rename(source.parent / "plugins")
    plugins.symlink_to(source.parent / "plugins")
    assert parts.create(store, source) == plain


def test_a_file_in_place_of_a_directory_is_reported(store, source):
    shutil.rmtree(source / "images")
    (source / "images").touch()
    assert "'images' is not a directory" in refused(store, source)


def test_a_directory_of_any_name_makes_the_same_bundle(store, source):
    plain = parts.create(store, source)
    assert parts.create(store, source.rename(source.with_name(os.fsdecode(b"\xff\xfe")))) == plain


def test_an_unreadable_directory_is_reported(store, source, monkeypatch):
    plugins = source / "linux-amd64" / "cni"
    plugins.chmod(0)
    if os.access(plugins, os.R_OK):  # root reads everything

        def denied(path: Path) -> None:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(directory, "_list_visible", denied)
    assert "permission denied" in refused(store, source)
    plugins.chmod(0o700)


def test_a_file_that_changes_while_it_is_copied_is_reported(store, source, monkeypatch):
    kubelet = source / "linux-amd64" / "kubelet"
    keep = Scratch.keep

    def slow(self: Scratch, content: io.BufferedReader, doing: str) -> object:
        blob = keep(self, content, doing)
        if doing == f"copying '{kubelet}'":
            with kubelet.open("ab") as file:
                file.write(b"more")
        return blob

    monkeypatch.setattr(Scratch, "keep", slow)
    assert f"copying '{kubelet}': another process is writing to it" in refused(store, source)


DAMAGED = "the tar file is damaged or cut short"


def linked(name: str, to: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = tarfile.SYMTYPE, to
        archive.addfile(member)
    return out.getvalue()


def changed(archive: bytes, name: str, content: bytes) -> bytes:
    """The archive with another content of one member."""
    members = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            members[member.name] = tar.extractfile(member).read()
    assert name in members
    return parts.tar({**members, name: content})


DOCKER = parts.docker_archive(NAME)
IMAGE = parts.Image(NAME)
ARCHIVE = parts.oci_archive(NAME, [IMAGE])
LAYER = f"blobs/sha256/{parts.sha256(IMAGE.layer)}"


def header(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE) -> bytes:
    """Of a tar member; a size beyond eight octal digits as GNU writes it."""
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def extended(records: Mapping[str, str]) -> bytes:
    """A member that has these pax records."""
    lines = b""
    for key, value in records.items():
        rest = f" {key}={value}\n".encode()
        length = next(n for n in range(len(rest), 9999) if n == len(rest) + len(str(n)))
        lines += str(length).encode() + rest
    body = lines + bytes(-len(lines) % 512)
    return header("pax", len(lines), tarfile.XHDTYPE) + body + header("manifest.json") + bytes(1024)


SPARSE = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "manifest.json"}


def test_an_archive_that_shrinks_while_it_is_read_is_refused(store, source, monkeypatch):
    path = source / "images" / "one.tar"
    image = parts.Image(NAME)
    image.layer = os.urandom(1 << 20)
    image.describe(parts.MANIFEST)
    path.write_bytes(parts.oci_archive(NAME, [image]))
    small = images._small

    def shrink(descriptor: images.Descriptor, where: str) -> images.Descriptor:
        if str(path) in where:
            os.truncate(path, path.stat().st_size - 500_000)
        return small(descriptor, where)

    monkeypatch.setattr(images, "_small", shrink)
    assert "one.tar': the tar file is damaged or cut short" in refused(store, source)


def hole() -> bytes:
    """A sparse member whose hole would fill the disk."""
    member = bytearray(header("index.json", 0, tarfile.GNUTYPE_SPARSE))
    member[386:410] = b"%011o\0%011o\0" % (1 << 30, 0)
    member[483:495] = b"%011o\0" % (1 << 30)
    member[148:156] = b" " * 8
    member[148:156] = b"%06o\0 " % sum(member)
    return bytes(member) + bytes(1024)


def with_config(**more: object) -> bytes:
    image = parts.Image(NAME)
    image.config = json.dumps({**json.loads(image.config), **more}).encode()
    document = json.loads(image.manifest)
    document["config"] = parts.described(f"{parts.OCI}.config.v1+json", image.config)
    image.manifest = json.dumps(document).encode()
    return parts.oci_archive(NAME, [image])


def with_layer(media_type: object) -> bytes:
    image = parts.Image(NAME)
    image.change_layer(mediaType=media_type)
    return parts.oci_archive(NAME, [image])


def large_document() -> bytes:
    member = f"blobs/sha256/{parts.sha256(IMAGE.manifest)}"
    notes = {"io.containerd.image.name": NAME}
    entry = {**IMAGE.entry(), "size": 1 << 40, "annotations": notes}
    return parts.tar({"index.json": parts.index([entry]), member: b"{}"})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", DAMAGED),
        (b"nothing" * 100, DAMAGED),
        (b"\x1f\x8b\x08 and more", "it is compressed"),
        (DOCKER[:2000], DAMAGED),
        (parts.tar({"readme": b"x"}), "not an image"),
        (parts.tar({"../manifest.json": b"[]"}), "not an image"),
        (linked("manifest.json", "../../../etc/passwd"), "it holds no file 'manifest.json'"),
        (linked("manifest.json", "manifest.json"), "it holds no file 'manifest.json'"),
        (linked("index.json", "/etc/passwd"), "it holds no file 'index.json'"),
        (parts.tar({"manifest.json": b"{}"}), "input should be a valid array"),
        (parts.tar({"manifest.json": b"[]"}), "'manifest.json' lists no image"),
        (parts.tar({"manifest.json": b"[{}]"}), "0.Config: field required"),
        (changed(DOCKER, "b/layer.tar", b"other"), "layer 'b/layer.tar' has the wrong content"),
        (parts.docker_archive(None), "no name: save it by its name"),
        (parts.docker_archive("Pause:3"), "'Pause:3' is not an image name"),
        (parts.docker_archive(NAME, machine="arm64"), "is for linux/arm64"),
        (changed(ARCHIVE, LAYER, b"other"), "wrong content: expected sha256:"),
        (changed(ARCHIVE, "index.json", b"{"), "invalid JSON"),
        (changed(ARCHIVE, "index.json", parts.index([])), "it holds no image for amd64"),
        (changed(ARCHIVE, "index.json", parts.index([IMAGE.entry()])), "has no full name"),
        (
            changed(ARCHIVE, "index.json", parts.index([{"size": 1, "digest": "md5:0"}])),
            "not a valid SHA-256 digest",
        ),
        (header("manifest.json", -512) + bytes(1024), DAMAGED),
        (header("manifest.json", 1 << 62) + bytes(1024), DAMAGED),
        (header("manifest.json", (1 << 63) - 100) + bytes(1024), DAMAGED),
        (header("manifest.json", 1 << 70) + bytes(1024), DAMAGED),
        (extended({"size": "-512"}), "one.tar': "),  # Python 3.14 takes it for empty,
        (extended({"size": "9" * 30}), DAMAGED),
        (extended({**SPARSE, "GNU.sparse.realsize": "1000000000000"}), DAMAGED),
        (extended({"GNU.sparse.map": "0,x", "GNU.sparse.size": "1"}), DAMAGED),
        (hole(), "'index.json' has 1,073,741,824 bytes"),
        (parts.tar({"index.json": DEEP}), "recursion limit exceeded"),
        (parts.tar({"manifest.json": DEEP}), "recursion limit exceeded"),
        (with_config(**{"os.version": "\ud800"}), "invalid JSON"),
        (with_config(**{"os.version": "10.0\x1b[2J"}), "os.version: "),
        (with_config(**{"os.version": ["10.0"]}), "os.version: input should be a valid string"),
        (with_config(architecture="word " * 3000), "word word"),
        (with_config(os="word " * 3000), "word word"),
        (parts.oci_archive("word " * 3000, [IMAGE]), "word word"),
        (with_layer("\ud800"), "invalid JSON"),
        (with_layer("x" * 500), "layers.0.mediaType: "),
        (with_layer({"a": 1}), "layers.0.mediaType: input"),
        (header("x", 1 << 60, tarfile.XHDTYPE) + bytes(1024), DAMAGED),
        (header("x", 1 << 60, tarfile.XGLTYPE) + bytes(1024), DAMAGED),
        (header("x", 1 << 60, tarfile.GNUTYPE_LONGNAME) + bytes(1024), DAMAGED),
        (large_document(), "too large for a document"),
    ],
)
def test_what_is_no_image_is_refused_by_name_and_shortly(store, source, content, words):
    (source / "images" / "one.tar").write_bytes(content)
    said = refused(store, source)
    assert "one.tar" in said
    assert words in said
    assert len(said) < 700


def test_indexes_that_name_one_another_again_and_again_are_read_once(tmp_path, monkeypatch):
    image = parts.Image(NAME)
    members = {f"blobs/sha256/{key}": blob for key, blob in image.blobs.items()}
    below = parts.index([image.entry()] * 100)
    for _ in range(2):
        members[f"blobs/sha256/{parts.sha256(below)}"] = below
        below = parts.index([parts.described(f"{parts.OCI}.index.v1+json", below)] * 100)
    members[f"blobs/sha256/{parts.sha256(below)}"] = below
    notes = {"io.containerd.image.name": NAME}
    top = parts.index([parts.described(f"{parts.OCI}.index.v1+json", below, annotations=notes)])
    path = tmp_path / "one.tar"
    path.write_bytes(parts.tar({"index.json": top, **members}))
    read: list[str] = []
    plain = images._parse

    def parsed(kind: type, content: bytes, where: str) -> object:
        read.append(where)
        return plain(kind, content, where)

    monkeypatch.setattr(images, "_parse", parsed)
    assert len(list(images.read_archive(path, "it", Scratch(tmp_path / "into")))) == 1
    assert len(read) < 10


@pytest.mark.parametrize(
    "entry",
    [
        '{"name": "a.b/c:1", "os": "windows", "os_version": "LONG", "layers": [], REST}',
        '{"name": "LONG"}',
    ],
    ids=["twice", "wrong"],
)
def test_only_the_beginning_of_a_manifests_text_is_quoted(entry):
    blob = json.dumps({"sha256": "0" * 64, "size": 1})
    rest = f'"manifest": {blob}, "config": {blob}, "source": "it"'
    image = entry.replace("REST", rest).replace("LONG", "word " * 3000)
    versions = '"versions": [["kubernetes", "1.36.1"]], "programs": []'
    content = f'{{{versions}, "images": [{image}, {image}]}}'
    with pytest.raises(PreflightError) as error:
        decode(content.encode(), "it")
    assert len(str(error.value)) < 400
