"""Images made from packages: mmdebstrap, a file system without partitions, and an initramfs.

This needs no loop device, mount or root: mmdebstrap packs a tar, mke2fs fills the file system from
the unpacked tree, and debugfs sets the owners that tar could not.

The initramfs is a cpio archive (newc; buffer-format.rst of the kernel's documentation) with the
kernel modules that it loads.
"""

from __future__ import annotations

import io
import lzma
import os
import platform
import shutil
import stat
import tarfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError
from lab.machines.images.golden import DISK, INITRD, KERNEL, Built
from lab.machines.images.job import BuildJob
from lab.machines.images.recipe import Bootstrap, Recipe
from lab.shells import programs

_END = "TRAILER!!!"


def archive(
    files: Mapping[str, bytes], folders: Iterable[str] = (), executable: Collection[str] = ()
) -> bytes:
    """A deterministic archive of root's folders and files, which everyone may read.

    ``files``: content by relative path. ``executable``: those of them that everyone may run.
    """
    entries = [(path, stat.S_IFDIR | 0o755, b"") for path in folders]
    for path, content in files.items():
        entries.append((path, stat.S_IFREG | (0o755 if path in executable else 0o644), content))
    out = bytearray()
    for number, (path, mode, content) in enumerate((*entries, (_END, 0, b"")), start=1):
        name = path.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
        out += b"070701" + b"".join(b"%08x" % field for field in fields) + name
        out += bytes(-len(out) % 4) + content
        out += bytes(-len(out) % 4)
    return bytes(out)


def load_order(wanted: Sequence[str], dependencies: str, built_in: str) -> tuple[str, ...]:
    """Paths of modules in load order.

    ``wanted``: names: ``virtio_blk``. ``dependencies``: the text of ``modules.dep``. ``built_in``:
    the text of ``modules.builtin``: modules that need no loading.

    Raises LookupError with the name that is in neither.
    """
    lines = (line.partition(":") for line in dependencies.splitlines())
    needs = {path: needed.split() for path, _, needed in lines}
    paths = {_name(path): path for path in needs}
    inside = {_name(path) for path in built_in.split()}
    order: dict[str, None] = {}
    for name in wanted:
        if name in paths:
            path = paths[name]
            # modules.dep lists a module's dependencies after it
            order |= dict.fromkeys((*reversed(needs[path]), path))
        elif name not in inside:
            raise LookupError(name)
    return tuple(order)


def _name(path: str) -> str:
    """Module name as for modprobe: ``virtio_blk`` for ``kernel/drivers/block/virtio_blk.ko.xz``."""
    return path.rpartition("/")[2].partition(".ko")[0].replace("-", "_")


def boot_archive(init: bytes, busybox: bytes, modules: Mapping[str, bytes], nodes: bytes) -> bytes:
    """The initramfs of a light image.

    ``init``: the script that the kernel starts. ``busybox``: a static busybox. ``modules``:
    unpacked modules by path, in load order. ``nodes``: the text of ``modules.devname``.
    """
    own = {f"{_name(path)}.ko": code for path, code in modules.items()}
    files = {
        "init": init,
        "bin/busybox": busybox,
        **{f"modules/{name}": code for name, code in own.items()},
        "modules/order": "".join(f"{name}\n" for name in own).encode(),
        "modules/nodes": nodes,
    }
    folders = ("bin", "dev", "modules", "proc", "root", "seed", "sys")
    return archive(files, folders, executable=("init", "bin/busybox"))


FORMAT = "$(ORIGIN)|$(CODENAME)|$(RELEASE)|$(REPO_URI)|$(COMPONENT)|$(CREATED_BY)"
"""Format for ``apt-get indextargets``; the first two fields are empty before ``apt-get update``."""
_POCKETS = ("", "-updates", "-security")
_FIELDS = FORMAT.count("|") + 1


@dataclass(frozen=True, slots=True)
class AptSource:
    """One line of a sources.list, for component ``main``."""

    uri: str
    suite: str

    def line(self) -> str:
        """``deb URI SUITE main``."""
        return f"deb {self.uri} {self.suite} main"


