"""Synthetic media in Microsoft's layout, read and given a layer: stand-ins, not Windows."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

if not (shutil.which("wimlib-imagex") and shutil.which("qemu-io")):
    pytest.skip("wimtools or qemu-utils is not installed", allow_module_level=True)

import media_maker
import pycdlib
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from media_maker import PLAIN
from processes import lab, left_after_kill

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab.machines.images.terms import WantedImage
from lab.windows.images.medium import choose, overlay, read

SECTOR = 2048


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    """An evaluation medium of Windows Server 2022."""
    return media_maker.make(tmp_path_factory.mktemp("windows"))


@pytest.fixture
def copy(windows, tmp_path):
    """One of its own, to damage."""
    return Path(shutil.copy(windows, tmp_path / "copy.iso"))


COMPARED = {
    "Index": "index",
    "Name": "name",
    "Display Name": "display_name",
    "Edition ID": "edition",
    "Installation Type": "installation",
    "Build": "build",
    "Service Pack Build": "revision",
    "Default Language": "default_language",
    "Architecture": "architecture",
    "Total Bytes": "bytes",
}


def test_images_are_those_that_wimlib_lists(windows):
    wim = windows.with_name("windows.iso.parts") / "install" / "install.wim"
    done = subprocess.run(["wiminfo", str(wim)], capture_output=True, text=True, check=True)
    blocks = done.stdout.partition("Available Images:")[2].strip().split("\n\n")
    for image, block in zip(read(windows).images, blocks, strict=True):
        lines = (line.partition(":") for line in block.splitlines())
        told = {name.strip(): value.strip() for name, _, value in lines}
        assert {name: told[name] for name in COMPARED} == {
            name: str(getattr(image, field)) for name, field in COMPARED.items()
        }
        assert told["Languages"] == " ".join(image.languages)


def test_medium_is_described_completely_and_its_extents_hold_the_right_bytes(windows):
    medium, content = read(windows), windows.read_bytes()
    assert medium.label == "SSS_X64FREE_EN-US_DV9"
    assert medium.bytes == len(content)
    assert medium.container == "/sources/install.wim"
    assert medium.channel == "evaluation"
    assert [boot.kind for boot in medium.boots] == ["bios", "uefi"]
    places = [*(boot.extent for boot in medium.boots), medium.no_prompt]
    expected = [PLAIN.bios, PLAIN.uefi, PLAIN.uefi_no_prompt]
    assert [content[place.offset : place.offset + place.length] for place in places] == expected


@pytest.mark.parametrize("container", ["wim", "esd", "swm"])
@pytest.mark.parametrize("year", ["2019", "2022", "2025"])
def test_every_release_is_read_from_every_container(tmp_path, year, container):
    medium = read(media_maker.make(tmp_path, year=year, channel="volume", container=container))
    assert medium.container == f"/sources/install.{container}"
    assert medium.channel == "volume"
    assert choose(medium, WantedImage(year, "datacenter", "desktop")).index == 4
    assert not any(image.edition.endswith("Eval") for image in medium.images)


@pytest.mark.parametrize("platform", [0, 0xEF])
@pytest.mark.parametrize("sectors", [None, 0, 1])
def test_uefi_loader_is_found_whatever_the_catalogue_leaves_out(tmp_path, platform, sectors):
    boots = replace(PLAIN, uefi_sectors=sectors, uefi_platform=platform)
    _, uefi = read(media_maker.make(tmp_path, boots=boots)).boots
    assert (uefi.kind, uefi.extent.length) == ("uefi", media_maker.FLOPPY)


HEADER, ENTRY = 64, 96
"""Of the section for UEFI, in the El Torito catalogue."""


@pytest.mark.parametrize(
    ("at", "content", "kinds"),
    [
        (HEADER + 1, b"\x01", ["bios"]),  # PowerPC
        (ENTRY, b"\x00", ["bios"]),  # not to be started
        (HEADER + 1, b"\x00", ["bios", "uefi"]),  # its file system tells
        (ENTRY + 6, b"\xff\xff", None),
    ],
)
def test_loader_is_identified_by_its_platform_or_its_content(copy, at, content, kinds):
    with copy.open("r+b") as file:
        file.seek(17 * SECTOR + 0x47)
        (block,) = struct.unpack("<I", file.read(4))
        file.seek(block * SECTOR + at)
        file.write(content)
    if kinds:
        assert [boot.kind for boot in read(copy).boots] == kinds
        return
    with pytest.raises(PreflightError, match="its uefi loader ends at byte"):
        read(copy)


def test_medium_may_have_no_loaders_at_all(tmp_path):
    medium = read(media_maker.make(tmp_path, boots=None))
    assert (medium.boots, medium.no_prompt) == ((), None)


def test_part_of_a_split_set_that_is_missing_or_of_another_is_named(tmp_path):
    parts = media_maker.install_wim(tmp_path / "other", "2019", container="swm")
    for part, content, words in (
        (3, b"", r"its 4 parts do not include '/sources/install3.swm'"),
        (2, parts[1], r"install2.swm' is part 2 of 4 of another set"),
    ):
        files = {f"/sources/install{part}.swm": content}
        made = media_maker.make(tmp_path / str(part), container="swm", files=files)
        with pytest.raises(PreflightError, match=words):
            read(made)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (40_000, r"it is cut off: the medium 'SSS_X64FREE_EN-US_DV9' has .* and the file 40,000"),
        (1_000_000, r"it is cut off: .* \(2\d%\)"),
        (-2048, r"it is cut off: .* \(100%\)"),
        (-1, r"it is cut off"),
    ],
)
def test_medium_that_is_cut_off_is_refused(copy, size, words):
    whole = copy.stat().st_size
    os.truncate(copy, size if size > 0 else whole + size)
    with pytest.raises(PreflightError, match=words) as raised:
        read(copy)
    assert str(copy) in raised.value.doing


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"/images": b"a file", "/pool/a": b"x"}, "EN-US_DV9' is a Linux medium"),
        ({}, "starts Windows PE and holds no Windows to install"),
        ({"/sources/boot.wim": b"", "/NetKVM/2k22/amd64/netkvm.sys": b"x"}, "has drivers"),
        (
            {"/sources/install.wim": b"not a WIM"},
            "its '/sources/install.wim': it is not a complete WIM file",
        ),
        (
            {"/sources/install.wim": b"MSWIM\0\0\0"},
            "it is not a complete WIM file: Unexpectedly reached the",
        ),
        (
            {"/sources/install.wim": bytes(4096)},
            "it is not a complete WIM file: The file did not begin with",
        ),
    ],
)
def test_medium_of_something_else_is_named(tmp_path, files, words):
    wanted = {"/sources/install.wim": b"", **files}
    with pytest.raises(PreflightError, match=words):
        read(media_maker.make(tmp_path, files=wanted))


def test_number_that_is_none_is_refused(tmp_path):
    with pytest.raises(PreflightError, match=r"its XML cannot be read: invalid literal.*twenty"):
        read(media_maker.make(tmp_path, build="twenty"))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 299 * SECTOR), st.binary(min_size=1, max_size=40))))
def test_damaged_medium_is_read_or_refused(copy, damages):
    before = copy.read_bytes()[: 301 * SECTOR]
    try:
        with copy.open("r+b") as file:
            for offset, noise in damages:
                file.seek(offset)
                file.write(noise)
        read(copy)
    except PreflightError:
        pass  # either way is right; anything else is not
    finally:
        with copy.open("r+b") as file:
            file.write(before)


def test_reading_that_is_killed_leaves_no_file_with_a_name(windows, tmp_path, new_program):
    seen, scratch = tmp_path / "seen", tmp_path / "scratch"
    reader = "$(cut -d' ' -f4 /proc/$PPID/stat)"  # of the shell that has started it
    until = f"exec tail -s 0.05 -f /dev/null --pid={reader}"
    new_program(
        "wimlib-imagex", f'[ -e "$2" ] && echo "$2" >{seen}.new; mv {seen}.new {seen}; {until}'
    )
    script = f"from lab.windows.images.medium import *; read(Path({str(windows)!r}))"
    left_after_kill(script, scratch, seen.exists)
    Deadline(60).wait(
        "the files of the reading to go",
        lambda: list(scratch.iterdir()),
        until=lambda found: found == [],
        every=0.05,
    )
    assert seen.read_text().startswith(str(scratch))


LARGE = 4200 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A medium of more than 4 GiB, the XML of its WIM behind the fourth; 1,000 files beside."""
    directory = tmp_path_factory.mktemp("large")
    (wim,) = media_maker.install_wim(directory / "wim")
    media_maker.grow(wim, LARGE)
    many = {f"/support/{number:04}.dll": b"x" * 100 for number in range(1000)}
    return media_maker.make(directory, files={"/sources/install.wim": wim, **many})


