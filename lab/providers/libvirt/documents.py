"""libvirt's XML documents for a lab's objects: templates filled in. Pure.

The templates beside this module are what a person would write by hand.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from jinja2 import Environment

    from lab.imaging.golden import Firmware

TEMPLATES = Path(__file__).with_name("templates")
GATEWAY_OFFSET = 1
"""The hypervisor's own address in a management range."""
FIRST_GUEST_OFFSET = 10
HYPERV = (
    *("relaxed", "vapic", "spinlocks", "vpindex", "runtime", "synic", "stimer", "reset"),
    *("frequencies", "reenlightenment", "tlbflush", "ipi"),
)
"""Hyper-V enlightenments that Windows gets where the host offers them. Left out: ``evmcs``
is Intel's alone and ``avic`` wants a certain interrupt controller."""


@dataclass(frozen=True, slots=True)
class Card:
    """One network card of a machine: which libvirt network it is plugged into."""

    mac: str
    network: str
    mtu: int | None
    """The card tells the guest (VIRTIO_NET_F_MTU); None to leave it to the network."""


@dataclass(frozen=True, slots=True)
class Disc:
    """A read-only medium in a drive of its own; the drives are in order."""

    path: str | None
    """The hypervisor's; None for an empty drive."""
    below: str | None = None
    """The ISO image that the file at ``path`` is an overlay of (qcow2)."""
    foreign: bool = False
    """Whether the ISO image is the user's: its owner and mode are left as they are."""
    boots: bool = False
    """Whether the firmware may start it, after the disk."""


@dataclass(frozen=True, slots=True)
class VirtualMachine:
    """All of one virtual machine but its mark. Paths are the hypervisor's."""

    kind: Literal["linux", "windows", "installer"]
    """``installer`` for one of Linux: a transient machine. Windows is installed in its own kind."""
    name: str
    title: str
    accelerated: bool
    vcpus: int
    memory_mib: int
    firmware: Firmware
    disk: str
    console_log: str
    discs: tuple[Disc, ...]
    """Of Linux machines the seed, and the medium with Kubernetes on it if there is a cluster."""
    cards: tuple[Card, ...] = ()
    uuid: str = ""
    """Empty for one of libvirt's choice."""
    kernel: str | None = None
    """With ``initrd`` and ``arguments``, for a machine that is started so."""
    initrd: str | None = None
    arguments: str = ""
    nvram: str = ""
    """Where UEFI keeps its variables; empty for libvirt's own place."""
    storage: Literal["virtio", "sata"] = "virtio"
    """Of disk and network cards; ``sata`` means e1000e, too."""
    hyperv: tuple[str, ...] = ()
    """Of :data:`HYPERV`, those that the hypervisor offers; used with KVM alone."""
    disposable: bool = False
    """Whether a loss of power may cost the disk: it is then made again."""
    user_network: bool = False
    """Of an installer: whether it reaches the network of the hypervisor, by QEMU's own NAT."""


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


def _fill(template: str, metadata: str = "", **values: Any) -> str:
    from markupsafe import Markup  # noqa: PLC0415  slow

    values["metadata"] = Markup(metadata)  # noqa: S704  written by ElementTree
    return _templates().get_template(template).render(values)


def domain(machine: VirtualMachine, metadata: str = "") -> str:
    """The document of a virtual machine; ``metadata`` is its mark, as XML."""
    return _fill(f"{machine.kind}.xml", metadata, **asdict(machine))


def trial_domain(name: str, *, kvm: bool) -> str:
    """The tiny guest whose firmware shows whether guests run at all."""
    return _fill("trial.xml", name=name, kvm=kvm)


def empty_drive(target: str) -> str:
    """The CD drive of that name with nothing in it."""
    return (
        f'<disk type="file" device="cdrom"><driver name="qemu" type="raw"/>'
        f'<target dev="{target}" bus="sata"/><readonly/></disk>'
    )


def nat_network(  # noqa: PLR0913  the parts of the document
    name: str,
    metadata: str,
    bridge: str,
    subnet: IPv4Network,
    hosts: tuple[Reservation, ...],
    *,
    mtu: int,
    uuid: str = "",
) -> str:
    """A network with NAT, by which the controller reaches machines at reserved addresses."""
    return _fill(
        "nat_network.xml",
        metadata,
        name=name,
        uuid=uuid,
        bridge=bridge,
        mtu=mtu,
        gateway=subnet[GATEWAY_OFFSET],
        prefix=subnet.prefixlen,
        hosts=hosts,
    )


def segment(name: str, metadata: str, bridge: str, *, mtu: int, uuid: str) -> str:
    """The network of a segment: a bridge, on which the hypervisor itself has no address."""
    return _fill("segment.xml", metadata, name=name, uuid=uuid, bridge=bridge, mtu=mtu)


def pool(name: str, uuid: str, path: str) -> str:
    """A directory of the hypervisor as a storage pool."""
    return _fill("pool.xml", name=name, uuid=uuid, path=path)


def volume(name: str, capacity: int, form: str, backing: str | None = None) -> str:
    """A volume of ``capacity`` bytes; ``backing`` is the path of the image it is a clone of."""
    return _fill("volume.xml", name=name, capacity=capacity, format=form, backing=backing)


def guest_address(subnet: IPv4Network, number: int) -> IPv4Address:
    """The management address of the machine with that number, counted from 0."""
    return subnet[FIRST_GUEST_OFFSET + number]
