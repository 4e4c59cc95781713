"""Golden images on a hypervisor: once, whole, and copied anew where they are not."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from processes import run_program

libvirt = pytest.importorskip("libvirt", reason="libvirt-python is not installed")


from lab._deadline import Deadline  # noqa: E402
from lab._errors import BrokenError  # noqa: E402
from lab.machines.libvirt import connection, documents, images, storage  # noqa: E402

MIB = 1 << 20
NAME = "some.qcow2"


class Copying:
    """A pool of its own, a file to be copied there, and what was said meanwhile."""

    def __init__(self, folder: Path, size: int) -> None:
        self.name = f"copies-{os.urandom(3).hex()}"
        self.storage = folder / "pool"
        self.file = folder / "file"
        self.file.write_bytes(os.urandom(size))
        self.said: list[str] = []

    def pool(self) -> Any:
        """By a connection of its own, as every controller has one."""
        return storage.ensure_pool(libvirt.open("qemu:///system"), self.name, "", str(self.storage))

    def ensure(self, pool: Any) -> str:
        storage.refresh(pool)
        return images.ensure_copy(pool, NAME, self.file, "disk", self.said.append)

    def copies(self) -> int:
        return len([line for line in self.said if line.startswith("copying")])

    def is_whole(self) -> bool:
        return (self.storage / NAME).read_bytes() == self.file.read_bytes()


@pytest.fixture
def copying(tmp_path, monkeypatch):
    monkeypatch.setattr(
        documents,
        "pool",
        lambda name, _uuid, path: (
            f"<pool type='dir'><name>{name}</name><target><path>{path}</path></target></pool>"
        ),
    )
    try:
        connection.load()
        libvirt.open("qemu:///system").close()
    except libvirt.libvirtError as error:
        pytest.skip(f"no libvirtd: {error}")
    monkeypatch.setattr(images, "_STALL_SECONDS", 1.5)
    copying = Copying(tmp_path, 4 * MIB + 17)
    yield copying
    storage.remove_pool(copying.pool())
    assert not copying.storage.exists()


def slowed(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let every chunk of an upload take that long."""
    upload = storage._upload

    class Slow:
        def __init__(self, content: Any) -> None:
            self.content = content

        def read(self, size: int) -> bytes:
            time.sleep(seconds)
            return self.content.read(size)

    def slow(pool: Any, volume: Any, content: Any, size: int) -> None:
        upload(pool, volume, Slow(content), size)

    monkeypatch.setattr(storage, "_upload", slow)


def test_a_copy_is_made_once(copying):
    pool = copying.pool()
    assert copying.ensure(pool) == copying.ensure(pool) == str(copying.storage / NAME)
    assert copying.copies() == 1
    assert copying.is_whole()


def test_two_controllers_at_once_copy_it_once(copying, monkeypatch):
    slowed(monkeypatch, 0.01)
    pools = [copying.pool() for _ in range(4)]
    with ThreadPoolExecutor(len(pools)) as threads:
        assert len(set(threads.map(copying.ensure, pools))) == 1
    assert copying.is_whole()
    whole = (copying.storage / NAME).stat().st_ino
    copying.ensure(pools[0])
    assert (copying.storage / NAME).stat().st_ino == whole


def test_a_slow_copy_of_another_is_not_taken_for_given_up(copying, monkeypatch):
    """Its file has all its blocks from the start: growing is no sign of life."""
    slowed(monkeypatch, 0.04)
    first, second = copying.pool(), copying.pool()
    with ThreadPoolExecutor(1) as thread:
        slow = thread.submit(copying.ensure, first)
        Deadline(30).wait("the copy to begin", (copying.storage / NAME).exists)
        inode = (copying.storage / NAME).stat().st_ino
        copying.ensure(second)
        slow.result()
    assert (copying.storage / NAME).stat().st_ino == inode
    assert copying.is_whole()


def test_one_that_was_given_up_is_copied_anew(copying):
    pool = copying.pool()
    pool.createXML(documents.volume(NAME, MIB, "raw"))
    copying.ensure(pool)
    assert copying.is_whole()


def test_one_whose_note_was_never_written_is_copied_anew(copying):
    pool = copying.pool()
    pool.createXML(documents.volume(NAME, MIB, "raw"))
    pool.createXML(documents.volume(f"{NAME}.ok", 2, "raw"))
    copying.ensure(pool)
    assert copying.is_whole()


def test_a_truncated_copy_is_reported_and_copied_anew(copying):
    pool = copying.pool()
    copying.ensure(pool)
    os.truncate(copying.storage / NAME, MIB)
    copying.ensure(pool)
    assert copying.is_whole()
    assert any(f"{MIB} bytes long instead of" in line for line in copying.said)


def test_another_build_of_the_same_image_does_not_replace_a_whole_copy(copying):
    """Builds are not the same to the byte, and machines may stand on the copy."""
    pool = copying.pool()
    copying.ensure(pool)
    copying.file.write_bytes(b"another build")
    copying.ensure(pool)
    assert not copying.is_whole()
    assert copying.copies() == 1


@pytest.fixture
def tiny(copying):
    """The pool is on a file system of 3 MiB."""
    copying.storage.mkdir()
    run_program(["mount", "-t", "tmpfs", "-o", "size=3m", "none", copying.storage])
    pool = copying.pool()
    yield pool
    pool.destroy()
    run_program(["umount", copying.storage])


def test_too_little_space_is_reported_before_anything_is_copied(copying, tiny):
    with pytest.raises(BrokenError, match=r"needs 4 MiB and pool .* has 3 MiB free") as raised:
        copying.ensure(tiny)
    assert "lab gc" in raised.value.hint
    assert not list(copying.storage.iterdir())


def test_room_that_goes_meanwhile_leaves_no_half_a_copy(copying, tiny):
    with (
        pytest.raises(BrokenError, match="No space left") as raised,
        connection.explain_errors("copying", "local"),
    ):
        storage.copy_in(tiny, NAME, copying.file)
    assert "lab gc" in raised.value.hint
    assert not list(copying.storage.iterdir())