def mirror_sources(
    targets: str, distribution: str, host: tuple[str, str], suite: str
) -> list[AptSource]:
    """Sources of a release's packages on the mirror that the host itself uses.

    ``targets``: output of ``apt-get indextargets --format FORMAT``. ``distribution``: the
    distribution that is wanted, ``"debian"``. ``host``: the host's distribution and release: ``ID``
    and ``VERSION_CODENAME`` of os-release. ``suite``: the release that is wanted; it may differ
    from the host's on the same mirror.

    Empty if the host's mirror does not have the distribution.
    """
    own, release = host
    if own != distribution or not release:
        return []
    suites = {release + pocket: suite + pocket for pocket in _POCKETS}
    by_suite: dict[str, dict[AptSource, None]] = {name: {} for name in suites.values()}
    for line in targets.splitlines():
        fields = line.split("|")
        if len(fields) != _FIELDS or fields[-2:] != ["main", "Packages"]:
            continue
        origin, codename, written, uri, *_ = fields
        wanted = suites.get(codename or written)
        if wanted and origin.lower() in {"", distribution}:
            by_suite[wanted][AptSource(uri.rstrip("/"), wanted)] = None
    return [source for of_suite in by_suite.values() for source in of_suite]


TOOLS = ("mmdebstrap", "mke2fs", "qemu-img", "tar", "setpriv")
LABEL = "lab-root"
"""Label of the root file system, by which the initramfs finds it."""
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_MINUTES = 40
"""Seconds; allows for a distant mirror and a slow disk (45 s with a near mirror)."""
_ROOM = 3 << 30
"""Bytes for tar, tree, file system and qcow2 of 350 MB each, and mmdebstrap's own tree."""
_CUSTOMIZE = "customize"
_INIT = "init"
_TREE = "tree/"
ROOT = "root"
"""Directory of the root file system that system containers share."""
_OF_COMPUTERS = (
    "systemd-udevd.service",
    "systemd-udev-trigger.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-networkd.service",
    "systemd-timesyncd.service",
    "lab-console.service",
    "qemu-guest-agent.service",
)
"""Units that handle devices, the clock or network interfaces: masked in a container, where the lab
names, configures and keeps the interfaces.
"""
_UNWANTED = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*", "/usr/share/info/*")


def build_root(job: BuildJob) -> Built:
    """Fill ``root`` in the scratch directory with the file system that system containers boot.

    It has the content of a disk without kernel and modules. Needs root to set file owners.

    Raises PreflightError when a program, the mirror or disk space is missing, or the processor does
    not fit. Raises BrokenError when a program fails, with its last output lines.
    """
    parts = _check_recipe(job, "mmdebstrap", "tar")
    packed, tree = job.scratch / "root.tar", job.scratch / ROOT
    _bootstrap(job, parts, packed)
    job.tell("unpacking the root file system")
    tree.mkdir(mode=0o755)
    _unpack(job, packed, tree)
    packed.unlink()
    for path in (tree / "boot", tree / "usr/lib/modules"):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
    for unit in _OF_COMPUTERS:
        masked = tree / "etc/systemd/system" / unit
        masked.unlink(missing_ok=True)
        masked.symlink_to("/dev/null")
    os.sync()  # a power cut must not leave empty files below the name of whole ones
    return Built(packages=_packages(tree))


_KERNELS = "linux-"
"""How the names of packages with a kernel begin: linux-image-cloud-amd64, linux-virtual."""


def build(job: BuildJob) -> Built:
    """Fill the scratch directory with disk, kernel and initramfs.

    Raises PreflightError when a program, the mirror or disk space is missing, or the processor does
    not fit. Raises BrokenError when a program fails, with its last output lines.
    """
    parts = _check_recipe(job, *TOOLS, *(() if _is_root() else ("newuidmap", "debugfs")))
    if not any(package.startswith(_KERNELS) for package in parts.packages):
        raise PreflightError(
            job.action,
            "its packages include no kernel: it is for system containers, not for a disk",
            "'lab up --provider nspawn' makes its root file system for the first lab that needs it",
        )
    work = job.scratch / "work"
    work.mkdir()
    packed, tree = work / "root.tar", work / "root"
    _bootstrap(job, parts, packed)
    job.tell("unpacking the root file system")
    tree.mkdir(mode=0o755)
    _unpack(job, packed, tree)
    job.tell("extracting kernel and modules")
    _kernel(job, tree)
    _initrd(job, parts, tree)
    job.tell("making the disk")
    _disk(job, packed, tree, work / "disk.raw")
    packages = _packages(tree)
    shutil.rmtree(work)
    return Built(arguments=parts.arguments, packages=packages)


def _check_recipe(job: BuildJob, *names: str) -> Bootstrap:
    """The recipe's section, after checking programs, processor and disk space."""
    recipe, parts = job.recipe, job.recipe.bootstrap
    assert parts is not None, "chosen by the recipe's kind"
    programs.need(job.action, *names)
    if platform.machine() != recipe.architecture:
        raise PreflightError(
            job.action,
            f"it is for {recipe.architecture}, but this machine is {platform.machine()}",
            f"build it on a machine that is {recipe.architecture}",
        )
    job.room(_ROOM, "the build")
    return parts


def sources(recipe: Recipe, url: str | None) -> list[AptSource]:
    """Package sources: the inventory's mirror, or the one that apt uses on this machine."""
    parts = recipe.bootstrap
    assert parts is not None, "chosen by the recipe's kind"
    if url:
        return [AptSource(url, parts.suite)]
    return host_sources(parts.distribution, parts.suite)


def host_sources(distribution: str, suite: str) -> list[AptSource]:
    """Sources of a release on the mirror that this machine's apt uses; empty if it is not there."""
    host = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    targets = programs.read_output(["apt-get", "indextargets", "--format", FORMAT])
    own = host.get("ID", ""), host.get("VERSION_CODENAME", "")
    return mirror_sources(targets, distribution, own, suite)


def _bootstrap(job: BuildJob, parts: Bootstrap, packed: Path) -> None:
    source = job.inputs.inventory.images.get(job.recipe.name)
    apt_sources = sources(job.recipe, source.url if source else None)
    if not apt_sources:
        raise PreflightError(
            job.action,
            f"apt on this machine has no mirror for '{parts.distribution}'",
            f'name one in the inventory: [images.{job.recipe.name}] url = "http://MIRROR/..."',
        )
    overlay = packed.with_name("overlay.tar")
    overlay.write_bytes(tree_archive(job.recipe.files))
    command = _command(job, parts, packed, overlay)
    job.tell(f"bootstrapping '{parts.suite}' with mmdebstrap")
    programs.run(
        job.action,
        [*command, *(apt_source.line() for apt_source in apt_sources)],
        Deadline(_MINUTES * 60),
        on_line=lambda line: _heard(job, line),
        environment={**_proxies(job), **({"TMPDIR": str(packed.parent)} if _is_root() else {})},
    )


def _command(job: BuildJob, parts: Bootstrap, packed: Path, overlay: Path) -> list[str]:
    customize = job.recipe.files.get(_CUSTOMIZE, b"").decode()
    return [
        "mmdebstrap",
        f"--mode={'root' if _is_root() else 'unshare'}",
        "--variant=apt",
        "--format=tar",
        f"--include={','.join(parts.packages)}",
        '--aptopt=APT::Install-Recommends "false"',
        *(f"--aptopt={option}" for option in host_options()),
        *(f"--dpkgopt=path-exclude={path}" for path in _UNWANTED),
        *((f"--keyring={_KEYRING}",) if _KEYRING.exists() else ()),
        f"--customize-hook=tar-in {overlay} /",
        f"--customize-hook=chroot \"$1\" sh -s <<'HYBRIDLAB'\n{customize}\nHYBRIDLAB",
        parts.suite,
        str(packed),
    ]


def _heard(job: BuildJob, line: str) -> None:
    """Report the progress that mmdebstrap prints."""
    kind, _, text = line.partition(": ")
    if kind == "I" and text.endswith("..."):
        job.tell(text.removesuffix("..."))


def _proxies(job: BuildJob) -> dict[str, str]:
    """Proxies as environment variables, in the spelling that apt reads."""
    own = job.inputs.inventory.proxies.by_name()
    return {f"{name.removesuffix('_proxy')}_proxy": value for name, value in own.items()}


def host_options() -> list[str]:
    """Options of this machine's apt for its mirror: proxies, and ignored validity dates."""
    told = programs.read_output(
        ["apt-config", "dump", "--no-empty", "--format", "%f %v%n", "Acquire"]
    )
    wanted = ("acquire::http::", "acquire::https::", "acquire::check-")
    pairs = (line.partition(" ") for line in told.splitlines())
    return [f'{name} "{value}"' for name, _, value in pairs if name.lower().startswith(wanted)]


def tree_archive(templates: Mapping[str, bytes]) -> bytes:
    """The files of ``tree/`` as a tar owned by root; files beginning with ``#!`` are executable."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in sorted(templates.items()):
            if name.startswith(_TREE):
                member = tarfile.TarInfo(name.removeprefix(_TREE))
                member.size = len(content)
                member.mode = 0o755 if content.startswith(b"#!") else 0o644
                tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _unpack(job: BuildJob, packed: Path, tree: Path) -> None:
    owner = ("--same-owner",) if _is_root() else ("--no-same-owner",)
    command = ["tar", "--extract", f"--directory={tree}", "--same-permissions", *owner]
    without = ("--exclude=./dev/*", "--delay-directory-restore", "--numeric-owner")
    programs.run(
        job.action,
        [*command, *without],
        Deadline(600),
        redirection=programs.Redirection(stdin=packed),
    )


def _kernel(job: BuildJob, tree: Path) -> None:
    images = sorted((tree / "boot").glob("vmlinuz-*"))
    if not images:
        raise BrokenError(
            job.action, "its packages include no kernel", "add a kernel to 'packages'"
        )
    shutil.copyfile(images[-1], job.scratch / KERNEL)


def _initrd(job: BuildJob, parts: Bootstrap, tree: Path) -> None:
    base = max(path.parent for path in tree.glob("usr/lib/modules/*/modules.dep"))
    try:
        order = load_order(
            parts.modules,
            (base / "modules.dep").read_text(encoding="ascii"),
            (base / "modules.builtin").read_text(encoding="ascii"),
        )
    except LookupError as error:
        raise BrokenError(
            job.action, f"the kernel has no module '{error}'", "take it out of 'modules'"
        ) from error
    busybox = next(
        (p for p in (tree / "bin/busybox", tree / "usr/bin/busybox") if p.exists()), None
    )
    if busybox is None:
        raise BrokenError(job.action, "it has no busybox", "add 'busybox-static' to 'packages'")
    made = boot_archive(
        job.recipe.files[_INIT],
        busybox.read_bytes(),
        {path: _module((base / path).read_bytes()) for path in order},
        (base / "modules.devname").read_bytes(),
    )
    (job.scratch / INITRD).write_bytes(made)


