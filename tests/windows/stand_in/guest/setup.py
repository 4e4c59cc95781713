"""Setup: pass windowsPE of the answer file, from the medium to the first restart."""

from __future__ import annotations

import base64
import binascii
import os
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree as ET

from stand_in.guest import habits, machine
from stand_in.guest.machine import StopError, record, show

MEDIUM = Path("/cd/stand-in")
WIM = Path("/cd/sources/install.wim")
_WIM_XML = 0x48
RELEASES = {"17763": "2k19", "20348": "2k22", "26100": "2k25"}
"""Build of a release to its folder on virtio-win."""
NONE = "No images are available"
"""Setup's message for a name that is not in the WIM, and for a key on an evaluation medium."""
KINDS = {
    "uefi": {
        "EFI": "C12A7328-F81F-11D2-BA4B-00A0C93EC93B",
        "MSR": "E3C9E316-0B5C-4DB8-817D-F92DF00215AE",
        "Primary": "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7",
    },
    "bios": {"Primary": "7"},
}
"""Firmware to kinds of partitions with their GPT or MBR types."""
BEFORE_FIRST = 1 << 20
BOOT_CODE = 440
"""Bytes of the loader in the first sector, before signature and partition table."""
CHUNK = 4 << 20
NTFS_BYTES = 8 << 30
"""Size of the NTFS volume in Windows' partition; ``init.sh`` also has this number."""
OWN = Path("/dev/loop1")
"""The rest of Windows' partition: the stand-in's own files, for there is no NTFS in its kernel."""
LAID_DOWN = 320 << 20
"""Bytes of filler files, which make the disk grow like Windows' files."""
_NAMESPACE = {"": "urn:schemas-microsoft-com:unattend"}


class Answer:
    """An answer file; missing settings are empty. What Windows knows is tested elsewhere."""

    def __init__(self, text: bytes) -> None:
        try:
            root = ET.fromstring(text)
        except ET.ParseError as error:
            raise StopError(f"the answer file is no XML: {error}") from error
        self._components = {
            f"{each.get('pass')}/{part.get('name', '').removeprefix('Microsoft-Windows-')}": part
            for each in root
            for part in each
        }

    def all(self, component: str, path: str) -> list[dict[str, str]]:
        """Children's texts of the elements of ``windowsPE/Setup``, by Order if they have one."""
        found = self._components.get(component)
        elements = [] if found is None else found.findall(path, _NAMESPACE)
        texts = [{one.tag.rpartition("}")[2]: one.text or "" for one in each} for each in elements]
        return sorted(texts, key=lambda one: int(one.get("Order", 0)))

    def text(self, component: str, path: str) -> str:
        folder, _, name = path.rpartition("/")
        return next((one.get(name, "") for one in self.all(component, folder or ".")), "")

    def commands(self, component: str) -> list[str]:
        """Of ``windowsPE/Setup`` or ``specialize/Deployment``, in order."""
        found = self.all(component, "RunSynchronous/RunSynchronousCommand")
        return [one["Path"] for one in found]

    def password(self, path: str) -> str:
        """Plain, or base64 of UTF-16 of the password and its element's name."""
        value = self.text("oobeSystem/Shell-Setup", f"{path}/Value")
        if self.text("oobeSystem/Shell-Setup", f"{path}/PlainText") != "false":
            return value
        kind = path.rpartition("/")[2]
        try:
            plain = base64.b64decode(value, validate=True).decode("utf-16-le")
        except (binascii.Error, UnicodeDecodeError) as error:
            raise StopError(f"{kind} is not encoded as Setup reads it: {error}") from error
        if not plain.endswith(kind):
            raise StopError(f"{kind} is encoded without the ending {kind!r}")
        return plain.removesuffix(kind)


def run_commands(place: str, lines: Sequence[str]) -> None:
    """Record commands of a pass, which are not run; an echo is written to COM1 if there is one."""
    for number, line in enumerate(lines, 1):
        said = habits.run_command(place, line).said
        record("command", place=place, number=number, line=line, run=bool(said))
        if said:
            machine.say(said)


