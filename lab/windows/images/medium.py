"""Microsoft's installation media and related media: reads, checks and makes them boot unattended.

``wimlib-imagex`` reads the images, pycdlib the El Torito catalogue, whose UEFI entries follow the
UEFI specification, 13.3.2.1. Media are checked on the host before anything boots, because Setup
itself says no more than "No images are available", or, minutes later, that there is no disk.

The UEFI loader of Microsoft's media waits for a key press and otherwise boots the next device.
``efisys_noprompt.bin`` on the same medium does not wait. :func:`overlay` puts it in the other's
place in a qcow2 overlay; the ISO itself stays unchanged.
"""

from __future__ import annotations

import re
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import Any, Literal
from xml.etree import ElementTree as ET

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError, os_words
from lab._log import quantity
from lab.machines.images.medium import SECTOR, Extent, Medium, opened
from lab.machines.images.terms import RELEASES, Release, WantedImage
from lab.shells import programs
from lab.state.failure import is_of_content

Channel = Literal["evaluation", "volume", "retail", "unknown"]
BootKind = Literal["bios", "uefi"]
_CONTAINERS = ("/sources/install.wim", "/sources/install.esd", "/sources/install.swm")
_NO_PROMPT = "/efi/microsoft/boot/efisys_noprompt.bin"
_EDITION_FILE = "/sources/ei.cfg"
_EDITION_FILE_MOST = 4096
_CHANNELS: dict[str, Channel] = {"eval": "evaluation", "volume": "volume", "retail": "retail"}
_EVALUATION = re.compile(r"Eval$|\bEvaluation\b")
_HINT = "give the ISO of Windows Server that Microsoft publishes"
_AGAIN = "fetch the medium again, and compare its SHA-256 with the one Microsoft gives"
_ARCHITECTURES = {"0": "i686", "5": "arm", "9": "x86_64", "12": "aarch64"}
"""PROCESSOR_ARCHITECTURE_... of Windows to the names of Python and libvirt."""
_HEAD, _TAIL = 4096, 32 << 20
"""Bytes at a WIM's beginning and end that describe it: its header, and the table of its files (some
6 MB on Microsoft's media) with its XML.
"""
_SECONDS = 60.0
_NAMED = """
scratch=$(mktemp -d "$0/hybridlab-XXXXXXXXXX") || exit
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' TERM
cp --sparse=always "$1" "$scratch/wim" || exit
wimlib-imagex info "$scratch/wim" --header "--extract-xml=$2"
"""
"""The shell gets SIGTERM when this process ends, and exits once wimlib-imagex has finished."""
_VIRTUAL = 512
"""Bytes of a sector as counted in the El Torito catalogue."""
_BOOTABLE = 0x88
_NO_EMULATION = 0
_PC, _UEFI = 0x00, 0xEF
_WHOLE = 2
"""To firmware, fewer sectors mean everything up to the end of the medium (UEFI 13.3.2.1)."""
_SHOWN = 8
"""Number of names from an unknown medium's root in a message."""
_LINUX = (
    *("casper", "isolinux", "syslinux", "pool", "dists", "images/pxeboot", ".treeinfo"),
    *(".discinfo", "live", "liveos", "install.amd", "arch"),
)
DRIVERS = (
    *("viostor", "vioscsi", "NetKVM", "Balloon", "vioserial", "viorng", "vioinput"),
    *("pvpanic", "qemufwcfg"),
)
"""Folders of the virtio-win medium whose drivers Setup loads: devices that a lab's machines have or
may have. Not qxldod (there is no QXL) and viofs (needs WinFsp).
"""
DRIVERS_FOLDER = "drivers"
"""Folder on the answer medium."""
_DRIVERS = ("netkvm", "viostor", "vioscsi")
_ANSWERS = ("autounattend.xml", "unattend.xml")


@dataclass(frozen=True, slots=True)
class WindowsImage:
    """One image within ``sources/install.wim``."""

    index: int
    """Counted from 1."""
    name: str
    """NAME, ``Windows Server 2022 SERVERSTANDARDCORE``; used in answer files."""
    display_name: str
    """DISPLAYNAME, ``Windows Server 2022 Standard Evaluation``; shown by DISM."""
    edition: str
    """EDITIONID, ``ServerStandard``; ``ServerStandardEval`` on evaluation media."""
    installation: str
    """INSTALLATIONTYPE: ``Server Core``, ``Server``, ``Client``."""
    build: int
    revision: int
    """SPBUILD, the fourth part of the version."""
    languages: tuple[str, ...]
    default_language: str
    architecture: str
    """In the naming of Python and libvirt: ``x86_64``, ``i686``, ``aarch64``."""
    bytes: int
    """TOTALBYTES, the size of its files when installed."""


