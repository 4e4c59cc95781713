"""Installers run unattended in a virtual machine of their own, on any hypervisor.

Everything the machine needs is uploaded into a pool that lives as long as the installation; the
finished disk is downloaded. The machine is transient and belongs to our connection: when we die,
libvirt ends it.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from xml.etree import ElementTree as ET

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError
from lab._log import say
from lab.imaging.job import Installation
from lab.imaging.recipe import Phase
from lab.imaging.windows.machine import (
    Address,
    Building,
    InstallationMachine,
    InstallationSite,
    InstallationState,
)
from lab.inventory.inventory import MANAGEMENT, Hypervisor
from lab.providers.libvirt import (
    connection,
    console,
    documents,
    domains,
    drives,
    media,
    networks,
    pictures,
    scratch,
    sites,
    volumes,
)
from lab.providers.libvirt.connection import controller_id
from lab.providers.libvirt.documents import Card, Reservation
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.hypervisor_ssh import jump_to
from lab.remote import programs

if TYPE_CHECKING:
    from ipaddress import IPv4Network

    import libvirt

_DISK = "disk"
_CONSOLE = "console"
_ANSWERS = "answers"
_OVERLAY = "setup"
_FIRMWARE = "firmware"
_NAME = "installing"
"""Of the machine, in its network."""
_GIB = 1 << 30
_LEAST = 12 << 30
"""Bytes: Windows Server core with its updates; Microsoft asks for 32 GB, desktop included."""
_REBASE_SECONDS = 60.0
"""For writing another name into a file's head."""


class LibvirtSite:
    """Machines on one hypervisor; :class:`lab.imaging.windows.machine.InstallationSite`."""

    def __init__(self, hypervisor: Hypervisor, management: IPv4Network) -> None:
        """Use a hypervisor, which is connected to when it is first needed.

        ``management``: the range of which the machine's network takes a /24.
        """
        self._host = Host(hypervisor)
        self._management = management

    def find(self, site: Path) -> Building | None:
        """The machine that an earlier command has left for that directory."""
        connection.hear_events()  # before the connection is there
        with self._host.told("looking for an interrupted installation"):
            domain = sites.find(self._host.connected, site)
            return None if domain is None else SiteMachine(self._host, site, domain)

    def remove(self, site: Path) -> None:
        """Take away what an earlier command has left for that directory, half made or whole."""
        with self._host.told("removing an interrupted installation"):
            sites.remove(self._host.connected, site)

    def begin(self, machine: InstallationMachine) -> Building:
        """Make it and start it; see the protocol."""
        connection.hear_events()  # before the connection is there
        doing = f"installing image '{machine.image}'"
        self._check(machine, doing)
        with self._host.told(doing):
            connected = self._host.connected
            sites.sweep(connected)
            sites.remove(connected, machine.site)
            try:
                domain = self._make(machine, sites.new_name(machine.site))
                found = SiteMachine(self._host, machine.site, domain)
                domain.create()
            except BaseException:
                library = connection.load()
                with suppress(library.libvirtError):  # the next one finds it by its name
                    sites.remove(connected, machine.site)
                raise
        return found

    def _check(self, machine: InstallationMachine, doing: str) -> None:
        with self._host.told(doing):
            own = str(self._host.connected.getInfo()[0])
        if own != machine.architecture:
            raise PreflightError(
                doing,
                f"it is for {machine.architecture}, and hypervisor '{self._host.name}' is {own}",
                f"put a hypervisor that is {machine.architecture} first in the inventory",
            )

    def _make(self, machine: InstallationMachine, name: str) -> libvirt.virDomain:
        """Pool, media, network and definition; the domain is not started."""
        host, connected = self._host, self._host.connected
        pool = connected.storagePoolDefineXML(
            documents.pool(name, str(uuid4()), f"{host.hypervisor.storage}/{name}")
        )
        pool.build()
        pool.create()
        self._room(pool, machine)
        mark = sites.write(sites.SiteMark(machine.image, machine.site, controller_id()))
        self._network(name, mark, machine)
        directory = volumes.path_of(pool)
        pool.createXML(documents.volume(_DISK, machine.disk_gib * _GIB, "qcow2"))
        spec = documents.WindowsDomain(
            name=name,
            uuid="",
            title=f"installation of image {machine.image}; 'lab image build' goes on with it",
            accelerated=host.accelerated,
            hyperv=host.hyperv,
            vcpus=machine.vcpus,
            memory_mib=machine.memory_mib,
            firmware=machine.firmware,
            nvram=f"{directory}/{_FIRMWARE}",
            storage=machine.storage,
            disk=f"{directory}/{_DISK}",
            discs=self._discs(pool, machine),
            console_log=f"{directory}/{_CONSOLE}",
            cards=(Card(_mac(name), name, None),),
            fleeting=True,
        )
        return connected.defineXML(documents.windows(spec, mark))

    def _room(self, pool: libvirt.virStoragePool, machine: InstallationMachine) -> None:
        """See that what an installation writes at least will fit."""
        free = int(pool.info()[3])
        least = min(_LEAST, machine.disk_gib * _GIB)
        if free < least:
            raise PreflightError(
                f"installing image '{machine.image}'",
                f"an installed Windows Server takes {least >> 30} GiB at least, and "
                f"'{self._host.hypervisor.storage}' on hypervisor '{self._host.name}' has "
                f"{free / _GIB:.1f} GiB free",
                "free some space there, or name another 'storage' in the inventory",
            )

    def _network(self, name: str, mark: str, machine: InstallationMachine) -> None:
        def document(subnet: IPv4Network) -> str:
            address = str(documents.guest_address(subnet, 0))
            host = Reservation(_NAME, _mac(name), address)
            return documents.scratch_network(name, mark, subnet, host)

        doing = f"finding a range for the installation of image '{machine.image}'"
        token = sites.token(machine.site)
        networks.take_range(self._host.connected, self._management, token, document, doing)

    def _discs(
        self, pool: libvirt.virStoragePool, machine: InstallationMachine
    ) -> tuple[documents.Disc, ...]:
        """Setup's first, then the drivers', then the answers: Setup gives letters in this order."""
        placed = media.place(self._host, machine.setup, "installation medium", say)
        if machine.overlay is None:
            setup = documents.Disc(placed.path, foreign=placed.foreign, boots=True)
        else:
            there = self._overlay(pool, machine.overlay, placed.path)
            setup = documents.Disc(there, placed.path, foreign=placed.foreign, boots=True)
        discs = [setup]
        if machine.virtio is not None:
            found = media.place(self._host, machine.virtio, "virtio-win medium", say)
            discs.append(documents.Disc(found.path, foreign=found.foreign))
        discs.append(documents.Disc(volumes.write(pool, _ANSWERS, machine.answers)))
        return tuple(discs)

    @staticmethod
    def _overlay(pool: libvirt.virStoragePool, overlay: Path, below: str) -> str:
        """Bring an overlay there, on top of the medium as it is called there."""
        command = ["qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", below]
        programs.run("naming the medium below", [*command, str(overlay)], Deadline(_REBASE_SECONDS))
        path = volumes.copy_in(pool, _OVERLAY, overlay, lambda _: None)
        assert path is not None, "the pool is new"
        return path