def run() -> None:
    """Run the whole pass; the machine must be restarted afterwards."""
    firmware = "uefi" if Path("/sys/firmware/efi").exists() else "bios"
    drives = machine.mounted()
    roots = machine.in_roots(drives, habits.REMOVABLE[0])
    if not roots:
        raise StopError("no drive has an answer file: Setup shows its first page and waits")
    record("answer-file", path=str(roots[0]))
    answer = Answer(roots[0].read_bytes())
    run_commands("windowsPE", answer.commands("windowsPE/Setup"))
    image = _choose(answer)
    name, build = image.findtext("NAME"), image.findtext("WINDOWS/VERSION/BUILD", "")
    record("image", name=name, build=build)
    drivers = _install_drivers(drives, answer, RELEASES.get(build, ""))
    disk = _find_disk()
    show(f"Installing {name}")
    _partition(disk, answer, firmware)
    machine.CACHED.parent.mkdir(parents=True)
    machine.CACHED.write_bytes(roots[0].read_bytes())
    machine.State("specialize", drivers).with_()
    record("disk", firmware=firmware, name=disk)
    _lay_down()
    _write_loader(disk, firmware)
    machine.busybox("sync")


def _choose(answer: Answer) -> ET.Element:
    """The image that an answer file selects; StopError with Setup's message if there is none."""
    with WIM.open("rb") as file:
        header = file.read(208)
        if header[:8] != b"MSWIM\0\0\0":
            raise StopError(f"{WIM.name} is no WIM")
        size, offset = struct.unpack_from("<QQ", header, _WIM_XML)
        file.seek(offset)
        images = ET.fromstring(file.read(size & ((1 << 56) - 1)).decode("utf-16"))
    meta = "ImageInstall/OSImage/InstallFrom/MetaData"
    kind, value = (answer.text("windowsPE/Setup", f"{meta}/{one}") for one in ("Key", "Value"))
    if kind != "/IMAGE/NAME":
        raise StopError(f"unknown element MetaData/Key {kind!r}")
    names = {one.findtext("NAME"): one for one in images.iter("IMAGE")}
    if value not in names:
        raise StopError(f"{NONE}: the answer file says {value!r}, the medium has {[*names]}")
    image = names[value]
    evaluation = image.findtext("WINDOWS/EDITIONID", "").endswith("Eval")
    key = answer.text("windowsPE/Setup", "UserData/ProductKey/Key")
    if evaluation and key:
        raise StopError(f"{NONE}: a product key, and this is an evaluation medium")
    if not evaluation and not key:
        raise StopError("Setup asks for a product key: a volume medium, and the file has none")
    region = "windowsPE/International-Core-WinPE"
    language = answer.text(region, "SetupUILanguage/UILanguage")
    if language not in [one.text for one in image.iterfind("WINDOWS/LANGUAGES/LANGUAGE")]:
        raise StopError(f"Setup asks for a language: {language!r} is not of the medium's")
    return image


def _install_drivers(drives: machine.Drives, answer: Answer, release: str) -> tuple[str, ...]:
    """Install a release's drivers in the folders and below, and start their equivalents."""
    component, path = "windowsPE/PnpCustomizationsWinPE", "DriverPaths/PathAndCredentials"
    asked = [one["Path"] for one in answer.all(component, path)]
    names = {
        file.stem.lower(): None
        for folder in (machine.resolve(drives, one) for one in asked)
        for file in sorted(folder.rglob("*") if folder else ())
        if re.fullmatch(r"(?i).+\.inf", file.name)
        and {release, "amd64"} <= {part.lower() for part in file.parts}
    }
    record("drivers", asked=asked, found=[*names])
    machine.start_drivers([*names])
    return tuple(names)


def _find_disk() -> str:
    for _ in range(100):
        blocks = Path("/sys/block")
        if names := sorted(path.name for path in (*blocks.glob("vd*"), *blocks.glob("sd*"))):
            return names[0]
        time.sleep(0.1)
    raise StopError("no disk: Setup has no driver for it, and asks for one")


