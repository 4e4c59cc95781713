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


@dataclass(frozen=True, slots=True)
class Installation:
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


def installation(spec: Installation) -> str:
    """The document of a virtual machine that runs an installer."""
    return _fill("installation.xml", None, **asdict(spec))


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