@dataclass(frozen=True, slots=True)
class BootEntry:
    """An El Torito entry: an image that firmware can boot."""

    kind: BootKind
    extent: Extent


@dataclass(frozen=True, slots=True)
class WindowsMedium:
    """An installation medium."""

    path: Path
    label: str
    bytes: int
    container: str
    """Path of the images within the medium: ``/sources/install.wim``, ``.esd`` or ``.swm``."""
    images: tuple[WindowsImage, ...]
    channel: Channel
    boots: tuple[BootEntry, ...]
    no_prompt: Extent | None
    """Location of ``efi/microsoft/boot/efisys_noprompt.bin``; None if there is none."""


def read(path: Path) -> WindowsMedium:
    """Read an installation medium.

    Raises PreflightError when it cannot be read, is truncated, damaged or something else, or when
    wimlib-imagex is not installed.
    """
    with opened(path, f"reading the medium '{path}'", _HINT) as medium:
        container = next(filter(None, map(medium.find, _CONTAINERS)), None)
        if container is None:
            raise PreflightError(medium.action, kind_of(medium.label, _names(medium)), _HINT)
        images = _images(medium, container)
        edition_file = medium.find(_EDITION_FILE)
        told = b""
        if edition_file:
            where = medium.extent(edition_file)
            told = medium.piece(Extent(where.offset, min(where.length, _EDITION_FILE_MOST)))
        no_prompt = medium.find(_NO_PROMPT)
        return WindowsMedium(
            path=path,
            label=medium.label,
            bytes=medium.size,
            container=container,
            images=images,
            channel=channel(told.decode("utf-8-sig", "replace"), images),
            boots=tuple(_boot_entries(medium)),
            no_prompt=medium.extent(no_prompt) if no_prompt else None,
        )


def channel(edition_file: str, images: Sequence[WindowsImage]) -> Channel:
    """How copies of the medium are licensed.

    An evaluation edition always counts as evaluation: it takes no product key.

    ``edition_file``: content of ``sources/ei.cfg``; empty if there is none.
    """
    if any(_EVALUATION.search(f"{image.display_name} {image.edition}") for image in images):
        return "evaluation"
    lines = [line.strip().lower() for line in edition_file.splitlines()]
    told = [line for line in lines if line]
    if "[channel]" not in told[:-1]:
        return "unknown"
    return _CHANNELS.get(told[told.index("[channel]") + 1], "unknown")


def kind_of(label: str, names: Sequence[str]) -> str:
    """What a medium without Windows images is.

    ``label``: its volume identifier. ``names``: names in its root folder and in ``images`` and
    ``sources``.
    """
    lower_names = {name.lower() for name in names}
    called = f"the medium '{label}'"
    if any(name in lower_names for name in _LINUX):
        return f"{called} is a Linux medium"
    if any(name in lower_names for name in _DRIVERS):
        return f"{called} has drivers (virtio-win): it goes beside the Windows medium"
    if any(name in lower_names for name in _ANSWERS):
        return f"{called} has answer files for Setup: it goes beside the Windows medium"
    if "sources/boot.wim" in lower_names:
        return (
            f"{called} starts Windows PE and holds no Windows to install: "
            f"'sources/install.wim', '.esd' or '.swm' is not there"
        )
    top = sorted({name for name in lower_names if "/" not in name})
    listed = ", ".join(f"'{name}'" for name in top[:_SHOWN]) or "nothing"
    more = f" and {len(top) - _SHOWN} more" if len(top) > _SHOWN else ""
    return f"{called} holds no 'sources/install.wim', '.esd' or '.swm', but {listed}{more}"


def _names(medium: Medium) -> list[str]:
    folders = ("images", "sources")
    inside = [f"{folder}/{name}" for folder in folders for name in medium.names(f"/{folder}")]
    return [*medium.names(), *inside]


