"""The networks of a lab on one hypervisor: one for management, and one per segment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from ipaddress import IPv4Interface, IPv4Network
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from lab._errors import BrokenError, PreflightError
from lab.machines import management
from lab.machines.libvirt import connection, documents, ownership
from lab.machines.libvirt.documents import Reservation
from lab.machines.libvirt.ownership import Owner
from lab.machines.management import SUBNET_BITS
from lab.providers.provider import LabHandle

if TYPE_CHECKING:
    import libvirt

    from lab.topology.intent import Segment


def ensure_management(  # noqa: PLR0913  the network's owner and its settings
    connected: libvirt.virConnect,
    lab: LabHandle,
    owner: Owner,
    machines: Sequence[str],
    *,
    pool: IPv4Network,
    mtu: int,
) -> IPv4Network:
    """Create or start the lab's management network on this hypervisor; returns its range.

    Reserves an address for each of ``machines``, in this order. An existing network keeps its
    range; a new one takes the first /24 of ``pool`` that overlaps no other network or route of the
    hypervisor. Raises PreflightError if the whole pool is in use, libvirtError if libvirt refuses.
    """
    network = find(connected, lab, ownership.MANAGEMENT)
    if network is not None:
        _start(network)
        return subnet_of(network.XMLDesc())

    def document(subnet: IPv4Network) -> str:
        hosts = tuple(
            Reservation(
                machine,
                management.management_mac(lab, machine),
                str(documents.guest_address(subnet, at)),
            )
            for at, machine in enumerate(machines)
        )
        return documents.nat_network(
            ownership.network_name(lab, ownership.MANAGEMENT),
            ownership.owner_xml(owner),
            ownership.bridge_name(lab, ownership.MANAGEMENT),
            subnet,
            hosts,
            mtu=mtu,
            uuid=ownership.object_uuid(lab, "network", ownership.MANAGEMENT),
        )

    action = f"finding a management range for lab '{lab.name}'"
    return take_range(connected, pool, lab.token, document, action)


def take_range(
    connected: libvirt.virConnect,
    pool: IPv4Network,
    token: str,
    document: Callable[[IPv4Network], str],
    action: str,
) -> IPv4Network:
    """Create a network with the first free range of the pool; returns the range.

    ``token``: hex digits that determine where in the pool to start. ``document``: returns the
    network's XML for a range. ``action``: for the error.

    Raises PreflightError when the whole pool is in use. Raises libvirt.libvirtError.
    """
    last = "none was free"
    for subnet in _free(connected, pool, token):
        refusal = _make_network(connected, document(subnet))
        if refusal is None:
            return subnet
        last = f"{subnet}: {refusal}"
    raise PreflightError(
        action,
        f"every /{SUBNET_BITS} of {pool} is in use on host '{connected.getHostname()}'; {last}",
        "take unneeded labs down ('lab gc'), or give [management] another 'cidr'",
    )


def ensure_segment(
    connected: libvirt.virConnect, lab: LabHandle, owner: Owner, segment: Segment
) -> None:
    """Create or start a segment's network on this hypervisor, with the segment's MTU.

    Raises BrokenError when another object has its name. Raises libvirt.libvirtError.
    """
    network = find(connected, lab, segment.name)
    if network is not None and mtu_of(network.XMLDesc()) != segment.mtu:
        remove(network)
        network = None
    if network is not None:
        _start(network)
        return
    document = documents.segment(
        ownership.network_name(lab, segment.name),
        ownership.owner_xml(owner),
        ownership.bridge_name(lab, segment.name),
        mtu=segment.mtu,
        uuid=ownership.object_uuid(lab, "network", segment.name),
    )
    refusal = _make_network(connected, document)
    if refusal is not None:
        raise BrokenError(
            f"making network '{ownership.network_name(lab, segment.name)}'",
            refusal,
            f"find out what uses it: 'virsh net-list --all', "
            f"'ip link show {ownership.bridge_name(lab, segment.name)}'",
        )


def find(connected: libvirt.virConnect, lab: LabHandle, name: str) -> libvirt.virNetwork | None:
    """The lab's network for segment ``name``; None if there is none.

    Raises BrokenError when a foreign network has its name.
    """
    wanted = ownership.network_name(lab, name)
    network = connection.find(connected.networkLookupByName, wanted, "VIR_ERR_NO_NETWORK")
    if network is not None:
        ownership.require_owner(network.XMLDesc(), lab, f"network '{wanted}'")
    return network


def remove(network: libvirt.virNetwork) -> None:
    """Stop it and undefine it; safe if that has already happened."""
    for act in (network.destroy, network.undefine):
        with connection.ignore("VIR_ERR_NO_NETWORK", "VIR_ERR_OPERATION_INVALID"):
            act()


def subnet_of(document: str) -> IPv4Network:
    """The range of a network. Raises BrokenError if it has none."""
    subnet = next(subnets(document), None)
    if subnet is None:
        raise BrokenError("reading a management network", "it has no IPv4 range", "'lab down' it")
    return subnet


def addresses_of(document: str) -> dict[str, str]:
    """The reserved address of every machine, by name."""
    hosts = ET.fromstring(document).iterfind("ip/dhcp/host")  # noqa: S314  libvirt's own document
    return {host.get("name", ""): host.get("ip", "") for host in hosts}


def mtu_of(document: str) -> int | None:
    """Its configured MTU; None if it has none."""
    element = ET.fromstring(document).find("mtu")  # noqa: S314  libvirt's own document
    return None if element is None else int(element.get("size", "0"))


def subnets(document: str) -> Iterator[IPv4Network]:
    """The IPv4 ranges of a network."""
    for element in ET.fromstring(document).iterfind("ip"):  # noqa: S314  libvirt's own document
        if element.get("family", "ipv4") != "ipv4":
            continue
        length = element.get("prefix") or element.get("netmask") or "32"
        yield IPv4Interface(f"{element.get('address')}/{length}").network


def _free(connected: libvirt.virConnect, pool: IPv4Network, token: str) -> Iterator[IPv4Network]:
    others = connected.listAllNetworks()
    taken = [
        subnet
        for _, document in connection.each(others, lambda network: str(network.XMLDesc()))
        for subnet in subnets(document)
    ]
    for subnet in management.ranges(pool, token):
        if not any(subnet.overlaps(other) for other in taken):
            yield subnet


def _make_network(connected: libvirt.virConnect, document: str) -> str | None:
    """Define and start a network; returns None, or the conflict that prevents it."""
    library = connection.load()
    network: libvirt.virNetwork | None = None
    try:
        network = connected.networkDefineXML(document)  # fails if another network has the bridge
        _start(network)  # fails if the bridge or range is in use
    except library.libvirtError as error:
        if network is not None:
            remove(network)
        if connection.is_taken(error):
            return connection.reason(error)
        raise
    return None


def _start(network: libvirt.virNetwork) -> None:
    if not network.autostart():
        network.setAutostart(True)
    if not network.isActive():
        network.create()
