"""The small Linux inside the stand-in: packages of the host's mirror, prepared once and cached.

It has a root file system with Python, asyncssh, cryptography and pyspnego, a kernel with CD
drivers, and parts of GRUB. It is cached by the hash of its inputs.
"""

from __future__ import annotations

import compileall
import hashlib
import importlib.metadata
import importlib.util
import json
import lzma
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.imaging import bootstrap

PACKAGES = (
    "busybox-static",
    "dosfstools",
    "e2fsprogs",
    "fdisk",
    "grub-efi-amd64-bin",
    "grub-pc-bin",
    "linux-image-amd64",
    "ntfs-3g",
    "python3",
    "python3-asyncssh",
    "python3-cryptography",
)
INBOX = (
    "ahci",
    "sr_mod",
    "sd_mod",
    "udf",
    "isofs",
    "vfat",
    "nls_cp437",
    "nls_ascii",
    "crc32c_generic",
    "ext4",
    "fuse",
    "loop",
    "overlay",
    "virtio_pci",
    "e1000e",
    "button",
    "evdev",
)
"""Modules loaded at every start, for devices that Windows supports out of the box."""
DRIVERS = {"viostor": "virtio_blk", "vioscsi": "virtio_scsi", "NetKVM": "virtio_net"}
"""Drivers on the virtio-win medium to the equivalent Linux modules."""
_UNWANTED = (
    "boot",
    "usr/lib/grub",
    "usr/lib/klibc",
    "usr/lib/modules",
    "lib/modules",
    "lib/firmware",
    "usr/bin/perl*",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/perl*",
    "usr/lib/x86_64-linux-gnu/libperl*",
    "usr/lib/python3.*/ensurepip",
    "usr/lib/python3.*/idlelib",
    "usr/lib/python3.*/lib2to3",
    "usr/lib/python3.*/pydoc_data",
    "usr/lib/python3.*/tkinter",
    "usr/lib/python3.*/test",
    "usr/share/doc",
    "usr/share/grub",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/perl5",
    "usr/bin/grub-*",
    "usr/sbin/grub-*",
    "var",
)
_ROOM = 24 << 20
"""Free space in the root file system, which mke2fs needs; nothing is written to it."""


class MissingError(Exception):
    """Its parts are not available here."""


@dataclass(frozen=True)
class Linux:
    """Paths of its parts."""

    root: Path
    """An ext4 file system."""
    kernel: Path
    modules: Path
    """Unpacked modules, ``order`` (modules loaded at every start) and ``drivers.json``."""
    grub: Path
    """With ``i386-pc`` and ``x86_64-efi``."""
    busybox: Path


def linux() -> Linux:
    """The Linux, built at the first call on this machine, then cached; raises MissingError."""
    home = _cache() / f"linux-{_key()}"
    if not home.exists():
        _make(home)
    return Linux(
        root=home / "root.ext4",
        kernel=home / "kernel",
        modules=home / "modules",
        grub=home / "grub",
        busybox=home / "busybox",
    )


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "hybridlab-tests"


def _key() -> str:
    said = [Path(__file__).read_text(), _suite(), importlib.metadata.version("pyspnego")]
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:16]


def _suite() -> str:
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    if release.get("ID") != "debian":
        raise MissingError("the stand-in is made of Debian's packages, and this is no Debian")
    return release["VERSION_CODENAME"]


def _make(home: Path) -> None:
    for program in ("mmdebstrap", "mke2fs", "depmod", "grub-mkimage", "mformat", "mcopy"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            raise MissingError(f"{program} is not installed")
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".linux-") as scratch:
        work, made = Path(scratch), Path(scratch, "made")
        made.mkdir()
        tree = work / "tree"
        _packages(work / "root.tar")
        tree.mkdir()
        with tarfile.open(work / "root.tar") as tar:
            wanted = (one for one in tar if not one.ischr() and not one.isblk())
            tar.extractall(tree, members=wanted, filter="fully_trusted")
        _add_package("spnego", tree)
        _compile(tree)
        _kernel(tree, made)
        shutil.copytree(tree / "usr/lib/grub", made / "grub")
        shutil.copy(_first(tree, "bin/busybox", "usr/bin/busybox"), made / "busybox")
        _root(tree, made / "root.ext4")
        made.rename(home)


def _packages(packed: Path) -> None:
    """All packages, unpacked but not configured, as a tar."""
    sources = bootstrap.host_sources("debian", _suite())
    if not sources:
        raise MissingError("apt on this machine has no mirror of Debian")
    mode = "root" if os.geteuid() == 0 else "unshare"
    command = [
        "mmdebstrap",
        f"--mode={mode}",
        "--variant=extract",
        "--format=tar",
        f"--include={','.join(PACKAGES)}",
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--aptopt={option}" for option in bootstrap.host_options()),
        _suite(),
        str(packed),
        *(source.line() for source in sources),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MissingError(f"mmdebstrap: {done.stderr[-800:]}")


def _add_package(name: str, tree: Path) -> None:
    """Copy a pure package of this Python."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise MissingError(f"{name} is not installed: pip install 'hybridlab[windows]'")
    folder = Path(found.origin).parent
    native = [path.name for path in folder.rglob("*.so")]
    if native:
        raise MissingError(f"{name} is not pure Python: {native}")
    target = tree / "usr/lib/python3/dist-packages" / name
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns("__pycache__"))


def _compile(tree: Path) -> None:
    """Compile the packages if this Python has the same version."""
    own = tree / f"usr/lib/python{sys.version_info.major}.{sys.version_info.minor}"
    if own.exists():
        for folder in (own, tree / "usr/lib/python3"):
            compileall.compile_dir(folder, quiet=2, stripdir=str(tree), prependdir="/", workers=2)


def _kernel(tree: Path, made: Path) -> None:
    shutil.copy(next(tree.glob("boot/vmlinuz-*")), made / "kernel")
    base = next(tree.glob("lib/modules/*"))
    subprocess.run(["depmod", "-b", str(tree), base.name], check=True, env=_environment())
    listed = (base / "modules.dep").read_text(), (base / "modules.builtin").read_text()
    order = bootstrap.load_order(INBOX, *listed)
    drivers = {name: bootstrap.load_order([one], *listed) for name, one in DRIVERS.items()}
    folder = made / "modules"
    folder.mkdir()
    for path in {path for paths in (order, *drivers.values()) for path in paths}:
        code = (base / path).read_bytes()
        unpacked = lzma.decompress(code) if path.endswith(".xz") else code
        (folder / _name(path)).write_bytes(unpacked)
    (folder / "order").write_text("".join(f"{_name(path)}\n" for path in order))
    named = {name: [_name(path) for path in paths] for name, paths in drivers.items()}
    (folder / "drivers.json").write_text(json.dumps(named))


def _name(path: str) -> str:
    return path.rpartition("/")[2].partition(".ko")[0] + ".ko"


def _root(tree: Path, target: Path) -> None:
    for pattern in _UNWANTED:
        for path in tree.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in ("c", "cd", "dev", "media", "proc", "programs", "run", "sys", "tmp", "var"):
        (tree / name).mkdir(exist_ok=True)
    size = sum(path.lstat().st_size for path in tree.rglob("*") if not path.is_symlink())
    room = f"{(size * 21 // 20 + _ROOM) >> 10}k"
    command = ["mke2fs", "-q", "-t", "ext2", "-d", str(tree), str(target), room]
    subprocess.run(command, check=True, env=_environment())


def _first(tree: Path, *places: str) -> Path:
    return next(tree / place for place in places if (tree / place).exists())


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