def _images(medium: Medium, container: str) -> tuple[WindowsImage, ...]:
    """The images of a WIM, or of a split set after checking that all parts are there."""
    header, xml = _wim(medium, container)
    parts = int(header["Total Parts"])
    within = f"{medium.action}: its '{container}'"
    if header["Part Number"] != "1":
        difference = (
            f"it is part {header['Part Number']} of {parts}, and only part 1 lists the images"
        )
        raise PreflightError(within, difference, _AGAIN)
    stem, _, ending = container.rpartition(".")
    names = {number: f"{stem}{number}.{ending}" for number in range(2, parts + 1)}
    missing = [f"'{name}'" for name in names.values() if medium.find(name) is None]
    if missing:
        of = quantity(parts, "part")
        raise PreflightError(within, f"its {of} do not include {', '.join(missing)}", _AGAIN)
    for number, name in names.items():
        other_header, _ = _wim(medium, name)
        if other_header["GUID"] != header["GUID"] or other_header["Part Number"] != str(number):
            difference = (
                f"'{name}' is part {other_header['Part Number']} of {other_header['Total Parts']}"
            )
            other = "" if other_header["GUID"] == header["GUID"] else " of another set"
            happened = f"{difference}{other}, not part {number} of this one"
            raise PreflightError(within, happened, _AGAIN)
    try:
        images = map(_image, ET.fromstring(xml).iter("IMAGE"))  # noqa: S314  wimlib has read it
        return tuple(sorted(images, key=lambda image: image.index))
    except (ET.ParseError, ValueError) as error:
        raise PreflightError(within, f"its XML cannot be read: {error}", _AGAIN) from error


def _wim(medium: Medium, path: str) -> tuple[dict[str, str], bytes]:
    """Header and XML of a WIM, read by wimlib-imagex.

    wimlib-imagex needs a file name and the medium is not mounted, so a sparse file is made from the
    WIM's beginning and end. A shell creates the file and removes it even if this process is killed.
    """
    action = f"{medium.action}: its '{path}'"
    programs.need(action, "wimlib-imagex", "setpriv")
    where = medium.extent(path)
    ending = max(where.length - _TAIL, 0)
    lines: list[str] = []
    with programs.unnamed_file() as wim, programs.unnamed_file() as xml:
        with wim.open("wb") as out:
            out.write(medium.piece(Extent(where.offset, min(_HEAD, where.length))))
            out.seek(ending)
            out.write(medium.piece(Extent(where.offset + ending, where.length - ending)))
        command = ["sh", "-c", _NAMED, gettempdir(), str(wim), str(xml)]
        try:
            programs.run(action, command, Deadline(_SECONDS), on_line=lines.append)
        except BrokenError as error:
            message = lines[-1] if lines else error.happened
            raise PreflightError(
                action, f"it is not a complete WIM file: {message}", _AGAIN
            ) from error
        pairs = (line.partition("=") for line in lines)
        return {name.strip(): value.strip() for name, _, value in pairs}, xml.read_bytes()


def _image(element: ET.Element) -> WindowsImage:
    def text(path: str) -> str:
        return (element.findtext(path) or "").strip()

    name = text("NAME")
    languages = [
        (language.text or "").strip() for language in element.findall("WINDOWS/LANGUAGES/LANGUAGE")
    ]
    processor = text("WINDOWS/ARCH")
    return WindowsImage(
        index=int(element.get("INDEX", "")),
        name=name,
        display_name=text("DISPLAYNAME") or name,
        edition=text("WINDOWS/EDITIONID"),
        installation=text("WINDOWS/INSTALLATIONTYPE"),
        build=int(text("WINDOWS/VERSION/BUILD") or 0),
        revision=int(text("WINDOWS/VERSION/SPBUILD") or 0),
        languages=tuple(languages),
        default_language=text("WINDOWS/LANGUAGES/DEFAULT") or next(iter(languages), ""),
        architecture=_ARCHITECTURES.get(processor, f"processor {processor or 'unknown'}"),
        bytes=int(text("TOTALBYTES") or 0),
    )


def _boot_entries(medium: Medium) -> Iterator[BootEntry]:
    """What firmware can boot, in the catalogue's order; empty without a catalogue."""
    catalogue = medium.iso.eltorito_boot_catalog
    if catalogue is None:
        return
    first = catalogue.validation_entry.platform_id
    entries = [(first, catalogue.initial_entry)]
    for section in catalogue.sections:
        entries += [(section.platform_id, entry) for entry in section.section_entries]
    for platform, entry in entries:
        boot = _boot(medium, platform, entry)
        if boot is None:
            continue
        end = boot.extent.offset + boot.extent.length
        if end > medium.size:
            happened = (
                f"its {boot.kind} loader ends at byte {end:,}, but the medium has {medium.size:,}"
            )
            raise PreflightError(medium.action, happened, _AGAIN)
        yield boot


