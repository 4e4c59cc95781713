"""Answer media, read back byte for byte by pycdlib and by another program."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import answers
import pytest

pytest.importorskip("pycdlib", reason="pycdlib is not installed")

import pycdlib

from lab._errors import BrokenError
from lab.imaging import medium as media
from lab.imaging import recipes
from lab.imaging.windows.answer import LABEL, clone_medium, install_medium
from lab.imaging.windows.settings import (
    CloneCard,
    clone_document,
    settings_document,
)

needs_xorriso = pytest.mark.skipif(not shutil.which("xorriso"), reason="xorriso is not installed")
VARIANT = answers.INSTALLATIONS["2022-core-uefi-evaluation-virtio"]
KEY = "ssh-ed25519 AAAAC3Nz lab"
SCRIPTS = {
    "bootstrap.ps1": b"# bootstrap\r\n",
    "clone.ps1": b"# clone\r\n",
    "hybridlab.psm1": b"# shared\r\n" * 400,
    "a-step-of-later.ps1": b"# not for the medium\r\n",
}
ARCHIVE = bytes(range(256)) * 20_000
"""As large as Win32-OpenSSH's release archive."""


def templates() -> dict[str, bytes]:
    return {**recipes.load("windows-server-2022").files, **SCRIPTS}


def install(openssh: bytes | None = None) -> bytes:
    return install_medium(VARIANT.settings, KEY, templates(), openssh=openssh)


def clone() -> bytes:
    return clone_medium(answers.CLONES["clone"], templates())


MEDIA = {
    "install": (
        lambda: install(ARCHIVE),
        {
            "autounattend.xml": answers.documents()["2022-core-uefi-evaluation-virtio"],
            "bootstrap.ps1": SCRIPTS["bootstrap.ps1"],
            "hybridlab.psm1": SCRIPTS["hybridlab.psm1"],
            "openssh.zip": ARCHIVE,
            "settings.json": settings_document(VARIANT.settings, KEY, has_openssh=True),
        },
    ),
    "clone": (
        clone,
        {
            "Autounattend.xml": answers.documents()["clone"],
            "Unattend.xml": answers.documents()["clone"],
            "clone.ps1": SCRIPTS["clone.ps1"],
            "clone.json": clone_document(answers.CLONES["clone"]),
            "hybridlab.psm1": SCRIPTS["hybridlab.psm1"],
        },
    ),
}


@pytest.mark.parametrize("kind", MEDIA)
@pytest.mark.parametrize("names", ["joliet_path", "rr_path"])
def test_medium_holds_its_files_byte_for_byte_under_their_own_names(kind, names):
    make, wanted = MEDIA[kind]
    iso = pycdlib.PyCdlib()
    iso.open_fp(io.BytesIO(make()))
    found = {}
    for child in iso.list_children(**{names: "/"}):
        if child.is_dot() or child.is_dotdot():
            continue
        path = iso.full_path_from_dirrecord(child, rockridge=names == "rr_path")
        out = io.BytesIO()
        iso.get_file_from_iso_fp(out, **{names: path})
        found[path.removeprefix("/")] = out.getvalue()
    iso.close()
    assert found == wanted


@needs_xorriso
@pytest.mark.parametrize("kind", MEDIA)
@pytest.mark.parametrize("names", ["on", "off"])
def test_another_program_reads_the_same(kind, names, tmp_path):
    """With Rock Ridge as Linux reads it, and without it by Joliet, as Windows does."""
    make, wanted = MEDIA[kind]
    image = tmp_path / "answers.iso"
    image.write_bytes(make())
    out = tmp_path / "out"
    command = ["xorriso", "-read_fs", "norock" if names == "off" else "any", "-osirrox", "on"]
    subprocess.run(
        [*command, "-indev", str(image), "-extract", "/", str(out)], check=True, capture_output=True
    )
    assert {path.name: path.read_bytes() for path in out.iterdir()} == wanted


@pytest.mark.parametrize("kind", MEDIA)
def test_medium_has_our_label_and_the_same_bytes_every_time(kind, tmp_path):
    make, _ = MEDIA[kind]
    image = tmp_path / "answers.iso"
    image.write_bytes(make())
    with media.opened(image, "reading", "") as found:
        assert found.label == LABEL == "HYBRIDLAB"
    assert make() == image.read_bytes()


@pytest.mark.parametrize("kind", MEDIA)
def test_medium_is_made_in_a_tenth_of_a_second(kind):
    make, _ = MEDIA[kind]
    make()  # imports
    took = []
    for _ in range(5):
        begun = time.process_time()
        make()
        took.append(time.process_time() - begun)
    assert min(took) < 0.1


def test_password_is_in_no_file_but_the_answer_file_and_there_it_is_encoded():
    for make, _ in MEDIA.values():
        assert answers.PASSWORD.encode() not in make()
    told = json.loads(clone_document(answers.CLONES["clone"]))
    assert "administrator_password" not in told
    assert answers.PASSWORD not in json.dumps(told)


def test_clone_is_told_its_cards_and_what_is_not_known_is_null():
    card = CloneCard("cluster", "52:54:00:00:00:01", "192.0.2.10/24", None, ("192.0.2.1",), 1450)
    settings = replace(answers.CLONES["clone"], cards=(card,))
    assert json.loads(clone_document(settings)) == {
        "authorized_key": "ssh-ed25519 AAAAC3Nz lab",
        "cards": [
            {
                "address": "192.0.2.10/24",
                "dns": ["192.0.2.1"],
                "gateway": None,
                "mac": "52:54:00:00:00:01",
                "mtu": 1450,
                "name": "cluster",
            }
        ],
        "computer_name": "WIN1",
        "management_address": "192.0.2.10",
        "region": {"keyboard": "0409:00000409", "locale": "en-US", "time_zone": "UTC"},
        "time_server": None,
    }


def test_documents_are_ascii_whatever_they_say():
    settings = replace(answers.CLONES["clone"], authorized_key="ssh-ed25519 AAAA Jürgen")
    assert clone_document(settings).isascii()
    assert json.loads(clone_document(settings))["authorized_key"] == "ssh-ed25519 AAAA Jürgen"
    assert json.loads(settings_document(VARIANT.settings, KEY, has_openssh=False)) == {
        "authorized_key": "ssh-ed25519 AAAAC3Nz lab",
        "openssh": None,
        "release": "2022",
        "storage": "virtio",
        "surface": "core",
        "virtio": True,
    }


@pytest.mark.parametrize(("make", "script"), [(install, "bootstrap.ps1"), (clone, "clone.ps1")])
def test_medium_without_its_script_is_not_made(make, script, monkeypatch):
    monkeypatch.delitem(SCRIPTS, script)
    there = {name: text for name, text in templates().items() if name != script}
    monkeypatch.setattr(f"{__name__}.templates", lambda: there)
    with pytest.raises(BrokenError, match=f"lack {script}"):
        make()


def test_nothing_is_written_to_a_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    install(ARCHIVE)
    assert [*Path(tmp_path).iterdir()] == []
