"""What a hypervisor is and has, asked of libvirt, and of a shell there where there is one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from lab._deadline import Deadline
from lab._errors import LabError
from lab.inventory import uri
from lab.inventory.inventory import Hypervisor
from lab.providers.libvirt import acceleration, connection, networks, ownership, scratch, survey
from lab.providers.libvirt.acceleration import Trial
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.ownership import Owner
from lab.providers.libvirt.survey import Survey

if TYPE_CHECKING:
    import libvirt

_SHELL_SECONDS = 30.0
_PING_SECONDS = 15.0
_IP_AND_ICMP_BYTES = 28
_NO_SUCH_COMMAND = 127


@dataclass(frozen=True, slots=True)
class Storage:
    """Room in the file system of the storage directory."""

    free_gib: int | None
    refusal: str
    """Why there is none, as libvirt says it; empty where there is."""


@dataclass(frozen=True, slots=True)
class ShellFacts:
    """What a shell on the hypervisor shows."""

    survey: Survey | None
    refusal: str
    """Why there is none; empty where there is."""
    hint: str
    offset: float | None
    """Seconds that its clock is ahead of ours; None for this machine's own."""
    unreached: tuple[tuple[str, str], ...] = ()
    """Other hypervisors to which no packet of the inventory's MTU comes: name, why."""
    has_ping: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """All that is known of one hypervisor."""

    libvirt: int
    """As libvirt counts: 9,000,000 for 9.0.0."""
    qemu: int
    architecture: str
    threads: int
    memory_mib: int
    available_mib: int
    uefi: bool
    nested: bool
    trials: tuple[Trial, ...]
    storage: Storage
    networks: tuple[tuple[str, IPv4Network], ...]
    """Ranges of libvirt's networks that are not ours."""
    bridges: frozenset[str]
    """Devices of networks that are ours."""
    owners: tuple[Owner, ...]
    """Of all objects with our mark."""
    inside: ShellFacts


def gather(host: Host, peers: tuple[Hypervisor, ...]) -> Facts:
    """Ask for everything. A tiny guest is started, and nothing is left.

    Raises
    ------
    PreflightError
        When it cannot be reached.
    libvirt.libvirtError
        As libvirt refuses.

    """
    connected = host.connected
    info = connected.getInfo()
    stats = connected.getMemoryStats(-1)
    kib = sum(stats.get(part, 0) for part in ("free", "buffers", "cached"))
    capabilities = _capabilities(connected, "kvm") or _capabilities(connected, "qemu")
    ours, strangers = _networks(connected)
    return Facts(
        libvirt=int(connected.getLibVersion()),
        qemu=int(connected.getVersion()),
        architecture=str(info[0]),
        threads=int(info[2]),
        memory_mib=int(stats.get("total", info[1] * 1024)) // 1024,
        available_mib=kib // 1024,
        uefi="efi" in _values(capabilities, "os/enum[@name='firmware']/value"),
        nested=_is_nested(capabilities),
        trials=acceleration.tried_on(connected),
        storage=_storage(host),
        networks=strangers,
        bridges=ours,
        owners=tuple(owner for _, owner in host.owners()),
        inside=_inside(host, peers),
    )


def _storage(host: Host) -> Storage:
    library = connection.load()
    try:
        with scratch.pool(host.connected, host.hypervisor) as pool:
            return Storage(int(pool.info()[3]) >> 30, "")
    except library.libvirtError as error:
        return Storage(None, connection.reason(error))


def _capabilities(connected: libvirt.virConnect, kind: str) -> ET.Element | None:
    library = connection.load()
    try:
        document = connected.getDomainCapabilities(None, "x86_64", "q35", kind)
    except library.libvirtError:  # QEMU there has no such kind
        return None
    return ET.fromstring(document)  # noqa: S314  libvirt's own document


def _values(element: ET.Element | None, path: str) -> list[str]:
    return [] if element is None else [one.text or "" for one in element.iterfind(path)]


def _is_nested(capabilities: ET.Element | None) -> bool:
    """Whether guests are shown VT-x or AMD-V themselves."""
    if capabilities is None or capabilities.findtext("domain") != "kvm":
        return False
    shown = capabilities.iterfind("cpu/mode[@name='host-model']/feature[@policy='require']")
    return any(one.get("name") in {"vmx", "svm"} for one in shown)


def _networks(
    connected: libvirt.virConnect,
) -> tuple[frozenset[str], tuple[tuple[str, IPv4Network], ...]]:
    ours: set[str] = set()
    strangers: list[tuple[str, IPv4Network]] = []
    for network in connected.listAllNetworks():
        document = network.XMLDesc()
        bridge = ET.fromstring(document).find("bridge")  # noqa: S314  libvirt's own document
        if ownership.read(document) is None:
            strangers += [(network.name(), subnet) for subnet in networks.subnets(document)]
        elif bridge is not None:
            ours.add(bridge.get("name", ""))
    return frozenset(ours), tuple(strangers)


def _inside(host: Host, peers: tuple[Hypervisor, ...]) -> ShellFacts:
    try:
        shell = host.shell
        before = time.time()
        done = shell.run(("sh", "-c", survey.SCRIPT), Deadline(_SHELL_SECONDS))
        after = time.time()
        found = survey.read(done.stdout)
    except LabError as error:
        return ShellFacts(None, error.happened, error.hint, None)
    except ValueError:
        said = (done.stderr or done.stdout).strip().splitlines()
        hint = "install iproute2 there"
        return ShellFacts(None, f"it does not answer as expected: {said[-1:]}", hint, None)
    is_here = uri.parse(host.hypervisor.uri).host is None
    offset = None if is_here else found.clock - (before + after) / 2
    unreached = _unreached(host, peers)
    return ShellFacts(found, "", "", offset, tuple(unreached or ()), has_ping=unreached is not None)


def _unreached(host: Host, peers: tuple[Hypervisor, ...]) -> list[tuple[str, str]] | None:
    """Those that a packet as large as the inventory says does not come to; None without ping."""
    failed: list[tuple[str, str]] = []
    for peer in peers:
        address = peer.address or uri.parse(peer.uri).host or ""
        payload = min(peer.mtu, host.hypervisor.mtu) - _IP_AND_ICMP_BYTES
        command = ("ping", "-n", "-c", "3", "-i", "0.3", "-W", "2", "-M", "do")
        try:
            words = (*command, "-s", str(payload), address)
            done = host.shell.run(words, Deadline(_PING_SECONDS))
        except LabError as error:
            failed.append((peer.name, error.happened))
            continue
        if done.code == _NO_SUCH_COMMAND:
            return None
        if done.code != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            failed.append((peer.name, said[-1] if said else f"ping ends with {done.code}"))
    return failed