def _boot(medium: Medium, platform: int, entry: Any) -> BootEntry | None:
    """Kind and length of a boot entry; None for other processors' firmware.

    Some programs write platform 0 for UEFI too, and some media claim a single sector; the image's
    own file system then decides.
    """
    if entry.boot_indicator != _BOOTABLE:
        return None
    offset = entry.get_rba() * SECTOR
    file_system = 0
    if entry.boot_media_type == _NO_EMULATION:
        file_system = _fat_bytes(medium.piece(Extent(offset, _VIRTUAL)))
    if platform == _UEFI or (platform == _PC and file_system):
        length = entry.sector_count * _VIRTUAL if entry.sector_count >= _WHOLE else file_system
        return BootEntry("uefi", Extent(offset, length))
    bios = BootEntry("bios", Extent(offset, entry.sector_count * _VIRTUAL))
    return bios if platform == _PC else None


def _fat_bytes(sector: bytes) -> int:
    """Size of the FAT file system that begins with this sector; 0 if there is none."""
    if sector[510:512] != b"\x55\xaa" or sector[:1] not in {b"\xeb", b"\xe9"}:
        return 0
    if sector[54:57] != b"FAT" and sector[82:85] != b"FAT":
        return 0
    (unit,) = struct.unpack_from("<H", sector, 11)
    (small,) = struct.unpack_from("<H", sector, 19)
    (large,) = struct.unpack_from("<I", sector, 32)
    return int(unit * (small or large))


ARCHITECTURE = "x86_64"
"""The only architecture of Windows Server's container images."""
_SERVERS = "give the ISO of Windows Server 2019, 2022 or 2025"
_STORAGE, _CARD = "viostor", "NetKVM"
"""Folders of the drivers that installation and network access need."""
_DRIVERS_VERSION = re.compile(r"virtio-win-(\d+(?:\.\d+)+)", re.IGNORECASE)
_FAULTY_2025 = (0, 1, 262), (0, 1, 285)
"""virtio-win from the first version whose network driver hangs Windows Server 2025 to the first
that does not.
"""
_DRIVERS_HINT = "give the whole virtio-win ISO, of a version that has this release"
_DAEMON = "sshd.exe"
_INCOMPLETE = "it is not a complete ZIP archive"
_OPENSSH_HINT = "give OpenSSH-Win64.zip of a release of Win32-OpenSSH"
_ARCHIVE_MOST = 256 << 20
"""Limit in bytes; the archive has some 5 MB and is copied to the answer medium."""


@dataclass(frozen=True, slots=True)
class Use:
    """Whether a recipe can use a medium."""

    recipe: str
    image: str
    """NAME of the image that it would install."""
    refusal: str
    """Why it cannot; empty if it can."""


class AbsentImageError(PreflightError):
    """The medium has no such image; ``refusal``: why, without the images that it has."""

    def __init__(self, action: str, refusal: str, medium: WindowsMedium, hint: str) -> None:
        self.refusal = refusal
        super().__init__(action, f"{refusal}; {list_images(medium)}", hint)


def choose(medium: WindowsMedium, wanted: WantedImage) -> WindowsImage:
    """The image that is wanted.

    Raises AbsentImageError, with the images there are, when the medium has no such image;
    PreflightError when it cannot be used.
    """
    action = f"looking for '{wanted.name}' on the medium '{medium.path}'"
    _check_server(action, medium)
    for image in medium.images:
        if image.name.lower() == wanted.name.lower():
            _check_image(action, image, wanted.release)
            return image
    releases = sorted({release.name for image in medium.images if (release := _release(image))})
    if releases and wanted.release.name not in releases:
        refusal = f"it is a medium of {' and '.join(releases)}"
        hint = f"give the ISO of {wanted.release.name}, or build the image of {releases[0]}"
    else:
        refusal = "there is no such image on it"
        hint = "ask for one of those that it holds, or give another ISO"
    raise AbsentImageError(action, refusal, medium, hint)


