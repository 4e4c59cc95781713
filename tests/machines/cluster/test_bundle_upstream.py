"""Bundles made from where upstream has released their parts."""

import bz2
import errno
import gzip
import io
import json
import lzma
import os
import random
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import bundle_parts as parts
import pytest
from processes import run_program

from lab._errors import BrokenError, PreflightError, StateError, UsageError
from lab.machines.bundle import upstream
from lab.machines.bundle.manifest import Manifest, Wanted, wanted_images
from lab.machines.bundle.store import Scratch
from lab.machines.bundle.upstream import _member
from lab.machines.images import download

ETCD = "/github.com/etcd-io/etcd/releases/download/v3.6.8/etcd-v3.6.8-linux-amd64.tar.gz"
SDN = "-v0.3.1.zip"
KUBELET = "/dl.k8s.io/release/v1.36.1/bin/linux/amd64/kubelet"


def create(  # noqa: PLR0913  a bundle is made of all these
    store, site, kubernetes="1.36", systems=("linux",), *, images="pause", say=print
) -> Manifest:
    """A bundle with the images alone that have that in their names: they take time."""
    plain = wanted_images

    def some(*asked) -> list[Wanted]:
        return [wanted for wanted in plain(*asked) if images in wanted.name]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(upstream, "wanted_images", some)
        return upstream.create(store, site.web(), kubernetes, systems, say)


def partial(store) -> list[Path]:
    return [path for path in store._root.iterdir() if path.name.startswith(".")]


def test_the_newest_patch_version_is_fetched_checked_and_kept(store, site):
    made = create(store, site, images="")
    assert made.kubernetes == "1.36.1"
    store.verify(made, print)
    assert {program.name for program in made.programs} == {*parts.LINUX, "crictl"}
    assert {image.name for image in made.images} == set(parts.IMAGES)
    kubelet = made.program("kubelet", "linux")
    assert kubelet.source == "https://dl.k8s.io/release/v1.36.1/bin/linux/amd64/kubelet"
    assert store.blob(made, kubelet.blob).read_bytes() == parts.elf("kubelet")
    assert made.program("etcd", "linux").source.endswith("etcd-v3.6.8-linux-amd64.tar.gz")
    assert not any("windows" in path for path in site.paths())
    assert not partial(store)
    blobs = {path.name for path in (store.directory(made) / "blobs" / "sha256").iterdir()}
    assert blobs == {blob.sha256 for blob in made.blobs()}, "no archive is left"


def test_windows_comes_with_images_for_the_builds_that_labs_know(store, site):
    told: list[str] = []
    made = create(store, site, systems=("linux", "windows"), say=told.append, images="agn")
    assert set(parts.WINDOWS) <= {
        program.name for program in made.programs if program.os == "windows"
    }
    agnhost = [image.os_version for image in made.images if "agnhost" in image.name]
    assert agnhost == [None, "10.0.17763.6054", "10.0.20348.2762", "10.0.26100.100"]
    overlay = made.program("cni/sdnoverlay.exe", "windows")
    assert overlay.source.endswith("(no checksum is published)")
    assert any("no checksum of" in sentence for sentence in told)


def test_a_patch_version_is_taken_by_its_word(store, site):
    assert create(store, site, "1.36.1").kubernetes == "1.36.1"
    assert not any("stable" in path for path in site.paths())


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("1.20", "is too old"),
        ("1.99", "is not supported"),
        *((one, "not a version") for one in ("latest", "v1.36", "1.36.1\n", "1.36.\u0661")),
        *((one, "") for one in ("1." + "9" * 5000, "01.36", "2.36")),
    ],
    ids=lambda one: one[:20],
)
def test_a_version_that_labs_cannot_have_is_a_wrong_use(store, site, version, words):
    with pytest.raises(UsageError, match=f"(?s)making a bundle of Kubernetes .*{words}"):
        create(store, site, version)
    assert site.asked == []


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        (KUBELET, b"other", "wrong content: expected sha256:"),
        (KUBELET, None, "404 Not Found"),
        (f"{KUBELET}.sha256", None, "404 Not Found"),
        (f"{KUBELET}.sha256", b"<html>", "does not list 'kubelet'"),
        ("/dl.k8s.io/release/stable-1.36.txt", b"<html>", "says '<html>'"),
    ],
)
def test_what_upstream_has_not_or_wrong_is_refused_by_its_address(
    store, site, path, content, words
):
    site.files.pop(path)
    if content is not None:
        site.files[path] = content
    with pytest.raises(PreflightError) as refused:
        create(store, site)
    assert words in str(refused.value)
    assert store.list() == ()
    kept = [path for path in store._root.rglob("*") if path.is_file()]
    assert not any(path.read_bytes() == b"other" for path in kept)


