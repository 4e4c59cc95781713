"""Where Windows is installed: a virtual machine that lives on when the command is killed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from xml.etree import ElementTree as ET

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab._log import say
from lab.guests.hypervisor import jump_to
from lab.imaging import tools
from lab.imaging.windows.machine import Address, Building, Glance, Machine
from lab.inventory.inventory import Hypervisor
from lab.providers.libvirt import (
    connection,
    documents,
    domains,
    drives,
    media,
    networks,
    pictures,
    sites,
    volumes,
)
from lab.providers.libvirt.connection import controller_id
from lab.providers.libvirt.documents import Card, Reservation
from lab.providers.libvirt.host import Host

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
    """Machines on one hypervisor; :class:`lab.imaging.windows.machine.Site`."""

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

    def begin(self, machine: Machine) -> Building:
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

    def _check(self, machine: Machine, doing: str) -> None:
        with self._host.told(doing):
            own = str(self._host.connected.getInfo()[0])
        if own != machine.architecture:
            raise PreflightError(
                doing,
                f"it is for {machine.architecture}, and hypervisor '{self._host.name}' is {own}",
                f"put a hypervisor that is {machine.architecture} first in the inventory",
            )

    def _make(self, machine: Machine, name: str) -> libvirt.virDomain:
        """Pool, media, network and definition; the domain is not started."""
        host, connected = self._host, self._host.connected
        pool = connected.storagePoolDefineXML(
            documents.pool(name, str(uuid4()), f"{host.hypervisor.storage}/{name}")
        )
        pool.build()
        pool.create()
        self._room(pool, machine)
        mark = sites.write(sites.Mark(machine.image, machine.site, controller_id()))
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

    def _room(self, pool: libvirt.virStoragePool, machine: Machine) -> None:
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

    def _network(self, name: str, mark: str, machine: Machine) -> None:
        def document(subnet: IPv4Network) -> str:
            address = str(documents.guest_address(subnet, 0))
            host = Reservation(_NAME, _mac(name), address)
            return documents.scratch_network(name, mark, subnet, host)

        doing = f"finding a range for the installation of image '{machine.image}'"
        token = sites.token(machine.site)
        networks.take_range(self._host.connected, self._management, token, document, doing)

    def _discs(self, pool: libvirt.virStoragePool, machine: Machine) -> tuple[documents.Disc, ...]:
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
        tools.run("naming the medium below", [*command, str(overlay)], Deadline(_REBASE_SECONDS))
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

    def look(self, heard: int) -> Glance:
        """Look at it."""
        with self._told("looking at"):
            runs = bool(self._domain.isActive())  # first: what it said before it went is read after
            said = volumes.since(self._pool, _CONSOLE, heard)
            disk = volumes.find(self._pool, _DISK)
            return Glance(said, 0 if disk is None else int(disk.info()[2]), self._resets, runs)

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