def uses(medium: WindowsMedium, recipes: Mapping[str, WantedImage]) -> tuple[Use, ...]:
    """Whether each recipe can use a medium, sorted by name."""
    uses_found = []
    for recipe, wanted in sorted(recipes.items()):
        try:
            choose(medium, wanted)
        except AbsentImageError as error:
            uses_found.append(Use(recipe, wanted.name, error.refusal))
        except PreflightError as error:
            uses_found.append(Use(recipe, wanted.name, error.happened))
        else:
            uses_found.append(Use(recipe, wanted.name, ""))
    return tuple(uses_found)


def list_images(medium: WindowsMedium) -> str:
    """The images of a medium as text: ``it holds`` and a line for each."""
    lines = [
        f"\n    {image.index} '{image.name}' ('{image.display_name}'), {version(image)}"
        for image in medium.images
    ]
    return f"it holds{''.join(lines)}" if lines else "it holds no images"


def version(image: WindowsImage) -> str:
    """``build 20348.587``."""
    return f"build {image.build}.{image.revision}"


def check_drivers(path: Path, release: Release) -> None:
    """Check that the virtio-win medium has the disk and network drivers for a release.

    Raises PreflightError when it cannot be read, is something else, or has no drivers for the
    release.
    """
    with opened(path, f"reading the virtio-win medium '{path}'", _DRIVERS_HINT) as medium:
        for driver in (_STORAGE, _CARD):
            folder = f"/{driver}/{release.drivers}/amd64"
            if not any(name.lower().endswith(".inf") for name in medium.names(folder)):
                raise PreflightError(
                    medium.action, _missing_driver(medium, driver, folder), _DRIVERS_HINT
                )


def read_drivers(path: Path, release: Release) -> dict[str, bytes]:
    """The drivers for a release from the virtio-win medium, by path on the answer medium.

    Raises PreflightError like :func:`check_drivers`.
    """
    check_drivers(path, release)
    drivers = {}
    with opened(path, f"reading the virtio-win medium '{path}'", _DRIVERS_HINT) as medium:
        for driver in DRIVERS:
            folder = f"{driver}/{release.drivers}/amd64"
            for name in medium.names(f"/{folder}"):
                if not name.lower().endswith(".pdb"):  # symbols, larger than everything else
                    drivers[f"{DRIVERS_FOLDER}/{folder}/{name}"] = medium.read(f"/{folder}/{name}")
    return drivers


def driver_doubt(path: Path, release: Release) -> str | None:
    """Why a virtio-win medium may not work with a release, from the version in its label.

    None if nothing is known against it, or the label names no version. Raises PreflightError when
    it cannot be read.
    """
    with opened(path, f"reading the virtio-win medium '{path}'", _DRIVERS_HINT) as medium:
        version = _DRIVERS_VERSION.fullmatch(medium.label)
    if version is None or release.year != "2025":
        return None
    number = tuple(int(part) for part in version[1].split("."))
    if not _FAULTY_2025[0] <= number < _FAULTY_2025[1]:
        return None
    return (
        f"virtio-win {version[1]} can hang or crash {release.name} "
        "(kvm-guest-drivers-windows 1312, 1342, 1360): use 0.1.285 or later"
    )


def check_openssh(path: Path) -> None:
    """Check that a file is a ZIP archive with Win32-OpenSSH's server.

    Raises PreflightError when it is not.
    """
    action = f"reading the archive of OpenSSH '{path}'"
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise PreflightError(action, "it is not a file", _OPENSSH_HINT)
        if size > _ARCHIVE_MOST:
            happened = f"it has {size:,} bytes, too large for an archive of OpenSSH"
            raise PreflightError(action, happened, _OPENSSH_HINT)
        with zipfile.ZipFile(path) as archive:
            names = [
                name.replace("\\", "/").rpartition("/")[2].lower() for name in archive.namelist()
            ]
    except zipfile.BadZipFile as error:
        raise PreflightError(action, _INCOMPLETE, _OPENSSH_HINT) from error
    except OSError as error:
        if is_of_content(error):
            raise PreflightError(action, _INCOMPLETE, _OPENSSH_HINT) from error
        raise PreflightError(action, os_words(error), "check the path") from error
    if _DAEMON not in names:
        raise PreflightError(action, f"it holds no '{_DAEMON}'", _OPENSSH_HINT)


