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
import tomllib
from pathlib import Path

from lab.machines.images import bootstrap

PARTS = Path(__file__).with_suffix(".toml")
_OWN = tomllib.loads(PARTS.read_text())
_ROOM = 24 << 20
"""Free space in the root file system, which mke2fs needs; nothing is written to it."""


class MissingError(Exception):
    """Its parts are not available here."""


class Linux:
    """Paths of its parts, in one directory."""

    def __init__(self, home: Path) -> None:
        self.root, self.kernel = home / "root.ext4", home / "kernel"
        self.busybox = home / "busybox"
        self.modules = home / "modules"
        """Unpacked modules, ``order`` (modules loaded at every start) and ``drivers.json``."""
        self.grub = home / "grub"
        """With ``i386-pc`` and ``x86_64-efi``."""


def linux() -> Linux:
    """The Linux, built at the first call on this machine, then cached; raises MissingError."""
    home = _cache() / f"linux-{_key()}"
    if not home.exists():
        _make(home)
    return Linux(home)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "hybridlab-tests"


def _key() -> str:
    said = [
        Path(__file__).read_text(),
        PARTS.read_text(),
        _suite(),
        importlib.metadata.version("pyspnego"),
    ]
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
            wanted = (tar_info for tar_info in tar if not tar_info.ischr() and not tar_info.isblk())
            tar.extractall(tree, members=wanted, filter="fully_trusted")
        _add_package("spnego", tree)
        _compile(tree)
        _kernel(tree, made)
        shutil.copytree(tree / "usr/lib/grub", made / "grub")
        shutil.copy(next(tree.glob("**/bin/busybox")), made / "busybox")
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
        f"--include={','.join(_OWN['packages'])}",
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
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise MissingError(f"{name} is not installed: pip install 'hybridlab[windows]'")
    folder = Path(spec.origin).parent
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
    order = bootstrap.load_order(_OWN["inbox"], *listed)
    drivers = {name: bootstrap.load_order([one], *listed) for name, one in _OWN["drivers"].items()}
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
    for pattern in _OWN["unwanted"]:
        for path in tree.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in ("c", "cd", "dev", "media", "proc", "programs", "run", "sys", "tmp", "var"):
        (tree / name).mkdir(exist_ok=True)
    size = sum(path.lstat().st_size for path in tree.rglob("*") if not path.is_symlink())
    room = f"{(size * 21 // 20 + _ROOM) >> 10}k"
    command = ["mke2fs", "-q", "-t", "ext2", "-d", str(tree), str(target), room]
    subprocess.run(command, check=True, env=_environment())


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
