"""The network between hypervisors, as one of them is joined to it."""

from __future__ import annotations

import socket

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab.guests.shell import GuestShell
from lab.inventory import uri
from lab.inventory.inventory import Hypervisor
from lab.providers.libvirt.links import Links


def check(shell: GuestShell, hypervisor: Hypervisor, deadline: Deadline) -> None:
    """See that a hypervisor can be one end of tunnels; nothing is made that stays.

    Raises
    ------
    PreflightError
        When it cannot: no right to, no VXLAN, another address or a smaller MTU than the
        inventory says.

    """
    links = Links(shell, deadline)
    links.try_vxlan()
    address = tunnel_end(hypervisor)
    doing = f"looking for the uplink of hypervisor '{hypervisor.name}'"
    held = links.holds(address)
    if held is None:
        raise PreflightError(
            doing,
            f"none of its devices has the address {address}",
            f"give '{hypervisor.name}' in the inventory the 'address' by which the other "
            "hypervisors reach it",
        )
    device, mtu = held
    if mtu < hypervisor.mtu:
        raise PreflightError(
            doing,
            f"its device '{device}' has an MTU of {mtu}, and the inventory says {hypervisor.mtu}",
            f"write 'mtu = {mtu}' for '{hypervisor.name}' into the inventory",
        )


def tunnel_end(hypervisor: Hypervisor) -> str:
    """The IPv4 address of a hypervisor's end of the tunnels.

    Raises
    ------
    PreflightError
        When the inventory has none and the host of its URI is no address that can be found.

    """
    if hypervisor.address is not None:
        return hypervisor.address
    host = uri.parse(hypervisor.uri).host
    doing = f"finding the address of hypervisor '{hypervisor.name}'"
    cure = f"give '{hypervisor.name}' an 'address' in the inventory"
    if host is None:
        raise PreflightError(doing, "its URI names no host", cure)
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_DGRAM)
    except OSError as error:
        raise PreflightError(doing, f"'{host}' of its URI: {error}", cure) from error
    return str(found[0][4][0])
