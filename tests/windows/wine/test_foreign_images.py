"""Images for Windows on Wine nodes: which files are used, and what containers start with."""

import gzip
import io
import json
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lab._errors import PreflightError
from lab.machines.bundle.manifest import Blob, ContainerImage
from lab.machines.bundle.manifest import Layer as BundleLayer
from lab.windows.wine.foreign import Names, convert, settings
from lab.windows.wine.image import Layer
from lab.windows.wine.runtime.places import RUN

BASE = Layer("sha256:" + "ba" * 32, 7)
WINDOWS = {"Files/Windows/System32/ntdll.dll": "Windows'", "Hives/System_Base": "x"}


def layer(files: dict[str, str], links: dict[str, str] | None = None) -> bytes:
    """A layer as Windows' builders write it: links by name, symbolic if the target says so."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, words in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(words)
            member.pax_headers = {"MSWINDOWS.fileattr": "32"}
            tar.addfile(member, io.BytesIO(words.encode()))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type = tarfile.LNKTYPE if target.startswith("Files/") else tarfile.SYMTYPE
            member.linkname = target
            tar.addfile(member)
    return out.getvalue()


class Stored:
    """The parts of an image, in a folder."""

    def __init__(self, folder: Path, given: dict[str, Any], *layers: bytes) -> None:
        self.folder = folder
        self.folder.mkdir()
        parts = tuple(BundleLayer("", self.keep(content)) for content in layers)
        config = self.keep(json.dumps({"config": given}).encode())
        self.image = ContainerImage(
            "example.com/a:1", "windows", "10.0.20348.1", config, config, parts, ""
        )

    def keep(self, content: bytes) -> Blob:
        blob = Blob(sha256(content).hexdigest(), len(content))
        self.path(blob).write_bytes(content)
        return blob

    def path(self, blob: Blob) -> Path:
        return self.folder / blob.sha256


def converted(tmp_path: Path, *layers: bytes) -> tuple[list[list[tarfile.TarInfo]], list[str]]:
    """The members of each layer that was written, and what was said."""
    stored = Stored(tmp_path / "blobs", {"User": "Bob"}, *layers)
    remarks = convert(stored.image, stored.path, BASE, tmp_path / "image.tar")
    written = []
    with tarfile.open(tmp_path / "image.tar") as tar:
        documents = {
            name: tar.extractfile(name).read()  # type: ignore[union-attr]
            for name in tar.getnames()
        }
        index = json.loads(documents["index.json"])
        manifest = json.loads(_blob(documents, index["manifests"][0]))
        first, *others = manifest["layers"]
        assert first["digest"] == BASE.digest
        for described in others:
            with tarfile.open(fileobj=io.BytesIO(_blob(documents, described))) as held:
                written.append(held.getmembers())
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["image.tar"]
    return written, list(remarks)


def _blob(documents: dict[str, bytes], described: dict[str, str]) -> bytes:
    return documents[f"blobs/{described['digest'].replace(':', '/')}"]


def test_files_above_windows_are_on_drive_c(tmp_path: Path) -> None:
    own = layer({"Files/app/web.exe": "MZ", "Files/Windows/System32/x.dll": "", "other": ""})
    (members,), remarks = converted(tmp_path, layer(WINDOWS), gzip.compress(own))
    assert [member.name for member in members] == [
        "wine/drive_c/app/web.exe",
        "wine/drive_c/windows/system32/x.dll",
    ]
    assert {member.mode for member in members} == {0o755}
    assert not any(member.pax_headers.get("MSWINDOWS.fileattr") for member in members)
    assert ["user 'Bob'" in remark for remark in remarks] == [True]


def test_a_registry_that_wine_cannot_read_is_said(tmp_path: Path) -> None:
    _, remarks = converted(tmp_path, layer(WINDOWS), layer({"Hives/Software_Delta": "regf"}))
    assert any("1 change of the registry" in remark for remark in remarks)


def test_names_are_those_of_the_first_layer_in_any_case(tmp_path: Path) -> None:
    layers, _ = converted(
        tmp_path,
        layer({"Files/App/Web.exe": "1", "Files/USERS/a": ""}),
        layer({"Files/app/WEB.EXE": "2", "Files/app/.wh.Old": "", "Files/PROGRAM FILES/b": ""}),
    )
    assert [
        [member.name.removeprefix("wine/drive_c/") for member in members] for members in layers
    ] == [
        ["App/Web.exe", "users/a"],
        ["App/Web.exe", "App/.wh.Old", "Program Files/b"],
    ]


def test_nothing_leaves_the_drive(tmp_path: Path) -> None:
    files = {
        "Files/../etc/passwd": "x",
        "Files/a:stream": "x",
        "/Files/../../b": "x",
        "Files/c": "",
    }
    links = {"Files/hard": "Files/c", "Files/soft": "C:\\tools\\d.exe", "Files/e": "Files/c"}
    (members,), _ = converted(tmp_path, layer(files, links))
    assert [(member.name, member.linkname) for member in members] == [
        ("wine/drive_c/c", ""),
        ("wine/drive_c/hard", "wine/drive_c/c"),
        ("wine/drive_c/soft", "/wine/drive_c/tools/d.exe"),
        ("wine/drive_c/e", "wine/drive_c/c"),
    ]


def test_a_layer_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    stored = Stored(tmp_path / "blobs", {}, b"no archive")
    with pytest.raises(PreflightError, match=r"reading layer [0-9a-f]{12} of image 'example"):
        convert(stored.image, stored.path, BASE, tmp_path / "image.tar")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"Entrypoint": ["/web"], "Cmd": ["-v"]}, ([RUN, "/web"], ["-v"], "/wine/drive_c")),
        ({"Cmd": ["cmd", "/c", "ver"]}, ([RUN], ["cmd", "/c", "ver"], "/wine/drive_c")),
        (
            {"Entrypoint": ['cmd /S /C "echo a b"'], "Cmd": None, "ArgsEscaped": True},
            ([RUN, "cmd", "/S", "/C", "echo a b"], [], "/wine/drive_c"),
        ),
        (
            {"Cmd": ["web.exe -x", "y z"], "ArgsEscaped": True, "WorkingDir": "c:\\Windows\\Temp"},
            ([RUN], ["web.exe", "-x", "y z"], "/wine/drive_c/windows/temp"),
        ),
        ({"WorkingDir": "/App/bin/"}, ([RUN], [], "/wine/drive_c/App/bin")),
    ],
)
def test_containers_start_as_on_windows(
    given: dict[str, Any], expected: tuple[list[str], list[str], str]
) -> None:
    made = settings({**given, "Env": ["A=1"]}, Names())
    assert (made["Entrypoint"], made["Cmd"], made["WorkingDir"]) == expected
    assert made["Env"] == ["A=1"]
    assert "User" not in made
