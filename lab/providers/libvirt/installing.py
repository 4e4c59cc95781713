"""Installers run unattended in a virtual machine of their own, on any hypervisor.

Everything the machine needs is uploaded into a pool that lives as long as the installation; the
finished disk is downloaded. The machine is transient and belongs to our connection: when we die,
libvirt ends it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING

from lab._errors import BrokenError, DeadlineError, PreflightError
from lab.imaging.installer import Installation
from lab.imaging.recipe import Phase
from lab.imaging.windows.machine import Site
from lab.inventory.inventory import MANAGEMENT
from lab.providers.libvirt import connection, console, documents, scratch, volumes
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.windows_site import LibvirtSite

if TYPE_CHECKING:
    import libvirt

_LOOK_SECONDS = 1.0
"""How often the console is read."""
_KEPT = 16_384
"""Characters of the console that are kept for messages."""
_GIB = 1 << 30
_CONSOLE = "console"
_DISK = "disk"


class Story:
    """What a console has said so far, and what that means. Pure."""

    def __init__(self, phases: tuple[Phase, ...], done: str) -> None:
        self.phase = "starting"
        self.is_done = False
        self.tail = ""
        self._phases = phases
        self._done = done
        self._line = ""
        self._next = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def hear(self, said: bytes) -> list[str]:
        """Take in what came; the phases that have begun with it, in order.

        A phase begins once: what an earlier one is known by means nothing any more.
        """
        text = self._decoder.decode(said)
        self.tail = (self.tail + text)[-_KEPT:]
        *lines, self._line = (self._line + text).replace("\r", "\n").split("\n")
        begun = []
        for line in map(console.clean, (*lines, self._line)):
            self.is_done = self.is_done or self._done in line
            for number in range(self._next, len(self._phases)):
                if re.search(self._phases[number].sees, line):
                    self._next = number + 1
                    self.phase = self._phases[number].name
                    begun.append(self.phase)
                    break
        return begun


class LibvirtInstaller:
    """Runs installations on one hypervisor; :class:`lab.imaging.installer.Installer`."""

    def __init__(self, host: Host, management: IPv4Network = MANAGEMENT) -> None:
        """Use a hypervisor, which is connected to when the first installation runs.

        ``management``: the range that guests take addresses from which we have to reach.
        """
        self._host = host
        self._management = management

    @property
    def windows(self) -> Site:
        """Where Windows is installed; by a connection of its own, which hears of reboots."""
        return LibvirtSite(self._host.hypervisor, self._management)

    def install(
        self,
        installation: Installation,
        disk: Path,
        tell: Callable[[str], None],
        console: Callable[[bytes], None],
    ) -> None:
        """Run it to its end, and download the finished disk; see the protocol."""
        doing = f"installing image '{installation.name}'"
        self._check(installation, doing)
        with (
            self._host.told(doing),
            scratch.pool(self._host.connected, self._host.hypervisor, "install") as pool,
        ):
            self._upload(pool, installation, tell)
            story = Story(installation.phases, installation.done)
            tell(f"starting the installer on hypervisor '{self._host.name}'")
            domain = self._start(pool, installation)
            try:
                _follow(pool, domain, installation, story, tell, console)
            finally:
                _end(domain)
            if not story.is_done:
                raise BrokenError(
                    doing,
                    f"the machine went down while {story.phase}, and never said "
                    f"'{installation.done}'; the console's end:{_tail(story)}",
                )
            tell("taking the finished disk home")
            volumes.copy_out(pool, _DISK, disk)

    def _check(self, installation: Installation, doing: str) -> None:
        own = str(self._host.connected.getInfo()[0])
        if own != installation.architecture:
            raise PreflightError(
                doing,
                f"it is for {installation.architecture}, and hypervisor '{self._host.name}' "
                f"is {own}",
                f"put a hypervisor that is {installation.architecture} first in the inventory",
            )

    def _upload(
        self,
        pool: libvirt.virStoragePool,
        installation: Installation,
        tell: Callable[[str], None],
    ) -> None:
        files = {"kernel": installation.kernel, "initrd": installation.initrd}
        files |= {f"medium{number}": path for number, path in enumerate(installation.media)}
        size = sum(path.stat().st_size for path in files.values())
        free = int(pool.info()[3])
        if size > free:
            raise PreflightError(
                f"installing image '{installation.name}'",
                f"its media take {size / _GIB:.1f} GiB, and '{self._host.hypervisor.storage}' on "
                f"hypervisor '{self._host.name}' has {free / _GIB:.1f} GiB free",
                "free some space there, or name another 'storage' in the inventory",
            )
        for name, path in files.items():
            tell(f"uploading {path.name}, {path.stat().st_size >> 20} MiB")
            volumes.copy_in(pool, name, path, lambda _: None)
        pool.createXML(documents.volume(_DISK, installation.disk_gib * _GIB, "qcow2"))

    def _start(self, pool: libvirt.virStoragePool, installation: Installation) -> libvirt.virDomain:
        spec = documents.Installation(
            name=pool.name(),
            image=installation.name,
            accelerated=self._host.accelerated,
            vcpus=installation.vcpus,
            memory_mib=installation.memory_mib,
            firmware=installation.firmware,
            arguments=installation.arguments,
            directory=volumes.path_of(pool),
            media=len(installation.media),
            network=installation.network,
        )
        library = connection.load()
        return self._host.connected.createXML(
            documents.installation(spec), library.VIR_DOMAIN_START_AUTODESTROY
        )


def _follow(  # noqa: PLR0913, PLR0917  each is part of what is followed
    pool: libvirt.virStoragePool,
    domain: libvirt.virDomain,
    installation: Installation,
    story: Story,
    tell: Callable[[str], None],
    heard: Callable[[bytes], None],
) -> None:
    """Read the console until the machine has gone down."""
    read = 0

    def look() -> bool:
        nonlocal read
        gone = not _runs(domain)  # asked first: what it said before it went is read after
        said = volumes.since(pool, _CONSOLE, read)
        read += len(said)
        if said:
            heard(said)
        for phase in story.hear(said):
            tell(phase)
        return gone

    doing = f"waiting for the installation of image '{installation.name}'"
    try:
        installation.deadline.wait(doing, look, every=_LOOK_SECONDS)
    except DeadlineError as error:
        raise DeadlineError(
            doing,
            f"not done within {installation.deadline.seconds:g} s; it was at: {story.phase}; "
            f"the console's end:{_tail(story)}",
            "look whether the installer asks a question that its answers leave open",
        ) from error


def _runs(domain: libvirt.virDomain) -> bool:
    library = connection.load()
    try:
        return bool(domain.isActive())
    except library.libvirtError as error:
        if error.get_error_code() == library.VIR_ERR_NO_DOMAIN:  # transient: it is forgotten
            return False
        raise


def _end(domain: libvirt.virDomain) -> None:
    library = connection.load()
    try:
        if _runs(domain):
            domain.destroy()
    except library.libvirtError as error:
        if error.get_error_code() not in {
            library.VIR_ERR_NO_DOMAIN,
            library.VIR_ERR_OPERATION_INVALID,
        }:
            raise


def _tail(story: Story) -> str:
    return console.tail(story.tail) or " it has said nothing"
