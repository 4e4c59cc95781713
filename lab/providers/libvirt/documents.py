"""libvirt's XML documents for a lab's objects: templates filled in. Pure.

The templates beside this module are what a person would write by hand.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lab.imaging.golden import Firmware
from lab.providers.libvirt import names, ownership
from lab.providers.libvirt.ownership import Owner
from lab.providers.provider import LabHandle

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).with_name("templates")
GATEWAY_OFFSET = 1
"""The hypervisor's own address in a management range."""
FIRST_GUEST_OFFSET = 10
SCRATCH_MTU = 1500
"""Of a network that no other hypervisor has a part of; Ethernet's own."""


@dataclass(frozen=True, slots=True)
class Card:
    """One network card of a machine: which libvirt network it is plugged into."""

    mac: str
    network: str
    mtu: int | None
    """Told to the guest by its card (VIRTIO_NET_F_MTU); None to leave it to the network."""


@dataclass(frozen=True, slots=True)
class Domain:
    """All of one virtual machine, but who it belongs to. Paths are the hypervisor's."""

    name: str
    uuid: str
    title: str
    accelerated: bool
    vcpus: int
    memory_mib: int
    firmware: Firmware
    kernel: str | None
    initrd: str | None
    arguments: str
    disk: str
    seed: str
    console_log: str
    cards: tuple[Card, ...]
    bundle: str | None = None
    """The medium with Kubernetes on it; None where pods are namespaces."""


@dataclass(frozen=True, slots=True)
class InstallerDomain:
    """A virtual machine that runs an installer."""

    name: str
    image: str
    accelerated: bool
    vcpus: int
    memory_mib: int
    firmware: Literal["bios", "uefi"]
    arguments: str
    directory: str
    """The hypervisor's, with the files disk, kernel, initrd, medium0 and so on."""
    media: int
    """How many there are."""
    network: bool


@dataclass(frozen=True, slots=True)
class Disc:
    """A CD in a drive of its own; the drives are SATA's, in order."""

    path: str | None
    """The hypervisor's; None for an empty drive."""
    below: str | None = None
    """The ISO image that the file at ``path`` lies on top of (qcow2)."""
    foreign: bool = False
    """Whether the ISO image is the user's: its owner and mode are left as they are."""
    boots: bool = False
    """Whether the firmware may start it, after the disk."""


@dataclass(frozen=True, slots=True)
class WindowsDomain:
    """A virtual machine for Windows: one that it is installed in, or one that it runs in.

    Paths are the hypervisor's.
    """

    name: str
    uuid: str
    title: str
    accelerated: bool
    hyperv: tuple[str, ...]
    """Of :data:`HYPERV`, those that the hypervisor offers."""
    vcpus: int
    memory_mib: int
    firmware: Literal["bios", "uefi"]
    nvram: str
    """Where UEFI keeps its variables."""
    storage: Literal["virtio", "sata"]
    """Of disk and network cards; ``sata`` stands for e1000e, too."""
    disk: str
    discs: tuple[Disc, ...]
    console_log: str
    cards: tuple[Card, ...]
    fleeting: bool = False
    """Whether a loss of power may cost the disk: it is made anew then."""


HYPERV = (
    "relaxed",
    "vapic",
    "spinlocks",
    "vpindex",
    "runtime",
    "synic",
    "stimer",
    "reset",
    "frequencies",
    "reenlightenment",
    "tlbflush",
    "ipi",
)
"""Hyper-V enlightenments that Windows is given where the host offers them. Left out: ``evmcs``
is Intel's alone and ``avic`` wants a certain interrupt controller."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The management address that a machine always gets."""

    name: str
    mac: str
    address: str


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415  slow

    return Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined
    )


def _fill(template: str, owner: Owner | None = None, **values: Any) -> str:
    from markupsafe import Markup  # noqa: PLC0415  slow

    if owner is not None:
        values["metadata"] = Markup(ownership.write(owner))  # noqa: S704  written by ElementTree
    return _templates().get_template(template).render(values)


def domain(spec: Domain, owner: Owner) -> str:
    """The document of a virtual machine."""
    return _fill("domain.xml", owner, **asdict(spec))


def installation(spec: InstallerDomain) -> str:
    """The document of a virtual machine that runs an installer."""
    return _fill("installation.xml", None, **asdict(spec))


def windows(spec: WindowsDomain, metadata: str) -> str:
    """The document of a virtual machine for Windows; ``metadata`` is its mark, as XML.

    Without KVM there are no enlightenments: they are KVM's.
    """
    from markupsafe import Markup  # noqa: PLC0415  slow

    values = asdict(spec)
    values["hyperv"] = spec.hyperv if spec.accelerated else ()
    values["metadata"] = Markup(metadata)  # noqa: S704  written by ElementTree
    return _fill("windows.xml", None, **values)


def empty_drive(target: str) -> str:
    """The CD drive of that name with nothing in it."""
    return (
        f'<disk type="file" device="cdrom"><driver name="qemu" type="raw"/>'
        f'<target dev="{target}" bus="sata"/><readonly/></disk>'
    )


def scratch_network(name: str, metadata: str, subnet: IPv4Network, host: Reservation) -> str:
    """A network with NAT for one machine for a while; ``metadata`` is its mark, as XML."""
    from markupsafe import Markup  # noqa: PLC0415  slow

    return _fill(
        "management.xml",
        None,
        name=name,
        metadata=Markup(metadata),  # noqa: S704  written by ElementTree
        uuid="",
        bridge=names.scratch_bridge(name),
        mtu=SCRATCH_MTU,
        gateway=subnet[GATEWAY_OFFSET],
        prefix=subnet.prefixlen,
        hosts=(host,),
    )


def management(
    lab: LabHandle,
    owner: Owner,
    subnet: IPv4Network,
    mtu: int,
    hosts: tuple[Reservation, ...],
) -> str:
    """The network with NAT by which the controller reaches the machines of one hypervisor."""
    return _fill(
        "management.xml",
        owner,
        name=names.network(lab, names.MANAGEMENT),
        uuid=names.uuid(lab, "network", names.MANAGEMENT),
        bridge=names.bridge(lab, names.MANAGEMENT),
        mtu=mtu,
        gateway=subnet[GATEWAY_OFFSET],
        prefix=subnet.prefixlen,
        hosts=hosts,
    )


def segment(lab: LabHandle, owner: Owner, name: str, mtu: int) -> str:
    """The network of a segment: a bridge, on which the hypervisor itself has no address."""
    return _fill(
        "segment.xml",
        owner,
        name=names.network(lab, name),
        uuid=names.uuid(lab, "network", name),
        bridge=names.bridge(lab, name),
        mtu=mtu,
    )


def pool(name: str, uuid: str, path: str) -> str:
    """A directory of the hypervisor as a storage pool."""
    return _fill("pool.xml", name=name, uuid=uuid, path=path)


def volume(name: str, capacity: int, form: str, backing: str | None = None) -> str:
    """A volume of ``capacity`` bytes; ``backing`` is the path of the image it is a clone of."""
    return _fill("volume.xml", name=name, capacity=capacity, format=form, backing=backing)


def guest_address(subnet: IPv4Network, number: int) -> IPv4Address:
    """The management address of the machine with that number, counted from 0."""
    return subnet[FIRST_GUEST_OFFSET + number]
