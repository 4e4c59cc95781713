"""Run unattended installers in virtual machines, on any hypervisor.

The machine's files are uploaded into a pool that exists as long as the installation; the finished
disk is downloaded. A Linux installer's machine is transient and belongs to our connection: if this
process dies, libvirt destroys it. Windows is installed on a site: a domain, a network and a
storage pool with a common name, which contains their creation time and a hash of the build's
directory. Domain and network carry a mark different from a lab's: ``lab image gc`` collects them,
``lab gc`` never does.
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4
from xml.etree import ElementTree as ET

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError
from lab._log import say
from lab.inventory.inventory import MANAGEMENT, Hypervisor
from lab.machines.images.installation import (
    Address,
    Building,
    InstallationMachine,
    InstallationSite,
    InstallationState,
)
from lab.machines.images.job import Installation
from lab.machines.images.recipe import Phase
from lab.machines.libvirt import (
    connection,
    documents,
    domains,
    images,
    networks,
    ownership,
    storage,
)
from lab.machines.libvirt.connection import controller_id
from lab.machines.libvirt.documents import Card, Disc, Reservation, VirtualMachine
from lab.machines.libvirt.host import Host, jump_to
from lab.machines.libvirt.images import Leftovers
from lab.shells import programs

if TYPE_CHECKING:
    import libvirt

_NAMESPACE = "urn:hybridlab:build:1"
_TAG = f"{{{_NAMESPACE}}}build"
_SITE_NAME = re.compile(r"hybridlab-windows-(?P<made>[0-9]{10,12})-(?P<token>[0-9a-f]{8})")
_ABANDONED_SECONDS = 7 * 86_400.0
"""A week; the deadlines of all phases add up to less, even emulated."""
_DISK = "disk"
_CONSOLE = "console"
_ANSWERS = "answers"
_MACHINE_NAME = "installing"
"""The machine's name in its network."""
_GIB = 1 << 30
_LEAST = 12 << 30
"""Bytes for Windows Server Core with updates; Microsoft requires 32 GB, desktop included."""
_REBASE_SECONDS = 60.0
"""For writing another name into a file's header."""
_LOOK_SECONDS = 1.0
"""Interval between two reads of the console."""
_KEPT = 16_384
"""Characters of the console to keep for messages."""


@dataclass(frozen=True, slots=True)
class SiteMark:
    """The ownership mark of a site."""

    image: str
    site: Path
    """The directory of the build."""
    controller: str


def site_token(site: Path) -> str:
    """Eight hex digits for a build's directory on this controller."""
    return sha256(f"{controller_id()} {site}".encode()).hexdigest()[:8]


def new_site_name(site: Path) -> str:
    """The name for a new site's objects."""
    return f"hybridlab-windows-{int(time.time())}-{site_token(site)}"


def site_xml(mark: SiteMark) -> str:
    """The element to put between ``<metadata>`` and ``</metadata>``."""
    ET.register_namespace("hybridlab-build", _NAMESPACE)
    fields = {"image": mark.image, "site": str(mark.site), "controller": mark.controller}
    return ET.tostring(ET.Element(_TAG, fields), encoding="unicode")


def read_site(document: str) -> SiteMark | None:
    """The site's mark in an object's XML; None if it has none."""
    element = ET.fromstring(document).find(f"metadata/{_TAG}")  # noqa: S314  libvirt's own document
    if element is None:
        return None
    attributes = element.attrib
    try:
        return SiteMark(attributes["image"], Path(attributes["site"]), attributes["controller"])
    except KeyError:
        return None


def _mark_of(item: libvirt.virDomain | libvirt.virNetwork) -> SiteMark | None:
    return read_site(item.XMLDesc())


def remove_site(connected: libvirt.virConnect, site: Path) -> None:
    """Remove all objects of a site, even of an incomplete one."""
    ending = site_token(site)
    _remove(connected, lambda match: match["token"] == ending)


def _remove_abandoned(connected: libvirt.virConnect) -> None:
    now = time.time()
    with suppress(connection.load().libvirtError):  # another command may be removing them too
        _remove(connected, lambda match: now - int(match["made"]) > _ABANDONED_SECONDS)