def test_wim_of_more_than_four_gib_is_read(large):
    assert large.stat().st_size > LARGE
    assert large.stat().st_blocks * 512 < 100 << 20, "it is sparse"
    medium = read(large)
    assert [image.index for image in medium.images] == [1, 2, 3, 4]
    assert medium.container == "/sources/install.wim"


ANEW = {
    "joliet": ({"joliet": 3}, "joliet_path", "/sources", "/sources/{}"),
    "rock ridge": ({"rock_ridge": "1.09"}, "rr_name", "sources", "{}"),
    "plain": ({}, "", "", ""),
}
"""How pycdlib is asked for such a volume, and what a folder and a file in it are called."""


@pytest.mark.parametrize("volume", ANEW)
def test_medium_made_anew_without_udf_is_read_too(tmp_path, volume):
    """ISO 9660 has a WIM of more than four GiB in several records."""
    options, key, folder, file = ANEW[volume]
    (wim,) = media_maker.install_wim(tmp_path / "wim")
    media_maker.grow(wim, LARGE)
    channel = tmp_path / "ei.cfg"
    channel.write_bytes(b"[Channel]\r\nEval\r\n")
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, vol_ident="ANEW", **options)
    iso.add_directory("/SOURCES", **({key: folder} if key else {}))
    for content, name in ((wim, "Install.wim"), (channel, "EI.CFG")):
        own = {key: file.format(name)} if key else {}
        iso.add_file(str(content), f"/SOURCES/{name.upper()};1", **own)
    made = tmp_path / "anew.iso"
    media_maker.save(iso, made)
    medium = read(made)
    assert [image.index for image in medium.images] == [1, 2, 3, 4]
    assert (medium.channel, medium.boots, medium.no_prompt) == ("evaluation", (), None)