@pytest.mark.parametrize("digest", ["sha256:../../../x", "sha256:", "/etc/passwd", 5, "md5:0"])
def test_a_digest_of_a_release_that_is_none_is_refused(store, site, digest):
    (path,) = (path for path in site.files if "flannel-io/cni-plugin/releases/tags" in path)
    document = json.loads(site.files[path])
    document["assets"][0]["digest"] = digest
    site.files[path] = json.dumps(document).encode()
    with pytest.raises(PreflightError, match="not a SHA-256"):
        create(store, site)


def replaced(site, ending, content) -> None:
    """Upstream has another file at the address, with the right digest in its list."""
    (path,) = (path for path in site.files if path.endswith(ending))
    site.files[path] = content
    folder, _, name = path.rpartition("/")
    if ending == ETCD:
        site.files[f"{folder}/SHA256SUMS"] = f"{parts.sha256(content)}  {name}".encode()


def test_a_broken_connection_is_gone_on_with(store, site):
    site.cuts[KUBELET] = [10]
    create(store, site)
    asked = [wanted for path, wanted in site.asked if path == KUBELET]
    assert asked == [None, "bytes=10-"]


def test_an_interrupted_one_is_gone_on_with(store, site, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(
            Scratch, "finish", lambda *_: (_ for _ in ()).throw(BrokenError("it", "is"))
        )
        with pytest.raises(BrokenError):
            create(store, site)
    before, pulled = len(site.asked), len(site.registry.asked())
    told: list[str] = []
    made = create(store, site, say=told.append)
    assert "continuing an interrupted attempt" in told
    assert KUBELET not in [path for path, _ in site.asked[before:]]
    assert not [path for path in site.registry.asked()[pulled:] if "/blobs/" in path]
    assert not partial(store)
    store.verify(made, print)


def test_a_killed_download_is_gone_on_with(store, site, tmp_path):
    inventory = tmp_path / "lab.toml"
    lines = [f'"{start}" = "{instead}"' for start, instead in site.mirrors().items()]
    inventory.write_text("\n".join([f'cache = "{tmp_path}/cache"', "[mirrors]", *lines]))
    site.stops[ETCD] = threading.Event()
    command = [sys.executable, "-m", "lab", "bundle", "create", "--os", "linux"]
    environment = {**os.environ, "HYBRIDLAB_INVENTORY": str(inventory)}
    killed = subprocess.Popen(command, env=environment)
    assert site.stops[ETCD].wait(60)
    killed.kill()
    killed.wait()
    assert len(partial(store)) == 1
    assert store.list() == ()
    del site.stops[ETCD]
    before = len(site.asked)
    made = run_program(command, env=environment)
    assert "continuing an interrupted attempt" in made.stderr
    again = [path for path, _ in site.asked[before:]]
    assert ETCD in again
    assert KUBELET not in again
    store.verify(store.get(made.stdout.strip()), print)
    assert not partial(store)


def test_a_full_disk_is_reported_and_downloaded_files_are_kept(store, site, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(download, "_free", lambda _: 20)
        with pytest.raises(PreflightError, match="0 MiB are free") as refused:
            create(store, site)
    assert "lab image gc" in refused.value.hint
    assert len(partial(store)) == 1
    store.verify(create(store, site), print)


def test_the_newest_version_is_not_taken_from_half_an_answer(store, site):
    path = "/dl.k8s.io/release/stable-1.36.txt"
    site.files[path], site.cuts[path] = b"v1.36.12", [len(b"v1.36.1")]
    with pytest.raises(PreflightError, match=r"1 bytes (remaining|missing)"):
        create(store, site)


def large_tar(size: int) -> bytes:
    """An archive that says of its file that it has so many bytes; they are not there."""
    member = tarfile.TarInfo("etcd-v3.6.8-linux-amd64/etcd")
    member.size = size
    return gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))


def large_zip() -> bytes:
    """The same with 4 GB."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        packed.writestr("sdnoverlay.exe", b"x")
    found = bytearray(out.getvalue())
    place = found.find(b"PK\x01\x02") + 24
    found[place : place + 4] = (0xFFFFFFFE).to_bytes(4, "little")
    return bytes(found)


def locked_zip(flag: int, method: int) -> bytes:
    """An archive whose headers say that it is encrypted, or packed in a way of their own."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        packed.writestr("sdnoverlay.exe", b"x")
    found = bytearray(out.getvalue())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = found.find(mark)
        found[place + at], found[place + at + 2] = flag, method
    return bytes(found)