def _missing_driver(medium: Medium, driver: str, folder: str) -> str:
    called = f"the medium '{medium.label}'"
    releases = [name for name in medium.names(f"/{driver}") if not name.startswith(".")]
    if not releases:
        return f"{called} has no folder '{driver}': it is not the virtio-win ISO"
    return f"{called} has no driver in '{folder[1:]}', only for {', '.join(sorted(releases))}"


def _check_server(action: str, medium: WindowsMedium) -> None:
    """Check that it is a medium of Windows Server."""
    kinds = {image.installation.lower() for image in medium.images}
    if kinds and kinds <= {"client"}:
        raise AbsentImageError(action, "it is a medium of Windows for desktops", medium, _SERVERS)
    if kinds and kinds <= {"windowspe", ""}:
        raise AbsentImageError(
            action, "it is a medium without Windows to install", medium, _SERVERS
        )


def _check_image(action: str, image: WindowsImage, release: Release) -> None:
    if image.architecture != ARCHITECTURE:
        raise PreflightError(
            action,
            f"the image is for {image.architecture}, but nodes are {ARCHITECTURE}",
            f"give the {ARCHITECTURE} (x64) ISO of {release.name}",
        )
    if image.build != release.build:
        raise PreflightError(
            action,
            f"the image is {version(image)}, but {release.name} is build {release.build}",
            f"give the ISO of {release.name} that Microsoft has released",
        )
    if image.revision < release.least_revision:
        raise PreflightError(
            action,
            f"the image is {version(image)}, too old: {release.why}, which "
            f"{release.build}.{release.least_revision} has",
            f"give a newer ISO of {release.name}; those of the evaluation centre will do",
        )


def _release(image: WindowsImage) -> Release | None:
    for release in RELEASES.values():
        if image.name.lower().startswith(release.name.lower()):
            return release
    return None


_BY_KEY = "build it with firmware bios, whose loader asks for no key on an empty disk"


def overlay(iso: Path, medium: WindowsMedium, out: Path) -> None:
    """Create a qcow2 overlay on an ISO with a UEFI loader that needs no key press.

    ``iso``: path of the medium for whoever opens the overlay, which contains the full path.
    ``medium``: the medium, read from there or elsewhere. ``out``: must not exist. The overlay takes
    about 2 MB.

    Raises PreflightError when the medium cannot be booted that way, the disk is full, or a program
    is missing. Raises BrokenError when a program fails.
    """
    loader, places = _replace_loader(medium)
    action = f"making the layer '{out}' over '{iso}'"
    if out.exists():
        raise PreflightError(
            action, "a file of that name exists", "remove it, or give another path"
        )
    programs.need(action, "qemu-img", "qemu-io", "setpriv")
    deadline = Deadline(_SECONDS)
    base = str(iso.resolve())
    create = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, str(out)]
    try:
        programs.run(action, create, deadline)
        with programs.unnamed_file() as content:
            for place in places:
                content.write_bytes(loader.ljust(place.length, b"\0"))
                # qemu-io splits its arguments at every blank, quoted or not, so they contain no
                # path.
                verb = f"write -q -s /dev/stdin {place.offset} {place.length}"
                command = ["qemu-io", "-f", "qcow2", "-c", verb, str(out)]
                programs.run(
                    action, command, deadline, redirection=programs.Redirection(stdin=content)
                )
    except BaseException:
        out.unlink(missing_ok=True)
        raise


def _replace_loader(medium: WindowsMedium) -> tuple[bytes, list[Extent]]:
    """The loader that needs no key press, and the locations of those that do."""
    action = f"making the UEFI loader of '{medium.path}' start without a key press"
    where = medium.no_prompt
    if where is None:
        missing = "there is no 'efi/microsoft/boot/efisys_noprompt.bin' on it"
        raise PreflightError(action, missing, _BY_KEY)
    places = [boot.extent for boot in medium.boots if boot.kind == "uefi"]
    if not places:
        raise PreflightError(action, "it does not start under UEFI", _BY_KEY)
    room = min(place.length for place in places)
    if where.length > room:
        raise PreflightError(
            action,
            f"its loader that asks for no key has {where.length:,} bytes, but there is room "
            f"for {room:,}",
            _BY_KEY,
        )
    with medium.path.open("rb") as file:
        file.seek(where.offset)
        return file.read(where.length), places
