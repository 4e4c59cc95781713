from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from lab.imaging import bootstrap
from lab.imaging.bootstrap import ModuleMissingError, archive, file, folder, load_order, program

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


def names(order: tuple[str, ...]) -> list[str]:
    return [path.rpartition("/")[2].partition(".")[0] for path in order]


def test_modules_come_after_what_they_need_and_once():
    order = load_order(("isofs", "virtio_blk", "virtio_rng"), DEPENDENCIES, BUILT_IN)
    assert names(order) == ["cdrom", "isofs", "virtio", "virtio_ring", "virtio_blk", "virtio-rng"]


def test_module_that_is_built_in_needs_no_loading():
    assert load_order(("ext4",), DEPENDENCIES, BUILT_IN) == ()


def test_module_that_is_nowhere_is_named():
    with pytest.raises(ModuleMissingError, match="nvme"):
        load_order(("isofs", "nvme"), DEPENDENCIES, BUILT_IN)


def test_archive_is_read_by_cpio(tmp_path: Path):
    if shutil.which("cpio") is None:
        pytest.skip("cpio is not installed")
    entries = (folder("bin"), program("init", b"#!/bin/sh\n"), file("bin/odd", b"x" * 4097))
    subprocess.run(
        ["cpio", "--extract", "--quiet"], input=archive(entries), cwd=tmp_path, check=True
    )
    assert (tmp_path / "init").read_bytes() == b"#!/bin/sh\n"
    assert (tmp_path / "init").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "bin/odd").read_bytes() == b"x" * 4097


def test_archive_is_aligned_so_that_another_one_can_follow():
    for length in range(5):
        assert len(archive((file("name", b"x" * length),))) % 4 == 0


def test_boot_archive_lists_modules_in_their_order():
    modules = {"kernel/fs/virtio-rng.ko.xz": b"one", "kernel/b.ko": b"two"}
    found = bootstrap.boot_archive(b"#!", b"ELF", modules, b"fuse fuse c10:229\n")
    assert b"virtio_rng.ko\nb.ko\n" in found
    assert b"modules/virtio_rng.ko\0" in found