def collect_sites(host: Host, alive: Callable[[Path], bool], *, yes: bool) -> Leftovers:
    """Find, and with ``yes`` remove, this controller's sites whose build is not running.

    ``alive``: returns True if the build in that directory is running. Raises LabError if the
    hypervisor is unreachable or refuses.
    """
    with host.explain_errors("collecting the remains of interrupted builds"):
        connected = host.connected
        dead = {
            mark.site
            for kind in (connected.listAllDomains(), connected.listAllNetworks())
            for _, mark in connection.each(kind, _mark_of)
            if mark is not None and mark.controller == controller_id() and not alive(mark.site)
        }
        endings = {site_token(site) for site in dead}

        def is_dead(match: re.Match[str]) -> bool:
            return match["token"] in endings

        names = {name for name, _, _ in _site_objects(connected, is_dead)}
        if yes:
            _remove(connected, is_dead)
    return Leftovers(host.name, tuple(sorted(names)))


def _remove(connected: libvirt.virConnect, wanted: Callable[[re.Match[str]], bool]) -> None:
    for _, remove, item in _site_objects(connected, wanted):
        remove(item)


def _site_objects(
    connected: libvirt.virConnect, wanted: Callable[[re.Match[str]], bool]
) -> Iterator[tuple[str, Callable[[libvirt.virDomain], object], libvirt.virDomain]]:
    """Name, removal function and object; domains first, because they use the others."""
    for kind, remove in (
        (connected.listAllDomains, domains.remove),
        (connected.listAllNetworks, networks.remove),
        (connected.listAllStoragePools, storage.remove_pool),
    ):
        for item in kind():
            match = _SITE_NAME.fullmatch(item.name())
            if match is not None and wanted(match):
                yield item.name(), remove, item


