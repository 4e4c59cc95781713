"""One network of a lab, carried between hypervisors by VXLAN in their own kernels.

On every hypervisor that has machines on the network, a VXLAN device is a port of the network's
bridge. What no entry is known for is sent to every other one (head-end replication), and
addresses are learned: the devices need to know nothing of the machines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.providers.libvirt import names
from lab.providers.libvirt.links import Links, Vxlan, write_alias
from lab.providers.libvirt.ownership import Owner
from lab.providers.provider import LabHandle
from lab.remote.shell import Shell
from lab.topology.intent import Intent

PORT = 14789
"""UDP, of the tunnels between hypervisors. Not 4789 (IANA's for VXLAN, Calico's and Docker's)
nor 8472 (flannel's and Cilium's), so that a hypervisor which runs one of those keeps its own
port and its own VNIs; below Linux' ephemeral ports (32768), and in nobody's /etc/services."""
_TTL = 64
"""Between hypervisors there may be routers."""
_VNIS = (1 << 24) - 1
"""VNIs are 24 bits wide (RFC 7348, section 5); 0 is left out."""


@dataclass(frozen=True, slots=True)
class Carrier:
    """One end of one network's tunnels."""

    host: str
    """The hypervisor that has it."""
    segment: str
    device: str
    bridge: str
    vni: int
    local: str
    """The hypervisor's own address."""
    remotes: tuple[str, ...]
    """Those of all the others."""
    mtu: int


def spans(intent: Intent, machines: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """The segments with machines on several hypervisors, and those hypervisors, in order."""
    found: dict[str, tuple[str, ...]] = {}
    for segment in intent.segments:
        hosts = dict.fromkeys(
            machines[machine.name]
            for machine in intent.machines
            if any(card.segment == segment.name for card in machine.interfaces)
        )
        if len(hosts) > 1:
            found[segment.name] = tuple(hosts)
    return found


def plan(
    lab: LabHandle,
    intent: Intent,
    machines: Mapping[str, str],
    ends: Mapping[str, str],
    taken: Collection[int] = (),
) -> tuple[Carrier, ...]:
    """Every tunnel end that the lab needs.

    ``machines`` has each one's hypervisor, ``ends`` the address of each hypervisor's end, and
    ``taken`` the VNIs that others use on any of them.
    """
    mtus = {segment.name: segment.mtu for segment in intent.segments}
    carriers: list[Carrier] = []
    used = set(taken)
    for segment, hosts in spans(intent, machines).items():
        number = vni(lab.token, segment, used)
        used.add(number)
        carriers += [
            Carrier(
                host=host,
                segment=segment,
                device=names.carrier(lab, segment),
                bridge=names.bridge(lab, segment),
                vni=number,
                local=ends[host],
                remotes=tuple(ends[other] for other in hosts if other != host),
                mtu=mtus[segment],
            )
            for host in hosts
        ]
    return tuple(carriers)


def vni(token: str, segment: str, taken: Collection[int]) -> int:
    """The network's number: the same every time, and none of ``taken``."""
    seed = sha256(f"{token}/{segment}".encode()).digest()
    first = int.from_bytes(seed[:3], "big")
    return next(
        number
        for number in ((first + step) % _VNIS + 1 for step in range(_VNIS))
        if number not in taken
    )


def taken(shell: Shell, token: str, deadline: Deadline) -> frozenset[int]:
    """The VNIs that others than the lab use on that hypervisor."""
    return frozenset(
        one.vni
        for one in Links(shell, deadline).vxlans()
        if one.port == PORT and (one.owner is None or one.owner.token != token)
    )


def differences(shell: Shell, carrier: Carrier, deadline: Deadline) -> tuple[str, ...]:
    """What of a tunnel end is not as it must be; empty when all is."""
    return tuple(_differences(Links(shell, deadline), carrier))


def ensure(shell: Shell, carrier: Carrier, owner: Owner, deadline: Deadline) -> bool:
    """Have the tunnel end as it must be; whether anything had to be done.

    Raises
    ------
    PreflightError
        When this user may not make it, or the kernel has no VXLAN.
    BrokenError
        When a stranger's device has its name, or the network's bridge is not there.

    """
    links = Links(shell, deadline)
    doing = f"carrying network '{carrier.segment}' on hypervisor '{carrier.host}'"
    if not list(_differences(links, carrier)):
        return False
    found = links.vxlan(carrier.device)
    if found is not None and not _is_ours(found, carrier, owner.token):
        raise BrokenError(
            doing,
            f"there is a device '{carrier.device}' that is not of this lab",
            f"see whose it is: 'ip -details link show {carrier.device}'",
        )
    if found is not None:
        links.delete(carrier.device, doing)
    links.batch(_commands(carrier, owner), doing)
    links.flood(carrier.device, carrier.remotes, doing)
    return True


def remove(shell: Shell, token: str, deadline: Deadline) -> tuple[str, ...]:
    """Take away every tunnel end of the lab with that token; their names. Safe to repeat."""
    links = Links(shell, deadline)
    gone = [one.device for one in links.vxlans() if _of_lab(one, token)]
    for device in gone:
        links.delete(device, f"removing tunnel end '{device}'")
    return tuple(gone)


def remove_one(shell: Shell, device: str, deadline: Deadline) -> None:
    """Take one tunnel end away, which must be known to be ours."""
    Links(shell, deadline).delete(device, f"removing tunnel end '{device}'")


def marks(shell: Shell, deadline: Deadline) -> tuple[tuple[str, Owner], ...]:
    """Every tunnel end that carries our mark, by device, and whose it is."""
    return tuple((one.device, one.owner) for one in Links(shell, deadline).vxlans() if one.owner)


def _of_lab(found: Vxlan, token: str) -> bool:
    """The lab's by its mark, or by its name where whoever made it was cut off before marking."""
    if found.owner is not None:
        return found.owner.token == token
    return not found.alias and found.port == PORT and names.is_carrier(found.device, token)


def _is_ours(found: Vxlan, carrier: Carrier, token: str) -> bool:
    """Ours, or one that was cut off between being made and being marked."""
    if found.owner is not None:
        return found.owner.token == token
    return not found.alias and (found.vni, found.port) == (carrier.vni, PORT)


def _differences(links: Links, carrier: Carrier) -> Iterator[str]:
    found = links.vxlan(carrier.device)
    what = f"tunnel end '{carrier.device}' on hypervisor '{carrier.host}'"
    if found is None:
        yield f"{what} is gone"
        return
    wanted = Vxlan(
        device=carrier.device,
        vni=carrier.vni,
        port=PORT,
        local=carrier.local,
        learning=True,
        mtu=carrier.mtu,
        bridge=carrier.bridge,
        up=True,
        alias=found.alias,
    )
    for facet, value in found.facets():
        if value != (right := dict(wanted.facets())[facet]):
            yield f"{what} has {facet} {value}, not {right}"
    if found.owner is None:
        yield f"{what} does not say whose it is"
    remotes = links.flooded(carrier.device)
    if remotes != set(carrier.remotes):
        yield f"{what} leads to {sorted(remotes)}, not {sorted(carrier.remotes)}"


def _commands(carrier: Carrier, owner: Owner) -> tuple[str, ...]:
    device = carrier.device
    tunnel = f"local {carrier.local} dstport {PORT} ttl {_TTL} learning"
    return (
        f"link add {device} type vxlan id {carrier.vni} {tunnel}",
        f"link set dev {device} alias {write_alias(owner)}",
        f"link set dev {device} mtu {carrier.mtu} addrgenmode none",
        f"link set dev {device} master {carrier.bridge} up",
    )
