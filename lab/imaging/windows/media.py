"""What an installation medium of Windows holds: frozen data, as read from the ISO."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Channel = Literal["evaluation", "volume", "retail", "unknown"]
BootKind = Literal["bios", "uefi"]


@dataclass(frozen=True, slots=True)
class WindowsImage:
    """One image within ``sources/install.wim``."""

    index: int
    """Counted from 1."""
    name: str
    """NAME: ``Windows Server 2022 SERVERSTANDARDCORE``; what an answer file gives."""
    display_name: str
    """DISPLAYNAME: ``Windows Server 2022 Standard Evaluation``; what DISM prints."""
    edition: str
    """EDITIONID: ``ServerStandard``; evaluation media have ``ServerStandardEval``."""
    installation: str
    """INSTALLATIONTYPE: ``Server Core``, ``Server``, ``Client``."""
    build: int
    revision: int
    """SPBUILD: the fourth part of the version."""
    languages: tuple[str, ...]
    default_language: str
    architecture: str
    """As Python and libvirt name it: ``x86_64``, ``i686``, ``aarch64``."""
    bytes: int
    """TOTALBYTES: the size of its files when installed."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Where something lies in the ISO, in bytes."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Boot:
    """An El Torito entry: an image that firmware starts."""

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
    boots: tuple[Boot, ...]
    no_prompt: Extent | None
    """Where ``efi/microsoft/boot/efisys_noprompt.bin`` lies; None if it is not there."""