MEMBER = "sdnoverlay.exe"
CONTENT = random.Random(1).randbytes(20_000)


def packed_zip(method: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(MEMBER, CONTENT)
    return out.getvalue()


ARCHIVES = {
    "tar": parts.tar({MEMBER: CONTENT}),
    "gz": gzip.compress(parts.tar({MEMBER: CONTENT})),
    "bz2": bz2.compress(parts.tar({MEMBER: CONTENT})),
    "xz": lzma.compress(parts.tar({MEMBER: CONTENT})),
    "stored": packed_zip(zipfile.ZIP_STORED),
    "deflated": packed_zip(zipfile.ZIP_DEFLATED),
    "zip of bz2": packed_zip(zipfile.ZIP_BZIP2),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_damaged_archive_is_never_a_defect(tmp_path, kind):
    """Bytes changed, and the end cut off, at many places: every time it is said, or not seen."""
    path = tmp_path / "archive"
    whole = ARCHIVES[kind]
    chosen = random.Random(2)
    refusals: list[str] = []
    disk = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for place in (chosen.randrange(len(whole)), chosen.randrange(-64, 0)):
            damaged[place] = chosen.choice((0, 127, 128, 255))
        path.write_bytes(damaged[: chosen.choice((len(whole), chosen.randrange(len(whole))))])
        try:
            with _member(path, MEMBER, "https://upstream.example/a") as content:
                while content.read(1 << 20):
                    pass
        except PreflightError as error:
            refusals += [] if isinstance(error, StateError) else [error.happened]
            disk += isinstance(error, StateError)
    assert not disk
    assert len(refusals) > 100
    assert not any("\n" in words for words in refusals)
    if "zip" not in kind and kind not in {"stored", "deflated"}:  # these may seem to be encrypted
        words = "the archive is damaged or cut short ("
        assert [refusal for refusal in refusals if not refusal.startswith(words)] == []


def test_a_name_in_an_archive_that_is_not_utf_8_is_no_defect(tmp_path):
    path = tmp_path / "archive"
    whole = packed_zip(zipfile.ZIP_STORED)
    directory = whole.rindex(b"PK\x01\x02")
    damaged = bytearray(whole.replace(MEMBER.encode(), b"\xff" + MEMBER.encode()[1:]))
    damaged[directory + 9] |= 0x08  # its names are UTF-8
    path.write_bytes(damaged)
    with (
        pytest.raises(PreflightError, match="it cannot be unpacked"),
        _member(path, MEMBER, "https://upstream.example/a"),
    ):
        pass


def test_an_error_of_the_disk_is_not_called_a_damaged_archive(tmp_path, monkeypatch):
    path = tmp_path / "archive"
    path.write_bytes(ARCHIVES["gz"])

    def fail(*_arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with _member(path, MEMBER, "https://upstream.example/a") as content:
        monkeypatch.setattr(tarfile.ExFileObject, "read", fail)
        with pytest.raises(StateError, match="input/output error"):
            content.read(1)
    monkeypatch.setattr(tarfile, "open", fail)
    with (
        pytest.raises(StateError, match="input/output error"),
        _member(path, MEMBER, "https://upstream.example/a"),
    ):
        pass


def test_an_error_of_what_is_done_with_the_content_stays_as_it_is(tmp_path):
    path = tmp_path / "archive"
    path.write_bytes(ARCHIVES["gz"])
    with (
        pytest.raises(EOFError, match="mine"),
        _member(path, MEMBER, "https://upstream.example/a"),
    ):
        raise EOFError("mine")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("asset", "content", "said"),
    [
        (ETCD, parts.tar({"readme": b"x"}), "it is not in the archive, which has readme"),
        (ETCD, large_tar(1 << 40), "more than 2 GiB of files"),
        (ETCD, large_tar(-512), "has -512 bytes|invalid offset"),
        (SDN, large_zip(), "more than 2 GiB of files"),
        (SDN, locked_zip(1, 0), "it cannot be unpacked"),
        (SDN, locked_zip(0, 99), "it cannot be unpacked"),
    ],
    ids=["another", "tar", "negative", "zip", "encrypted", "packed"],
)
def test_an_archive_that_is_not_as_it_must_be_is_not_unpacked(store, site, asset, content, said):
    replaced(site, asset, content)
    with pytest.raises(PreflightError, match=said) as refused:
        create(store, site, systems=("linux", "windows"))
    assert refused.value.doing.startswith("unpacking '")