def test_command_shows_what_a_medium_holds_and_serves(windows, capfd):
    code, out, _ = lab(capfd, "image", "inspect", str(windows))
    assert code == 0
    for words in (
        "channel    evaluation",
        "4   Windows Server 2022 SERVERDATACENTER  ",
        "windows-server-2022  yes, installs 'Windows Server 2022 SERVER",
        "windows-server-2019  no: it is a medium of Windows Server 2022",
    ):
        assert words in out
    told = json.loads(lab(capfd, "image", "inspect", "--json", str(windows))[1])
    assert told["path"] == str(windows)
    assert [image["index"] for image in told["images"]] == [1, 2, 3, 4]
    assert {use["recipe"]: use["refusal"] for use in told["uses"]}["windows-server-2022"] == ""


def test_command_refuses_what_is_no_medium_with_its_code(tmp_path, capfd):
    page = tmp_path / "page.iso"
    page.write_text("<!doctype html><title>Sign in</title>")
    code, out, err = lab(capfd, "image", "inspect", str(page))
    assert (code, out) == (4, "")
    assert "it is a web page" in err
    assert "try: give the ISO of Windows Server" in err
    assert lab(capfd, "image", "inspect", str(tmp_path / "absent.iso"))[0] == 2


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def flat(layer: Path) -> bytes:
    """What a guest sees, by qemu-img."""
    raw = layer.with_suffix(".raw")
    subprocess.run(["qemu-img", "convert", "-O", "raw", str(layer), str(raw)], check=True)
    return raw.read_bytes()


@pytest.fixture
def scratch(tmp_path_factory, monkeypatch):
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
    medium = read(made)
    overlay(made, medium, out)
    where = medium.boots[1].extent
    expected = bytearray(made.read_bytes())
    place = slice(where.offset, where.offset + where.length)
    assert bytes(expected[place]) == PLAIN.uefi
    expected[place] = PLAIN.uefi_no_prompt
    assert flat(out) == bytes(expected)
    with pytest.raises(PreflightError, match="a file of that name exists"):
        overlay(made, medium, made)
    assert digest(made) == before
    assert list(scratch.iterdir()) == []


def test_layer_over_a_large_medium_is_small_and_leans_on_it_where_it_will_be(tmp_path, monkeypatch):
    big = tmp_path / "more.bin"
    big.touch()
    os.truncate(big, LARGE)
    made = media_maker.make(tmp_path, files={"/sources/more.bin": big})
    medium = read(made)
    (tmp_path / "pool").mkdir()
    moved = made.rename(tmp_path / "pool" / "windows.iso")
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "layer.qcow2"
    overlay(Path("pool/windows.iso"), replace(medium, path=moved), out)
    assert moved.stat().st_size > LARGE
    assert out.stat().st_size < 4 << 20
    told = subprocess.run(["qemu-img", "info", out], capture_output=True, text=True, check=True)
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


def test_failing_program_leaves_nothing(tmp_path, new_program, scratch):
    made = media_maker.make(tmp_path)
    new_program("qemu-io", "echo 'write failed: No space left on device'\nexit 1")
    out = tmp_path / "layer.qcow2"
    with pytest.raises(PreflightError, match="the disk is full"):
        overlay(made, read(made), out)
    assert not out.exists()
    assert list(scratch.iterdir()) == []
