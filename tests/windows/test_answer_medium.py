"""Answer media, read back byte for byte by pycdlib and by another program."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace

import answers
import pytest
from tables import CASES

from lab._errors import BrokenError
from lab.machines.images import medium as media
from lab.machines.images import recipes
from lab.windows.images.answer import LABEL, clone_medium, install_medium
from lab.windows.images.settings import CloneCard, clone_document, settings_document

VARIANT = answers.INSTALLATIONS[answers.CORE]
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
            "autounattend.xml": answers.documents()[answers.CORE],
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
@pytest.mark.parametrize("names", ["on", "off"])
def test_medium_holds_its_files_byte_for_byte_under_their_own_names(kind, names, tmp_path):
    """With Rock Ridge as Linux reads it, and without it by Joliet, as Windows does."""
    if not shutil.which("xorriso"):
        pytest.skip("xorriso is not installed")
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
    with media.opened(image, "reading", "") as medium:
        assert medium.label == LABEL == "HYBRIDLAB"
    assert make() == image.read_bytes()


def test_password_is_in_no_file_but_the_answer_file_and_there_it_is_encoded():
    for make, _ in MEDIA.values():
        assert answers.PASSWORD.encode() not in make()
    told = json.loads(clone_document(answers.CLONES["clone"]))
    assert "administrator_password" not in told
    assert answers.PASSWORD not in json.dumps(told)


def test_documents_are_as_meant_and_ascii_and_what_is_not_known_is_null():
    card = CloneCard("cluster", "52:54:00:00:00:01", "192.0.2.10/24", None, ("192.0.2.1",), 1450)
    clone = replace(answers.CLONES["clone"], cards=(card,))
    assert json.loads(clone_document(clone)) == json.loads((CASES / "clone.json").read_bytes())
    install = settings_document(VARIANT.settings, KEY, has_openssh=False)
    assert json.loads(install) == json.loads((CASES / "settings.json").read_bytes())
    other = clone_document(replace(clone, authorized_key="ssh-ed25519 AAAA Jürgen"))
    assert other.isascii()
    assert json.loads(other)["authorized_key"] == "ssh-ed25519 AAAA Jürgen"


@pytest.mark.parametrize(("make", "script"), [(install, "bootstrap.ps1"), (clone, "clone.ps1")])
def test_medium_without_its_script_is_not_made(make, script, monkeypatch):
    monkeypatch.delitem(SCRIPTS, script)
    there = {name: text for name, text in templates().items() if name != script}
    monkeypatch.setattr(f"{__name__}.templates", lambda: there)
    with pytest.raises(BrokenError, match=f"lack {script}"):
        make()
