"""The tiny guest of "lab doctor", without any hypervisor."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from lab.providers.libvirt import scratch, trial

SOURCE = Path(trial.__file__).with_name("programs") / "trial.S"


@pytest.mark.skipif(not shutil.which("as") or not shutil.which("ld"), reason="no binutils here")
def test_boot_sector_is_its_source_assembled(tmp_path: Path) -> None:
    command = re.search(r"^# +(as .*)$", SOURCE.read_text(encoding="utf-8"), re.MULTILINE)
    assert command
    shutil.copy(SOURCE, tmp_path)
    subprocess.run(["sh", "-c", command[1]], cwd=tmp_path, check=True, timeout=30)
    assert (tmp_path / "trial.bin").read_bytes() == trial.DISK[:512]


def test_disk_can_be_booted() -> None:
    assert trial.DISK[510:512] == b"\x55\xaa"
    assert len(trial.DISK) >= 504 * 1024


def test_every_stage_that_the_source_tries_has_its_words() -> None:
    tried = re.findall(r"^ +stage +'(.)'", SOURCE.read_text(encoding="utf-8"), re.MULTILINE)
    assert tried == list(trial.STAGES)


@pytest.mark.parametrize(
    ("said", "where"),
    [
        (b"", "it does not even begin to boot"),
        (b"R", "it comes as far as real mode"),
        (b"RPF", "it comes as far as floating point"),
        (b"\xff\x00RPFSL\r\n", "it comes as far as long mode"),
    ],
)
def test_guest_that_stops_is_told_by_its_stage(said: bytes, where: str) -> None:
    assert not trial.has_worked(said)
    assert trial.stopped_at(said) == where


def test_guest_that_comes_to_its_end_has_worked() -> None:
    assert trial.has_worked(b"RPFSLTworks\n")


@pytest.mark.parametrize(("kind", "written"), [("kvm", "kvm"), ("tcg", "qemu")])
def test_guest_has_no_network_and_ends_with_whatever_happens(
    kind: trial.Kind, written: str
) -> None:
    domain = ET.fromstring(trial.domain("probe", kind, "/a/dir with <odd> & 'name'/x"))
    assert domain.get("type") == written
    assert domain.find("devices/interface") is None
    assert [domain.findtext(f"on_{event}") for event in ("poweroff", "reboot", "crash")] == [
        "destroy"
    ] * 3
    source = domain.find("devices/disk/source")
    assert source is not None
    assert source.get("file") == "/a/dir with <odd> & 'name'/x"


def test_pool_of_a_killed_trial_is_known_after_a_while() -> None:
    name = scratch.name_at(1_800_000_000.7)
    assert not scratch.is_forgotten(name, 1_800_000_100)
    assert scratch.is_forgotten(name, 1_800_001_000)


@pytest.mark.parametrize(
    "name", ["default", "hybridlab-trial", "hybridlab-trial-1800000000", "hybridlab-images"]
)
def test_pools_of_others_are_never_taken_for_it(name: str) -> None:
    assert not scratch.is_forgotten(name, 9_000_000_000)