class WindowsInstaller:
    """Windows installations on one hypervisor.

    Implements :class:`lab.machines.images.installation.InstallationSite`.
    """

    def __init__(self, hypervisor: Hypervisor, management: IPv4Network) -> None:
        """Use a hypervisor; it is connected to when first needed.

        ``management``: the range from which the machine's network takes a /24.
        """
        self._host = Host(hypervisor)
        self._management = management

    def find(self, site: Path) -> Building | None:
        """The machine that an earlier command left for that directory; None if there is none."""
        connection.hear_events()  # before connecting
        with self._host.explain_errors("looking for an interrupted installation"):
            domain_list = self._host.connected.listAllDomains()
            for domain, mark in connection.each(domain_list, _mark_of):
                if mark and (mark.site, mark.controller) == (site, controller_id()):
                    return WindowsInstallation(self._host, site, domain)
        return None

    def remove(self, site: Path) -> None:
        """Remove what an earlier command left for that directory, complete or not."""
        with self._host.explain_errors("removing an interrupted installation"):
            remove_site(self._host.connected, site)

    def begin(self, machine: InstallationMachine) -> Building:
        """Create the machine and start it; see the protocol."""
        connection.hear_events()  # before connecting
        action = f"installing image '{machine.recipe.name}'"
        with self._host.explain_errors(action):
            _require_architecture(self._host, machine.recipe.architecture, action)
            connected = self._host.connected
            _remove_abandoned(connected)
            remove_site(connected, machine.site)
            try:
                domain = self._make(machine, new_site_name(machine.site))
                installation = WindowsInstallation(self._host, machine.site, domain)
                domain.create()
            except BaseException:
                with suppress(connection.load().libvirtError):  # the next command finds it by name
                    remove_site(connected, machine.site)
                raise
        return installation

    def _make(self, machine: InstallationMachine, name: str) -> libvirt.virDomain:
        """Create pool, media and network, and define the domain without starting it."""
        host, connected = self._host, self._host.connected
        recipe, parts = machine.recipe, machine.parts
        directory = f"{host.hypervisor.storage}/{name}"
        pool = connected.storagePoolDefineXML(documents.pool(name, str(uuid4()), directory))
        pool.build()
        pool.create()
        least = min(_LEAST, recipe.disk_gib * _GIB)
        _require_room(host, pool, recipe.name, "an installed Windows Server takes at least", least)
        mark = site_xml(SiteMark(recipe.name, machine.site, controller_id()))
        self._network(name, mark, machine)
        pool.createXML(documents.volume(_DISK, recipe.disk_gib * _GIB, "qcow2"))
        virtual_machine = VirtualMachine(
            kind="windows",
            name=name,
            title=f"installation of image {recipe.name}; 'lab image build' continues it",
            accelerated=host.accelerated,
            hyperv=host.hyperv,
            vcpus=parts.vcpus,
            memory_mib=parts.memory_mib,
            firmware=recipe.firmware,
            nvram=f"{directory}/firmware",
            storage=parts.storage,
            disk=f"{directory}/{_DISK}",
            discs=self._discs(pool, machine),
            console_log=f"{directory}/{_CONSOLE}",
            cards=(Card(_mac(name), name, None),),
            disposable=True,
        )
        return connected.defineXML(documents.domain(virtual_machine, mark))

    def _network(self, name: str, mark: str, machine: InstallationMachine) -> None:
        bridge = ownership.scratch_bridge_name(name)

        def document(subnet: IPv4Network) -> str:
            address = str(documents.guest_address(subnet, 0))
            host = Reservation(_MACHINE_NAME, _mac(name), address)
            return documents.nat_network(name, mark, bridge, subnet, (host,), mtu=1500)

        action = f"finding a range for the installation of image '{machine.recipe.name}'"
        token = site_token(machine.site)
        networks.take_range(self._host.connected, self._management, token, document, action)

    def _discs(
        self, pool: libvirt.virStoragePool, machine: InstallationMachine
    ) -> tuple[Disc, ...]:
        """Setup first, then the answers with the drivers: drive letters follow this order."""
        placed = images.place_medium(self._host, machine.setup, "installation medium", say)
        if machine.overlay is not None:
            assert placed.path is not None, "a medium has a path"
            overlay = self._overlay(pool, machine.overlay, placed.path)
            placed = replace(placed, path=overlay, below=placed.path)
        return (replace(placed, boots=True), Disc(storage.write(pool, _ANSWERS, machine.answers)))

    @staticmethod
    def _overlay(pool: libvirt.virStoragePool, overlay: Path, below: str) -> str:
        """Copy an overlay to the pool, rebased on the medium's path on the hypervisor."""
        command = ["qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "raw", "-b", below]
        action = "rebasing the overlay on its medium"
        programs.run(action, [*command, str(overlay)], Deadline(_REBASE_SECONDS))
        path = storage.copy_in(pool, "setup", overlay)
        assert path is not None, "the pool is new"
        return path


def _mac(name: str) -> str:
    """A locally administered MAC derived from the site's token."""
    digits = name[-8:]
    return "52:56:" + ":".join(digits[at : at + 2] for at in range(0, 8, 2))


def _require_architecture(host: Host, wanted: str, action: str) -> None:
    own = str(host.connected.getInfo()[0])
    if own != wanted:
        raise PreflightError(
            action,
            f"it is for {wanted}, but hypervisor '{host.name}' is {own}",
            f"put a {wanted} hypervisor first in the inventory",
        )


def _require_room(
    host: Host, pool: libvirt.virStoragePool, image: str, subject: str, size: int
) -> None:
    free = int(pool.info()[3])
    if free < size:
        raise PreflightError(
            f"installing image '{image}'",
            f"{subject} {size / _GIB:.1f} GiB, and '{host.hypervisor.storage}' on hypervisor "
            f"'{host.name}' has {free / _GIB:.1f} GiB free",
            "free some space there, or set another 'storage' in the inventory",
        )


class WindowsInstallation:
    """One installation; implements :class:`lab.machines.images.installation.Building`."""

    def __init__(self, host: Host, site: Path, domain: libvirt.virDomain) -> None:
        """Watch a domain from now on."""
        self._host = host
        self._site = site
        self._name = str(domain.name())
        self._resets = 0
        library = connection.load()
        self._callback = host.connected.domainEventRegisterAny(
            domain, library.VIR_DOMAIN_EVENT_ID_REBOOT, self._count_reset, None
        )

    def _count_reset(self, *_: object) -> None:
        self._resets += 1

    @property
    def accelerated(self) -> bool:
        """True if it runs on KVM."""
        with self._explain_errors("looking at"):
            return ET.fromstring(self._domain.XMLDesc()).get("type") == "kvm"  # noqa: S314  libvirt's own

    @property
    def where(self) -> str:
        """The domain and its hypervisor, for messages."""
        return f"domain '{self._name}' on '{self._host.name}'"

    def look(self, heard: int) -> InstallationState:
        """Its state, with the console output after ``heard`` bytes."""
        with self._explain_errors("looking at"):
            runs = bool(self._domain.isActive())  # first, so that its last output is read below
            console = storage.read(self._pool, _CONSOLE, heard) or b""
            disk = storage.find(self._pool, _DISK)
            return InstallationState(
                console, 0 if disk is None else int(disk.info()[2]), self._resets, runs
            )

    def picture(self) -> bytes:
        """Its screen as PNG."""
        with self._explain_errors("taking a screenshot of"):
            return domains.screenshot(self._domain)

    def address(self) -> Address:
        """The address that its network reserves for it."""
        with self._explain_errors("finding the address of"):
            network = self._host.connected.networkLookupByName(self._name)
            addresses = networks.addresses_of(network.XMLDesc())
        return Address(addresses[_MACHINE_NAME], jump_to(self._host.hypervisor))

    def take_answers(self) -> None:
        """Eject the answer medium, even if the guest has locked it, and delete it."""
        with self._explain_errors("taking the answer medium out of"):
            domains.discard_volume(self._domain, self._pool, _ANSWERS)

    def power_off(self) -> None:
        """Power it off."""
        with (
            self._explain_errors("switching off"),
            connection.ignore("VIR_ERR_OPERATION_INVALID"),  # already off
        ):
            self._domain.destroy()

    def bring_home(self, disk: Path) -> None:
        """Download its disk into a new file."""
        with self._explain_errors("copying the disk of"):
            storage.copy_out(self._pool, _DISK, disk)

    def remove(self) -> None:
        """Remove the machine and all its objects."""
        with self._explain_errors("removing"):
            connected = self._host.connected
            if self._callback is not None:
                with suppress(connection.load().libvirtError):  # a new connection does not have it
                    connected.domainEventDeregisterAny(self._callback)
                self._callback = None
            remove_site(connected, self._site)

    def _explain_errors(self, action: str) -> AbstractContextManager[None]:
        return self._host.explain_errors(f"{action} {self._name}")

    @property
    def _domain(self) -> libvirt.virDomain:
        return self._host.connected.lookupByName(self._name)

    @property
    def _pool(self) -> libvirt.virStoragePool:
        return self._host.connected.storagePoolLookupByName(self._name)


class InstallationConsole:
    """An installer's console output so far, and the phase that it shows. Pure."""

    def __init__(self, phases: Sequence[Phase], done: str) -> None:
        self.phase = "starting"
        self.is_done = False
        self.tail = ""
        self._phases = phases
        self._done = done
        self._line = ""
        self._next = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def hear(self, content: bytes) -> list[str]:
        """Process new output; returns the phases that started, in order.

        A phase starts once; patterns of earlier phases are then ignored.
        """
        text = self._decoder.decode(content)
        self.tail = (self.tail + text)[-_KEPT:]
        *lines, self._line = (self._line + text).replace("\r", "\n").split("\n")
        begun = []
        for line in map(domains.clean_console, (*lines, self._line)):
            self.is_done = self.is_done or self._done in line
            for number in range(self._next, len(self._phases)):
                if re.search(self._phases[number].sees, line):
                    self._next = number + 1
                    self.phase = self._phases[number].name
                    begun.append(self.phase)
                    break
        return begun

    @property
    def end(self) -> str:
        """The last lines, for a message."""
        return domains.console_tail(self.tail) or " it printed nothing"


class LibvirtInstaller:
    """Runs installations on one hypervisor: an :class:`lab.machines.images.job.Installer`."""

    def __init__(self, host: Host, management: IPv4Network = MANAGEMENT) -> None:
        """Use a hypervisor; it is connected to when the first installation runs.

        ``management``: the range for guests that the controller must reach.
        """
        self._host = host
        self._management = management

    @property
    def windows(self) -> InstallationSite:
        """The site for Windows, with a separate connection that receives reboot events."""
        return WindowsInstaller(self._host.hypervisor, self._management)

    def install(
        self,
        installation: Installation,
        disk: Path,
        tell: Callable[[str], None],
        console: Callable[[bytes], None],
    ) -> None:
        """Run the installation and download the finished disk; see the protocol."""
        recipe, parts = installation.recipe, installation.parts
        action = f"installing image '{recipe.name}'"
        with self._host.explain_errors(action):
            _require_architecture(self._host, recipe.architecture, action)
        with (
            self._host.explain_errors(action),
            storage.scratch_pool(self._host.connected, self._host.hypervisor, "install") as pool,
        ):
            self._upload(pool, installation, tell)
            screen = InstallationConsole(parts.phases, parts.done)
            tell(f"starting the installer on hypervisor '{self._host.name}'")
            domain = self._start(pool, installation)

            def hear(text: bytes) -> None:
                console(text)
                for phase in screen.hear(text):
                    tell(phase)

            try:
                _follow(pool, domain, installation, screen, hear)
            finally:
                if _is_running(domain):
                    with connection.ignore("VIR_ERR_NO_DOMAIN", "VIR_ERR_OPERATION_INVALID"):
                        domain.destroy()
            if not screen.is_done:
                raise BrokenError(
                    action,
                    f"the machine stopped while {screen.phase}, without printing "
                    f"'{parts.done}'; the end of its console:{screen.end}",
                )
            tell("downloading the finished disk")
            storage.copy_out(pool, _DISK, disk)

    def _upload(
        self,
        pool: libvirt.virStoragePool,
        installation: Installation,
        tell: Callable[[str], None],
    ) -> None:
        files = {"kernel": installation.kernel, "initrd": installation.initrd}
        files |= {f"medium{number}": path for number, path in enumerate(installation.media)}
        size = sum(path.stat().st_size for path in files.values())
        _require_room(self._host, pool, installation.recipe.name, "its media take", size)
        for name, path in files.items():
            tell(f"uploading {path.name}, {path.stat().st_size >> 20} MiB")
            storage.copy_in(pool, name, path)
        pool.createXML(documents.volume(_DISK, installation.recipe.disk_gib * _GIB, "qcow2"))

    def _start(self, pool: libvirt.virStoragePool, installation: Installation) -> libvirt.virDomain:
        recipe, parts = installation.recipe, installation.parts
        directory = storage.directory_of(pool)
        media = range(len(installation.media))
        machine = VirtualMachine(
            kind="installer",
            name=pool.name(),
            title=f"installation of image {recipe.name}; it ends with its command",
            accelerated=self._host.accelerated,
            vcpus=parts.vcpus,
            memory_mib=parts.memory_mib,
            firmware=recipe.firmware,
            nvram=f"{directory}/firmware.fd",
            kernel=f"{directory}/kernel",
            initrd=f"{directory}/initrd",
            arguments=installation.arguments,
            disk=f"{directory}/{_DISK}",
            discs=tuple(Disc(f"{directory}/medium{number}") for number in media),
            console_log=f"{directory}/{_CONSOLE}",
            user_network=parts.mirror is not None,
        )
        flags = connection.load().VIR_DOMAIN_START_AUTODESTROY
        return self._host.connected.createXML(documents.domain(machine), flags)


def _follow(
    pool: libvirt.virStoragePool,
    domain: libvirt.virDomain,
    installation: Installation,
    console: InstallationConsole,
    hear: Callable[[bytes], None],
) -> None:
    """Read the console until the machine stops."""
    read = 0

    def look() -> bool:
        nonlocal read
        gone = not _is_running(domain)  # first, so that its last output is read below
        content = storage.read(pool, _CONSOLE, read) or b""
        read += len(content)
        if content:
            hear(content)
        return gone

    action = f"waiting for the installation of image '{installation.recipe.name}'"
    try:
        installation.deadline.wait(action, look, every=_LOOK_SECONDS)
    except DeadlineError as error:
        raise DeadlineError(
            action,
            f"not done within {installation.deadline.seconds:g} s; last phase: {console.phase}; "
            f"the end of its console:{console.end}",
            "check whether the installer asks a question that its answer file does not cover",
        ) from error


def _is_running(domain: libvirt.virDomain) -> bool:
    with connection.ignore("VIR_ERR_NO_DOMAIN"):  # transient: it no longer exists
        return bool(domain.isActive())
    return False
