"""An initramfs: a cpio archive (newc), and the kernel modules it loads in their order. Pure.

Format: Documentation/driver-api/early-userspace/buffer-format.rst of the kernel.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_END = "TRAILER!!!"


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """A file or directory of the archive, owned by root."""

    path: str
    """Without a slash before it."""
    mode: int
    """As ``st_mode`` has it, the kind of file included."""
    content: bytes = b""


def folder(path: str) -> ArchiveEntry:
    """A directory that everyone may read."""
    return ArchiveEntry(path, stat.S_IFDIR | 0o755)


def program(path: str, content: bytes) -> ArchiveEntry:
    """A file that everyone may run."""
    return ArchiveEntry(path, stat.S_IFREG | 0o755, content)


def file(path: str, content: bytes) -> ArchiveEntry:
    """A file that everyone may read."""
    return ArchiveEntry(path, stat.S_IFREG | 0o644, content)


def archive(entries: Iterable[ArchiveEntry]) -> bytes:
    """The archive, always the same for the same entries; folders come before what is in them."""
    out = bytearray()
    for number, entry in enumerate((*entries, ArchiveEntry(_END, 0)), start=1):
        name = entry.path.encode() + b"\0"
        fields = (number, entry.mode, 0, 0, 1, 0, len(entry.content), 0, 0, 0, 0, len(name), 0)
        out += b"070701" + b"".join(b"%08x" % field for field in fields) + name
        out += bytes(-len(out) % 4) + entry.content
        out += bytes(-len(out) % 4)
    return bytes(out)


class ModuleMissingError(Exception):
    """The kernel has no module of that name, and it is not built in either."""


def load_order(wanted: Sequence[str], dependencies: str, built_in: str) -> tuple[str, ...]:
    """Paths of modules in the order they are loaded.

    Parameters
    ----------
    wanted
        Names: ``virtio_blk``.
    dependencies
        The text of ``modules.dep``.
    built_in
        The text of ``modules.builtin``: what needs no loading.

    Raises
    ------
    ModuleMissingError
        With the name that is in neither.

    """
    needs = dict(_needs(dependencies))
    paths = {_name(path): path for path in needs}
    inside = {_name(path) for path in built_in.split()}
    order: dict[str, None] = {}
    for name in wanted:
        if name in paths:
            path = paths[name]
            # modules.dep names what is needed by what comes before it
            order |= dict.fromkeys((*reversed(needs[path]), path))
        elif name not in inside:
            raise ModuleMissingError(name)
    return tuple(order)


def _needs(dependencies: str) -> Iterable[tuple[str, Sequence[str]]]:
    for line in dependencies.splitlines():
        path, _, needed = line.partition(":")
        yield path, needed.split()


def _name(path: str) -> str:
    """``virtio_blk`` of ``kernel/drivers/block/virtio_blk.ko.xz``: as modprobe names it."""
    return path.rpartition("/")[2].partition(".ko")[0].replace("-", "_")


def boot_archive(init: bytes, busybox: bytes, modules: Mapping[str, bytes], nodes: bytes) -> bytes:
    """The initramfs of a light image.

    Parameters
    ----------
    init
        The script that the kernel starts.
    busybox
        A static busybox.
    modules
        Unpacked modules by path, in the order they are loaded.
    nodes
        The text of ``modules.devname``.

    """
    names = [f"{_name(path)}.ko" for path in modules]
    return archive(
        (
            *(folder(path) for path in ("bin", "dev", "modules", "proc", "root", "seed", "sys")),
            program("init", init),
            program("bin/busybox", busybox),
            *(
                file(f"modules/{name}", code)
                for name, code in zip(names, modules.values(), strict=True)
            ),
            file("modules/order", "".join(f"{name}\n" for name in names).encode()),
            file("modules/nodes", nodes),
        )
    )