def _mac(name: str) -> str:
    """A local address that goes with the site's token."""
    digits = name[-8:]
    return "52:56:" + ":".join(digits[at : at + 2] for at in range(0, 8, 2))


class SiteMachine:
    """One machine; :class:`lab.imaging.windows.machine.Building`."""

    def __init__(self, host: Host, site: Path, domain: libvirt.virDomain) -> None:
        """Look at a domain from now on."""
        self._host = host
        self._site = site
        self._name = str(domain.name())
        self._resets = 0
        library = connection.load()
        self._heard = host.connected.domainEventRegisterAny(
            domain, library.VIR_DOMAIN_EVENT_ID_REBOOT, self._was_reset, None
        )

    def _was_reset(self, *_: object) -> None:
        self._resets += 1

    @property
    def accelerated(self) -> bool:
        """Whether it runs on a real processor."""
        with self._told("looking at"):
            return ET.fromstring(self._domain.XMLDesc()).get("type") == "kvm"  # noqa: S314  libvirt's own

    @property
    def where(self) -> str:
        """It and its hypervisor in words."""
        return f"domain '{self._name}' on '{self._host.name}'"

    def look(self, heard: int) -> InstallationState:
        """Look at it."""
        with self._told("looking at"):
            runs = bool(self._domain.isActive())  # first: what it said before it went is read after
            said = volumes.since(self._pool, _CONSOLE, heard)
            disk = volumes.find(self._pool, _DISK)
            return InstallationState(
                said, 0 if disk is None else int(disk.info()[2]), self._resets, runs
            )

    def picture(self) -> bytes:
        """What its screen shows."""
        with self._told("taking a picture of"):
            return pictures.png(domains.screenshot(self._domain))

    def address(self) -> Address:
        """Where it will answer: the address that its network keeps for it."""
        with self._told("finding the address of"):
            network = self._host.connected.networkLookupByName(self._name)
            found = networks.addresses_of(network.XMLDesc())
        return Address(found[_NAME], jump_to(self._host.hypervisor))

    def take_answers(self) -> None:
        """Take the answer medium out, whatever the guest thinks of it, and delete it."""
        with self._told("taking the answer medium out of"):
            drives.discard(self._domain, self._pool, _ANSWERS)

    def bring_home(self, disk: Path) -> None:
        """Copy its disk into a new file."""
        with self._told("copying the disk of"):
            volumes.copy_out(self._pool, _DISK, disk)

    def remove(self) -> None:
        """Take it away with all that belongs to it."""
        library = connection.load()
        with self._told("removing"):
            connected = self._host.connected
            if self._heard is not None:
                with suppress(library.libvirtError):  # a connection that was made anew knows it not
                    connected.domainEventDeregisterAny(self._heard)
                self._heard = None
            sites.remove(connected, self._site)

    def _told(self, doing: str) -> Any:
        return self._host.told(f"{doing} {self._name}")

    @property
    def _domain(self) -> libvirt.virDomain:
        return self._host.connected.lookupByName(self._name)

    @property
    def _pool(self) -> libvirt.virStoragePool:
        return self._host.connected.storagePoolLookupByName(self._name)


_LOOK_SECONDS = 1.0
"""How often the console is read."""
_KEPT = 16_384
"""Characters of the console that are kept for messages."""


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
    """Runs installations on one hypervisor; :class:`lab.imaging.job.Installer`."""

    def __init__(self, host: Host, management: IPv4Network = MANAGEMENT) -> None:
        """Use a hypervisor, which is connected to when the first installation runs.

        ``management``: the range that guests take addresses from which we have to reach.
        """
        self._host = host
        self._management = management

    @property
    def windows(self) -> InstallationSite:
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
        spec = documents.InstallerDomain(
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
