"""A layer over a medium, whose UEFI loader asks for no key; and the medium stays as it is."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pycdlib", reason="pycdlib is not installed")
if not (shutil.which("wimlib-imagex") and shutil.which("qemu-io")):
    pytest.skip("wimtools or qemu-utils is not installed", allow_module_level=True)

import media_maker
import sparse
from media_maker import PLAIN

from lab._errors import PreflightError
from lab.imaging.windows.medium import overlay, read


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def flat(layer: Path) -> bytes:
    """What a guest sees, by qemu-img."""
    raw = layer.with_suffix(".raw")
    subprocess.run(["qemu-img", "convert", "-O", "raw", str(layer), str(raw)], check=True)
    return raw.read_bytes()


@pytest.fixture(autouse=True)
def scratch(tmp_path_factory, monkeypatch) -> Path:
    """Where temporary files go, in the tests of this module."""
    directory = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


@pytest.mark.parametrize("sectors", [None, 1])
def test_guest_sees_the_medium_with_the_other_loader(tmp_path, sectors, scratch):
    boots = replace(PLAIN, uefi_sectors=sectors)
    made = media_maker.make(tmp_path, boots=boots, name="a medium's name, with blanks.iso")
    made.chmod(0o444)
    before, out = digest(made), tmp_path / "a layer.qcow2"
    found = read(made)
    overlay(made, found, out)
    where = found.boots[1].extent
    expected = bytearray(made.read_bytes())
    place = slice(where.offset, where.offset + where.length)
    assert bytes(expected[place]) == PLAIN.uefi
    expected[place] = PLAIN.uefi_no_prompt
    assert flat(out) == bytes(expected)
    with pytest.raises(PreflightError, match="a file of that name exists"):
        overlay(made, found, made)
    assert digest(made) == before
    assert list(scratch.iterdir()) == []


def test_layer_is_small_and_quick_over_a_large_medium(tmp_path):
    big = {"/sources/more.bin": sparse.Holes(5 << 30, {})}
    made = media_maker.make(tmp_path, files=big)
    out = tmp_path / "layer.qcow2"
    overlay(made, read(made), out)
    assert made.stat().st_size > 5 << 30
    assert out.stat().st_size < 4 << 20


def test_layer_leans_on_the_medium_where_it_will_be(tmp_path, monkeypatch):
    made = media_maker.make(tmp_path)
    found = read(made)
    (tmp_path / "pool").mkdir()
    moved = made.rename(tmp_path / "pool" / "windows.iso")
    moved_medium = replace(found, path=moved)
    monkeypatch.chdir(tmp_path)
    overlay(Path("pool/windows.iso"), moved_medium, tmp_path / "layer.qcow2")
    told = subprocess.run(
        ["qemu-img", "info", "layer.qcow2"], capture_output=True, text=True, check=True
    )
    assert f"backing file: {moved}\n" in told.stdout
    assert "backing file format: raw" in told.stdout


@pytest.mark.parametrize(
    ("boots", "words"),
    [
        (replace(PLAIN, uefi_no_prompt=None), "there is no 'efi/microsoft/boot/efisys_noprompt"),
        (
            replace(PLAIN, uefi_no_prompt=PLAIN.uefi + b"x"),
            "has 1,474,561 bytes, but there is room",
        ),
        (replace(PLAIN, uefi_sectors=2), "but there is room for 1,024"),
        (replace(PLAIN, uefi=bytes(2048), uefi_sectors=1), "but there is room for 0"),
    ],
)
def test_medium_without_such_a_loader_is_refused_and_nothing_made(tmp_path, boots, words):
    made = media_maker.make(tmp_path, boots=boots)
    out = tmp_path / "layer.qcow2"
    with pytest.raises(PreflightError, match=words) as raised:
        overlay(made, read(made), out)
    assert str(made) in raised.value.doing
    assert "firmware bios" in raised.value.hint
    assert not out.exists()


def test_failing_program_leaves_nothing(tmp_path, monkeypatch, scratch):
    made = media_maker.make(tmp_path)
    programs = tmp_path / "programs"
    programs.mkdir()
    failing = programs / "qemu-io"
    failing.write_text("#!/bin/sh\necho 'write failed: No space left on device'\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    out = tmp_path / "layer.qcow2"
    with pytest.raises(PreflightError, match="the disk is full"):
        overlay(made, read(made), out)
    assert not out.exists()
    assert list(scratch.iterdir()) == []
