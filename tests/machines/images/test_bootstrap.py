"""What of the bootstrap is decided without running it, and its refusals."""

import io
import platform
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from processes import run_program

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError
from lab.inventory.inventory import Inventory
from lab.machines.images import bootstrap, recipes
from lab.machines.images.inputs import ImageInputs
from lab.machines.images.job import BuildJob
from lab.shells import programs

TEMPLATES = {
    "init": b"#!/bin/busybox sh\n",
    "tree/etc/file": b"plain\n",
    "tree/usr/lib/program": b"#!/bin/sh\n",
    "customize": b"#!/bin/sh\n",
}


@pytest.fixture
def job(tmp_path):
    return BuildJob(ImageInputs(recipes.load("debian-12"), Inventory(), tmp_path), tmp_path, None)


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


def test_a_recipe_without_a_kernel_makes_no_disk_and_says_who_makes_its_root(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "need", lambda *_: None)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    made_from = ImageInputs(recipes.load("debian-13-wine"), Inventory(), tmp_path)
    with pytest.raises(PreflightError, match="for system containers, not for a disk") as refused:
        bootstrap.build(BuildJob(made_from, tmp_path, None))
    assert "lab up --provider nspawn" in refused.value.hint
    assert not list(tmp_path.iterdir())


def test_host_without_a_mirror_is_refused_with_what_to_write(job, monkeypatch):
    monkeypatch.setattr(bootstrap, "host_sources", lambda *_: [])
    parts = job.recipe.bootstrap
    assert parts is not None
    with pytest.raises(PreflightError, match=r"\[images.debian-12\] url = "):
        bootstrap._bootstrap(job, parts, job.scratch / "root.tar")


def test_mirror_of_the_inventory_is_used(job):
    sources = bootstrap.sources(job.recipe, "http://near.example/debian")
    assert [apt_source.line() for apt_source in sources] == [
        "deb http://near.example/debian bookworm main"
    ]


def test_progress_is_shown_and_other_output_is_not(job):
    told: list[str] = []
    job = BuildJob(replace(job.inputs, say=told.append), job.scratch, None)
    for line in ("I: extracting archives...", "I: success in 4 seconds", "Get:1 x y", "W: odd..."):
        bootstrap._heard(job, line)
    assert told == ["image 'debian-12': extracting archives"]


@pytest.mark.parametrize(
    ("says", "kind", "words"),
    [
        ("Cannot open", BrokenError, r"'tar' failed \(1\):\n    tar: Cannot open"),
        ("No space left on device", PreflightError, "the disk is full"),
    ],
)
def test_program_that_fails_is_reported_with_its_last_lines(says, kind, words, new_program):
    new_program("tar", f"echo 'tar: {says}' >&2; exit 1")
    heard: list[str] = []
    with pytest.raises(kind, match=words):
        programs.run("testing", ["tar"], Deadline(20), on_line=heard.append)
    assert heard == [f"tar: {says}"]


def test_program_that_never_ends_is_ended_with_its_children(tmp_path, new_program):
    new_program("tar", f"echo started\nsleep 1000 &\necho $! >{tmp_path}/child\nwait")
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


@pytest.mark.parametrize("program", ["python", "dd", "skopeo"])
def test_a_program_that_writes_more_to_a_file_than_it_may_is_ended(tmp_path, new_program, program):
    file = tmp_path / "file"
    # A signal ends dd; Python ignores it, and prints the error of write(2).
    scripts = {
        "python": f"exec {sys.executable} -c \"open('{file}', 'wb').write(bytes(900_000))\"",
        "dd": f"exec dd if=/dev/zero of={file} bs=1000 count=9",
        "skopeo": "echo 'SIGXFSZ: file size limit exceeded'; echo 'goroutine 1:'; exit 2",
    }
    new_program("tar", scripts[program])
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


TARGETS = """\
Debian|bookworm|bookworm|http://mirror.example/debian/|main|Packages
Debian|bookworm|bookworm|http://mirror.example/debian/|contrib|Packages
Debian|bookworm|bookworm|http://mirror.example/debian/|main|DEP-11
Debian|bookworm-updates|bookworm-updates|http://mirror.example/debian/|main|Packages
Debian|bookworm-security|bookworm-security|http://mirror.example/debian-security/|main|Packages
Debian|bookworm-backports|bookworm-backports|http://mirror.example/debian/|main|Packages
Docker|bookworm|bookworm|https://packages.example/docker/|main|Packages
node|nodistro|nodistro|https://packages.example/node/|main|Packages
"""
UNSEEN = """\
||bookworm|http://mirror.example/debian/|main|Packages
||bookworm-updates|http://mirror.example/debian/|main|Packages
||bookworm|https://packages.example/docker/|stable|Packages
"""
HOST = ("debian", "bookworm")


