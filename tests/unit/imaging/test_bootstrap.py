"""What of the bootstrap is decided without running it, and its refusals."""

from __future__ import annotations

import io
import platform
import stat
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError
from lab.imaging import bootstrap, recipes
from lab.imaging.job import BuildJob
from lab.inventory.inventory import ImageSource, Inventory
from lab.remote import programs

TEMPLATES = {
    "init": b"#!/bin/busybox sh\n",
    "tree/etc/file": b"plain\n",
    "tree/usr/lib/program": b"#!/bin/sh\n",
    "customize": b"#!/bin/sh\n",
}


@pytest.fixture
def job(tmp_path: Path) -> BuildJob:
    return BuildJob(recipes.load("debian-12"), tmp_path, tmp_path, Inventory(), None, print)


def test_tree_is_packed_as_roots_with_programs_that_can_be_run():
    with tarfile.open(fileobj=io.BytesIO(bootstrap.tree_archive(TEMPLATES))) as tar:
        found = {member.name: (member.mode, member.uid) for member in tar}
    assert found == {"etc/file": (0o644, 0), "usr/lib/program": (0o755, 0)}


def test_owners_are_given_to_everything_but_devices_and_second_names():
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, kind, uid in (
            ("./", tarfile.DIRTYPE, 0),
            ("./etc/a b", tarfile.REGTYPE, 42),
            ("./etc/link", tarfile.SYMTYPE, 0),
            ("./etc/second", tarfile.LNKTYPE, 42),
            ("./dev/null", tarfile.CHRTYPE, 0),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.uid, member.gid = kind, uid, uid + 1
            tar.addfile(member)
    packed.seek(0)
    with tarfile.open(fileobj=packed) as tar:
        commands = list(bootstrap.owners(tar))
    assert commands == [
        'set_inode_field "/" uid 0\n',
        'set_inode_field "/" gid 1\n',
        'set_inode_field "/etc/a b" uid 42\n',
        'set_inode_field "/etc/a b" gid 43\n',
        'set_inode_field "/etc/link" uid 0\n',
        'set_inode_field "/etc/link" gid 1\n',
    ]


def test_machine_of_another_architecture_is_refused(job, monkeypatch):
    monkeypatch.setattr(programs, "need", lambda *_: None)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(PreflightError, match="it is for x86_64, but this machine is riscv64"):
        bootstrap.build(job)


def test_missing_programs_are_named_all_at_once(job, monkeypatch):
    monkeypatch.setattr(programs, "_find", lambda name: None if "m" in name else name)
    with pytest.raises(PreflightError, match="apt-get install mmdebstrap e2fsprogs qemu-utils"):
        bootstrap.build(job)


def test_host_without_a_mirror_is_refused_with_what_to_write(job, monkeypatch):
    monkeypatch.setattr(bootstrap, "host_sources", lambda *_: [])
    parts = job.recipe.bootstrap
    assert parts is not None
    with pytest.raises(PreflightError, match=r"\[images.debian-12\] url = "):
        bootstrap._bootstrap(job, parts, job.scratch / "root.tar")


def test_mirror_of_the_inventory_is_used(job):
    found = bootstrap.sources(job.recipe, "http://near.example/debian")
    assert [one.line() for one in found] == ["deb http://near.example/debian bookworm main"]
    assert Inventory(images={"debian-12": ImageSource(url="x")}).images["debian-12"].url == "x"


def test_progress_is_told_and_chatter_is_not(job):
    told: list[str] = []
    job = BuildJob(job.recipe, job.scratch, job.downloads, job.inventory, None, told.append)
    for line in ("I: extracting archives...", "I: success in 4 seconds", "Get:1 x y", "W: odd..."):
        bootstrap._heard(job, line)
    assert told == ["image 'debian-12': extracting archives"]


def test_program_that_fails_is_reported_with_its_last_lines():
    with pytest.raises(BrokenError, match=r"'tar' failed \(2\)") as refused:
        programs.run("testing", ["tar", "--extract", "--file=/no/such/file"], Deadline(20))
    assert "Cannot open" in str(refused.value)


def test_program_that_finds_the_disk_full_is_a_matter_of_the_machine(tmp_path, monkeypatch):
    full = tmp_path / "tar"
    full.write_text("#!/bin/sh\necho 'tar: No space left on device' >&2; exit 1\n")
    full.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(PreflightError, match="the disk is full"):
        programs.run("testing", ["tar"], Deadline(20))


def test_program_that_never_ends_is_ended_with_its_children(tmp_path, monkeypatch):
    slow = tmp_path / "tar"
    slow.write_text(f"#!/bin/sh\necho started\nsleep 1000 &\necho $! >{tmp_path}/child\nwait\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(DeadlineError, match=r"not ended within 0\.5 s; last lines:\n    started"):
        programs.run("testing", ["tar"], Deadline(0.5))
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    Deadline(20).wait("waiting for the child to end", lambda: _state(child), until="Z".__eq__)


def _state(stat: Path) -> str:
    """Of a process, as proc(5) has it; of one that is gone as of a zombie."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def test_what_a_program_says_is_heard_while_it_runs():
    heard: list[str] = []
    programs.run("testing", ["tar", "--version"], Deadline(20), on_line=heard.append)
    assert heard[0].startswith("tar (GNU tar)")


@pytest.mark.parametrize("program", ["python", "dd", "skopeo"])
def test_a_program_that_writes_more_to_a_file_than_it_may_is_ended(tmp_path, monkeypatch, program):
    file = tmp_path / "file"
    # A signal ends dd; Python ignores it, and prints the error of write(2).
    scripts = {
        "python": f"exec {sys.executable} -c \"open('{file}', 'wb').write(bytes(9000))\"",
        "dd": f"exec dd if=/dev/zero of={file} bs=1000 count=9",
        "skopeo": "echo 'SIGXFSZ: file size limit exceeded'; echo 'goroutine 1:'; exit 2",
    }
    (tmp_path / "tar").write_text(f"#!/bin/sh\n{scripts[program]}\n")
    (tmp_path / "tar").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(programs.FileLimitError, match="more than 4,096 bytes to one file"):
        programs.run("testing", ["tar"], Deadline(20), file_limit=4096)
    if program != "skopeo":
        assert file.stat().st_size == 4096


def test_an_unnamed_file_is_private_and_has_no_name(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with programs.unnamed_file() as file:
        file.write_text("secret")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert subprocess.check_output(["cat", file], text=True) == "secret"
        assert list(tmp_path.iterdir()) == []
