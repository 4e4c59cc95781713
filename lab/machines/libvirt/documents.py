"""libvirt's XML documents for a lab's objects, rendered from templates. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from jinja2 import Environment

    from lab.machines.images.golden import Firmware

TEMPLATES = Path(__file__).with_name("templates")
GATEWAY_OFFSET = 1
"""Offset of the hypervisor's address in a management range."""
FIRST_GUEST_OFFSET = 10
HYPERV = (
    *("relaxed", "vapic", "spinlocks", "vpindex", "runtime", "synic", "stimer", "reset"),
    *("frequencies", "reenlightenment", "tlbflush", "ipi"),
)
"""Hyper-V enlightenments for Windows, if the host offers them. Left out: ``evmcs`` is Intel only,
and ``avic`` requires a certain interrupt controller."""


@dataclass(frozen=True, slots=True)
class Card:
    """One network card of a machine, and the libvirt network it is connected to."""

    mac: str
    network: str
    mtu: int | None
    """Announced to the guest (VIRTIO_NET_F_MTU); None to leave it to the network."""


@dataclass(frozen=True, slots=True)
class Disc:
    """A CD drive with a read-only medium; drives keep their order."""

    path: str | None
    """Path on the hypervisor; None for an empty drive."""
    below: str | None = None
    """The ISO image beneath, if the file at ``path`` is a qcow2 overlay."""
    foreign: bool = False
    """True if the ISO image is the user's; its owner and mode are not changed."""
    boots: bool = False
    """True if the firmware may boot it, after the disk."""


@dataclass(frozen=True, slots=True)
class VirtualMachine:
    """One virtual machine, without its ownership mark. Paths are on the hypervisor."""

    kind: Literal["linux", "windows", "installer"]
    """``installer`` is a transient machine that installs Linux; Windows is installed in
    ``windows``."""
    name: str
    title: str
    accelerated: bool
    vcpus: int
    memory_mib: int
    firmware: Firmware
    disk: str
    console_log: str
    discs: tuple[Disc, ...]
    """For Linux: the seed, and the medium with Kubernetes if there is a cluster."""
    cards: tuple[Card, ...] = ()
    uuid: str = ""
    """Empty to let libvirt choose."""
    kernel: str | None = None
    """With ``initrd`` and ``arguments``, for direct kernel boot."""
    initrd: str | None = None
    arguments: str = ""
    nvram: str = ""
    """File for the UEFI variables; empty for libvirt's default."""
    storage: Literal["virtio", "sata"] = "virtio"
    """Type of disk and network cards; ``sata`` implies e1000e."""
    hyperv: tuple[str, ...] = ()
    """Those of :data:`HYPERV` that the hypervisor offers; used only with KVM."""
    disposable: bool = False
    """True if losing the disk in a power failure is acceptable, because it is rebuilt."""
    user_network: bool = False
    """For an installer: True to reach the hypervisor's network through QEMU's NAT."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A machine's reserved management address."""

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
    """The document of a virtual machine; ``metadata`` is its ownership mark as XML."""
    return _fill(f"{machine.kind}.xml", metadata, **asdict(machine))


def trial_domain(name: str, *, kvm: bool) -> str:
    """The tiny guest whose firmware output shows whether guests run at all."""
    return _fill("trial.xml", name=name, kvm=kvm)


def empty_drive(target: str) -> str:
    """The CD drive of that name, empty."""
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
    """A NAT network over which the controller reaches machines at reserved addresses."""
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
    """A segment's network: a bridge without an address of the hypervisor."""
    return _fill("segment.xml", metadata, name=name, uuid=uuid, bridge=bridge, mtu=mtu)


def pool(name: str, uuid: str, path: str) -> str:
    """A storage pool for a directory on the hypervisor."""
    return _fill("pool.xml", name=name, uuid=uuid, path=path)


def volume(name: str, capacity: int, form: str, backing: str | None = None) -> str:
    """A volume of ``capacity`` bytes; ``backing`` is the path of its backing image."""
    return _fill("volume.xml", name=name, capacity=capacity, format=form, backing=backing)


def guest_address(subnet: IPv4Network, number: int) -> IPv4Address:
    """The management address of machine ``number``, counted from 0."""
    return subnet[FIRST_GUEST_OFFSET + number]