ALIAS = "Debian|bookworm|stable|http://mirror.example/debian/|main|Packages\n"


@pytest.mark.parametrize(
    ("targets", "suite", "host", "found"),
    [
        (TARGETS, "bookworm", HOST, ["bookworm", "bookworm-updates", "security bookworm-security"]),
        (TARGETS, "trixie", HOST, ["trixie", "trixie-updates", "security trixie-security"]),
        (ALIAS, "bookworm", HOST, ["bookworm"]),
        (UNSEEN, "bookworm", HOST, ["bookworm", "bookworm-updates"]),
        ("", "bookworm", HOST, []),
        (TARGETS, "bookworm", ("ubuntu", "noble"), []),
        (TARGETS, "bookworm", ("", ""), []),
        ("a|b\n", "bookworm", HOST, []),
    ],
    ids=[
        *("the host's own", "another beside it", "an alias", "lists that were not fetched yet"),
        *("nothing", "another distribution", "unknown host", "no table"),
    ],
)
def test_release_comes_with_its_updates_and_nobody_elses_packages(targets, suite, host, found):
    mirror = "deb http://mirror.example/debian"
    wanted = [
        f"{mirror}-{one} main" if one.startswith("security ") else f"{mirror} {one} main"
        for one in found
    ]
    made = bootstrap.mirror_sources(targets, "debian", host, suite)
    assert [apt_source.line() for apt_source in made] == wanted


DEPENDENCIES = """\
kernel/fs/isofs/isofs.ko.xz: kernel/drivers/cdrom/cdrom.ko.xz
kernel/drivers/cdrom/cdrom.ko.xz:
kernel/drivers/virtio/virtio.ko.xz:
kernel/drivers/virtio/virtio_ring.ko.xz: kernel/drivers/virtio/virtio.ko.xz
kernel/drivers/block/virtio_blk.ko.xz: kernel/drivers/virtio/virtio_ring.ko.xz \
kernel/drivers/virtio/virtio.ko.xz
kernel/drivers/char/hw_random/virtio-rng.ko.xz: kernel/drivers/virtio/virtio.ko.xz
"""
BUILT_IN = "kernel/fs/ext4/ext4.ko\nkernel/lib/libcrc32c.ko\n"


def test_modules_come_after_what_they_need_once_and_without_those_that_are_built_in():
    wanted = ("isofs", "ext4", "virtio_blk", "virtio_rng")
    order = bootstrap.load_order(wanted, DEPENDENCIES, BUILT_IN)
    names = [path.rpartition("/")[2].partition(".")[0] for path in order]
    assert names == ["cdrom", "isofs", "virtio", "virtio_ring", "virtio_blk", "virtio-rng"]


def test_module_that_is_nowhere_is_named():
    with pytest.raises(LookupError, match="nvme"):
        bootstrap.load_order(("isofs", "nvme"), DEPENDENCIES, BUILT_IN)


def test_archive_is_read_by_cpio(tmp_path):
    if shutil.which("cpio") is None:
        pytest.skip("cpio is not installed")
    files = {"init": b"#!/bin/sh\n", "bin/odd": b"x" * 4097}
    made = bootstrap.archive(files, ("bin",), executable=("init",))
    run_program(["cpio", "--extract", "--quiet"], input=made, cwd=tmp_path, text=False)
    assert (tmp_path / "init").read_bytes() == b"#!/bin/sh\n"
    assert (tmp_path / "init").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "bin/odd").read_bytes() == b"x" * 4097
    assert (tmp_path / "bin/odd").stat().st_mode & 0o777 == 0o644


def test_archive_is_aligned_so_that_another_one_can_follow():
    for length in range(5):
        assert len(bootstrap.archive({"name": b"x" * length})) % 4 == 0


def test_boot_archive_lists_modules_in_their_order():
    modules = {"kernel/fs/virtio-rng.ko.xz": b"one", "kernel/b.ko": b"two"}
    boot_archive = bootstrap.boot_archive(b"#!", b"ELF", modules, b"fuse fuse c10:229\n")
    assert b"virtio_rng.ko\nb.ko\n" in boot_archive
    assert b"modules/virtio_rng.ko\0" in boot_archive