def _partition(name: str, answer: Answer, firmware: str) -> None:
    """Partition and format the disk; mount Windows' at ``/c``, EFI's at ``/media/efi``."""
    disk = "DiskConfiguration/Disk"
    target = answer.text("windowsPE/Setup", "ImageInstall/OSImage/InstallTo/PartitionID")
    changes = answer.all("windowsPE/Setup", f"{disk}/ModifyPartitions/ModifyPartition")
    of = {change["PartitionID"]: change for change in changes}
    made = answer.all("windowsPE/Setup", f"{disk}/CreatePartitions/CreatePartition")
    parts = {str(number): one | of.get(str(number), {}) for number, one in enumerate(made, 1)}
    lines = ["label: gpt", "first-lba: 2048"] if firmware == "uefi" else ["label: dos"]
    for part in parts.values():
        size = f"size={part['Size']}MiB, " if part.get("Size") else ""
        active = ", bootable" if part.get("Active") == "true" else ""
        lines.append(f"{size}type={KINDS[firmware][part['Type']]}{active}")
    _run(["sfdisk", "--quiet", "--wipe", "always", f"/dev/{name}"], "\n".join(lines) + "\n")
    for number, part in parts.items():
        device = f"/dev/{name}{number}"
        for _ in range(100):
            if Path(device).exists():
                break
            time.sleep(0.05)
        label = part.get("Label", "")
        if part.get("Format") == "FAT32":
            _run(["mkfs.vfat", "-F", "32", "-n", label.upper()[:11] or "SYSTEM", device])
        elif part.get("Format") == "NTFS":
            sectors = [str(NTFS_BYTES // 512)] if number == target else []
            _run(["mkntfs", "-Q", "-F", "-q", "-L", label[:16], device, *sectors])
        if part["Type"] == "EFI":
            _mount(device, "/media/efi", "vfat")
        if number == target:
            _make_own(device)


def _make_own(device: str) -> None:
    """The stand-in's own file system, behind the NTFS volume."""
    _run(["/bin/busybox", "losetup", "-o", str(NTFS_BYTES), str(OWN), device])
    features = "^metadata_csum,^orphan_file"
    lazy = "lazy_itable_init=1,lazy_journal_init=1,nodiscard"
    small = ["-N", "65536", "-J", "size=16"]
    _run(["mke2fs", "-q", "-F", "-t", "ext4", "-O", features, "-E", lazy, *small, str(OWN)])
    _mount(str(OWN), "/c", "ext4")


@contextmanager
def ntfs() -> Iterator[Path]:
    """Windows' drive C, mounted with ntfs-3g."""
    device = Path(f"/sys/block/{OWN.name}/loop/backing_file").read_text().strip()
    place = Path("/tmp/ntfs")
    place.mkdir(exist_ok=True)
    _run(["ntfs-3g", device, str(place)])
    try:
        yield place
    finally:
        _run(["/bin/busybox", "umount", str(place)])


def keep_panther() -> None:
    """Copy this system's folder Panther to drive C."""
    with ntfs() as drive:
        target = drive / "Windows/Panther"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for path in machine.CACHED.parent.iterdir():
            (target / path.name).write_bytes(path.read_bytes())


def _lay_down() -> None:
    """Copy the system and filler bytes, so that the disk grows for a while as under Setup."""
    share = Path("/c/Windows/stand-in")
    share.mkdir(parents=True)
    _copy(MEDIUM / "root.ext4", share / "root.ext4")
    with ntfs() as drive:  # read by the loader
        folder = drive / "Windows/stand-in"
        folder.mkdir(parents=True)
        for one in ("kernel", "initrd"):
            _copy(MEDIUM / one, folder / one)
    keep_panther()
    with (share / "laid-down").open("wb", buffering=0) as out:
        for _ in range(LAID_DOWN // CHUNK):
            out.write(os.urandom(1 << 12) * (CHUNK >> 12))
            os.fdatasync(out.fileno())


def _copy(what: Path, target: Path) -> None:
    with what.open("rb") as from_, target.open("wb", buffering=0) as out:
        while piece := from_.read(CHUNK):
            out.write(piece)
            os.fdatasync(out.fileno())


def _write_loader(name: str, firmware: str) -> None:
    if firmware == "uefi":
        folder = Path("/media/efi/EFI/BOOT")
        folder.mkdir(parents=True)
        _copy(MEDIUM / "bootx64.efi", folder / "BOOTX64.EFI")
        _run(["/bin/busybox", "umount", "/media/efi"])
        return
    code = (MEDIUM / "disk.img").read_bytes()
    if len(code) > BEFORE_FIRST:
        raise StopError("the loader does not fit before the first partition")
    with Path(f"/dev/{name}").open("r+b", buffering=0) as disk:
        disk.write(code[:BOOT_CODE])
        disk.seek(512)
        disk.write(code[512:])


def _mount(device: str, place: str, kind: str) -> None:
    Path(place).mkdir(parents=True, exist_ok=True)
    _run(["/bin/busybox", "mount", "-t", kind, device, place])


def _run(command: list[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StopError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