def _module(code: bytes) -> bytes:
    """A module uncompressed, as the kernel loads it."""
    if code.startswith(b"\xfd7zXZ"):
        return lzma.decompress(code)
    return zlib.decompress(code, wbits=31) if code.startswith(b"\x1f\x8b") else code


def _disk(job: BuildJob, packed: Path, tree: Path, raw: Path) -> None:
    size = f"{job.recipe.disk_gib}G"
    extended = "lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0"
    make = ["mke2fs", "-q", "-t", "ext4", "-L", LABEL, "-E", extended, "-d", str(tree)]
    programs.run(job.action, [*make, str(raw), size], Deadline(900))
    if not _is_root():
        script = raw.with_name("owners")
        with tarfile.open(packed) as tar:
            script.write_text("".join(owners(tar)), encoding="utf-8")
        command = ["debugfs", "-w", "-f", str(script), str(raw)]
        programs.run(job.action, command, Deadline(900))
    target = str(job.scratch / DISK)
    command = ["qemu-img", "convert", "-O", "qcow2", "-f", "raw", str(raw), target]
    programs.run(job.action, command, Deadline(900))


def owners(tar: tarfile.TarFile) -> Iterator[str]:
    """Commands for debugfs that give every file its owner from a tar."""
    for member in tar:
        path = member.name.removeprefix(".").removesuffix("/") or "/"
        if path.startswith("/dev/") or member.islnk():
            continue
        quoted = path.replace('"', '""')
        yield f'set_inode_field "{quoted}" uid {member.uid}\n'
        yield f'set_inode_field "{quoted}" gid {member.gid}\n'


def _packages(tree: Path) -> tuple[str, ...]:
    """``name version`` of every package, from dpkg's status file."""
    packages = []
    status = tree / "var/lib/dpkg/status"
    for record in status.read_text(encoding="utf-8", errors="replace").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in record.splitlines() if ": " in line)
        if "Package" in fields:
            packages.append(f"{fields['Package']} {fields.get('Version', '')}")
    return tuple(sorted(packages))


def _is_root() -> bool:
    return os.geteuid() == 0
