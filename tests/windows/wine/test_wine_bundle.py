"""What Wine nodes take out of a bundle: PowerShell's archive, and agnhost of Windows' image."""

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lab._errors import PreflightError
from lab.machines.bundle.manifest import Blob, ContainerImage, Layer, Manifest, Program
from lab.machines.bundle.store import BundleStore
from lab.windows.nodes.join_checks import AGNHOST, PAUSE, missing_images
from lab.windows.wine.bundle import (
    lacks_powershell,
    powershell,
    renamed,
    take_agnhost,
    wine_manifest,
)
from lab.windows.wine.image import AGNHOST_SETTINGS, write_archive, write_base, write_program
from lab.windows.wine.template import unpack

BLOB = Blob("00" * 32, 1)
POWERSHELL = Program("powershell.zip", "powershell", "windows", BLOB, "")
SERVER = Program("agnhost.exe", "agnhost", "windows", BLOB, "")


def image(name: str, os_version: str | None = None, *layers: Blob) -> ContainerImage:
    parts = tuple(Layer("application/vnd.oci.image.layer.v1.tar+gzip", blob) for blob in layers)
    os = "windows" if os_version else "linux"
    return ContainerImage(f"{name}:1", os, os_version, BLOB, BLOB, parts, "")


def bundle(*programs: Program, images: tuple[ContainerImage, ...] = ()) -> Manifest:
    linux = (image(AGNHOST), image(PAUSE))
    return Manifest((("kubernetes", "1.36.1"),), programs, (*linux, *images))


@pytest.mark.parametrize(
    ("manifest", "lacks"),
    [
        (bundle(), True),
        (bundle(SERVER), False),
        (bundle(images=(image(AGNHOST, "10.0.20348.1"),)), False),
        (bundle(images=(image(PAUSE, "10.0.20348.1"),)), True),
    ],
)
def test_a_bundle_without_agnhost_for_windows_is_refused(manifest: Manifest, lacks: bool) -> None:
    problems = missing_images(wine_manifest(manifest, {}), 20348)
    assert [AGNHOST in problem for problem in problems] == [True] * lacks


def test_a_bundle_without_powershell_is_refused(tmp_path: Path) -> None:
    assert "powershell.zip" in lacks_powershell(wine_manifest(bundle(SERVER), {}))
    assert not lacks_powershell(wine_manifest(bundle(POWERSHELL), {}))
    for lacking in (None, (BundleStore(tmp_path), bundle(SERVER))):
        with pytest.raises(PreflightError, match="PowerShell for Windows"):
            powershell(lacking)


def layer(members: dict[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, words in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(words)
            tar.addfile(member, io.BytesIO(words.encode()))
    return gzip.compress(out.getvalue(), mtime=0)


def stored(cache: Path, *versions: tuple[str, list[bytes]]) -> tuple[BundleStore, Manifest]:
    """A bundle with an image of agnhost for each version of Windows, of these layers."""
    images = []
    for version, layers in versions:
        blobs = [Blob(sha256(content).hexdigest(), len(content)) for content in layers]
        images.append(image(AGNHOST, version, *blobs))
    store, manifest = BundleStore(cache), bundle(images=tuple(images))
    for content in (content for _, layers in versions for content in layers):
        path = store.blob(manifest, Blob(sha256(content).hexdigest(), 0))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return store, manifest


@pytest.mark.parametrize("name", ["Files/agnhost", "Files/agnhost.exe"])
def test_agnhost_is_that_of_the_newest_windows_in_the_last_layer(name: str, tmp_path: Path) -> None:
    base = layer({"Files/Windows/system32/ntdll.dll": "base", name: "below"})
    newest = [base, layer({name: "newest"}), layer({"Files/agnhost-2": "another"})]
    oldest = [base, layer({name: "oldest"})]
    store, manifest = stored(tmp_path, ("10.0.26100.1", newest), ("10.0.17763.1", oldest))
    target = tmp_path / "bin" / "agnhost.exe"
    take_agnhost(store, manifest, target)
    assert target.read_text() == "newest"


@pytest.mark.parametrize(
    ("content", "words"),
    [(layer({"Files/other": "x"}), "none of its layers"), (b"no archive", "cannot be read")],
)
def test_an_image_without_agnhost_is_named(content: bytes, words: str, tmp_path: Path) -> None:
    store, manifest = stored(tmp_path, ("10.0.20348.1", [content]))
    with pytest.raises(PreflightError, match=rf"10\.0\.20348\.1: .*{words}"):
        take_agnhost(store, manifest, tmp_path / "agnhost.exe")


def archive(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for name in names:
            packed.writestr(name, name)
    return path


def test_powershell_is_unpacked_so_that_wine_can_start_it(tmp_path: Path) -> None:
    packed = archive(tmp_path / "blob", "pwsh.exe", "Modules/a/a.psm1", "../../out.dll")
    unpack(packed, tmp_path / "7")
    assert (tmp_path / "7/pwsh.exe").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "7/Modules/a/a.psm1").read_text() == "Modules/a/a.psm1"
    settings = json.loads((tmp_path / "7/powershell.config.json").read_text())
    assert settings == {"Microsoft.PowerShell:ExecutionPolicy": "RemoteSigned"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["7", "blob"]


def test_another_archive_than_powershells_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"no release archive of PowerShell .*pwsh\.exe"):
        unpack(archive(tmp_path / "blob", "setup.exe"), tmp_path / "7")


def blob(tar: tarfile.TarFile, described: Mapping[str, Any]) -> dict[str, Any]:
    return read(tar, f"blobs/{described['digest'].replace(':', '/')}")


def read(tar: tarfile.TarFile, name: str) -> dict[str, Any]:
    file = tar.extractfile(name)
    assert file is not None
    document: dict[str, Any] = json.load(file)
    return document


def test_a_windows_pod_is_stopped_as_by_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "root/usr/lib/x86_64-linux-gnu/wine/x86_64-windows").mkdir(parents=True)
    (tmp_path / "tree").mkdir()
    (tmp_path / "agnhost.exe").write_bytes(b"MZ")
    base = write_base(tmp_path / "base", tmp_path / "root", tmp_path / "tree")
    program = write_program(tmp_path / "program", tmp_path / "agnhost.exe")
    write_archive(tmp_path / "a.tar", "agnhost:1", (base, program), AGNHOST_SETTINGS)
    with tarfile.open(tmp_path / "a.tar") as tar:
        manifest = blob(tar, read(tar, "index.json")["manifests"][0])
        configuration = blob(tar, manifest["config"])
        assert configuration["config"]["StopSignal"] == "SIGINT"
        digests = [each["digest"] for each in manifest["layers"]]
        assert configuration["rootfs"]["diff_ids"] == digests == [base.digest, program.digest]


def test_the_sandboxes_image_has_a_name_of_its_own(tmp_path: Path) -> None:
    write_archive(tmp_path / "pause.tar", "registry.k8s.io/pause:3", (), {})
    renamed(tmp_path / "pause.tar", tmp_path / "sandbox.tar", "localhost/sandbox:3")
    with tarfile.open(tmp_path / "sandbox.tar") as tar, tarfile.open(tmp_path / "pause.tar") as old:
        (top,) = read(tar, "index.json")["manifests"]
        assert top["annotations"] == {"io.containerd.image.name": "localhost/sandbox:3"}
        assert blob(tar, top) == blob(old, read(old, "index.json")["manifests"][0])
