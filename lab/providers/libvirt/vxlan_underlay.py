"""The networks of a lab between hypervisors: VXLAN devices in the hypervisors' own kernels.

On every hypervisor that has machines on the network, a VXLAN device is a port of the network's
bridge. What no entry is known for is sent to every other one (head-end replication), and
addresses are learned: the devices need to know nothing of the machines. Whose a device is, its
alias says, which the kernel keeps with it. A hypervisor needs iproute2 (4.13 or newer, for JSON)
and the right to use it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qs, urlencode

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError
from lab.inventory import uri
from lab.inventory.inventory import Hypervisor
from lab.providers.libvirt import ownership
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.ownership import Owner
from lab.providers.provider import LabHandle
from lab.remote.parallel import run_jobs
from lab.remote.shell import Completed, Shell
from lab.topology.intent import Intent

FLOOD = "00:00:00:00:00:00"
"""A forwarding entry of this address says where frames to unknown addresses go."""
_MARK = "hybridlab?"
_ALIAS_BYTES = 255
"""IFALIASZ of linux/if.h, less its closing zero."""
_FOUND_BY_ANYONE = ("sh", "-c", 'PATH="$PATH:/usr/sbin:/sbin" exec "$@"', "sh")
"""A plain user's path over SSH has no sbin in it."""
_REFUSALS = (
    (
        ("Unknown device type", "Operation not supported"),
        "its kernel does not support VXLAN",
        "'modprobe vxlan' there, or a kernel with CONFIG_VXLAN; or keep the lab on one hypervisor",
    ),
    (
        (
            *("a password is required", "a terminal is required", "not in the sudoers"),
            *("not allowed", "ermission denied", "not permitted"),
        ),
        "this user may not change the network there",
        "log in as root, or let the user run 'ip', 'bridge' and 'unshare' by 'sudo -n' there",
    ),
    (
        ("not found", "No such file or directory"),
        "it lacks 'ip', 'bridge' or 'sudo'",
        "install iproute2 there (and sudo, unless you log in as root)",
    ),
)


@dataclass(frozen=True, slots=True)
class VxlanDevice:
    """A VXLAN device."""

    device: str
    vni: int
    port: int
    local: str
    learning: bool
    mtu: int
    bridge: str
    """Empty if it is not a port of one."""
    up: bool
    alias: str

    @property
    def owner(self) -> Owner | None:
        """Whose it is; None for a stranger's."""
        return read_alias(self.alias)

    def facets(self) -> Mapping[str, object]:
        """All of it that must be right, by name."""
        return {
            "VNI": self.vni,
            "port": self.port,
            "local address": self.local,
            "learning": self.learning,
            "MTU": self.mtu,
            "bridge": self.bridge or "none",
            "up": self.up,
        }

    def is_of(self, token: str, vni: int | None = None) -> bool:
        """Whether it is that lab's by its mark, or was made for it and not marked any more.

        Without a mark it is known by its name, or where ``vni`` is given by that.
        """
        if self.owner is not None:
            return self.owner.token == token
        if self.alias or self.port != PORT:
            return False
        named = ownership.is_tunnel_name(self.device, token)
        return named if vni is None else self.vni == vni


class VxlanDevices:
    """The devices of one hypervisor, by a shell on it."""

    def __init__(self, shell: Shell, deadline: Deadline) -> None:
        self._shell = shell
        self._deadline = deadline

    def vxlans(self) -> tuple[VxlanDevice, ...]:
        """Every VXLAN device, whoever's."""
        return tuple(_read_vxlans(self._asked("ip", "-details", "link", "show", "type", "vxlan")))

    def owned(self) -> tuple[tuple[str, Owner], ...]:
        """Every tunnel end that carries our mark, by device, and whose it is."""
        return tuple((one.device, one.owner) for one in self.vxlans() if one.owner)

    def used_vnis(self, token: str) -> frozenset[int]:
        """The VNIs that others than the lab use there on our port."""
        return frozenset(
            one.vni
            for one in self.vxlans()
            if one.port == PORT and (one.owner is None or one.owner.token != token)
        )

    def differences(self, end: TunnelEnd) -> tuple[str, ...]:
        """What of a tunnel end is not as it must be; empty when all is."""
        return tuple(self._differences(end, self._find(end.device)))

    def _find(self, device: str) -> VxlanDevice | None:
        return next((one for one in self.vxlans() if one.device == device), None)

    def _differences(self, end: TunnelEnd, found: VxlanDevice | None) -> Iterator[str]:
        what = f"tunnel end '{end.device}' on hypervisor '{end.host}'"
        if found is None:
            yield f"{what} is gone"
            return
        wanted = {
            "VNI": end.vni,
            "port": PORT,
            "local address": end.local,
            "learning": True,
            "MTU": end.mtu,
            "bridge": end.bridge,
            "up": True,
        }
        for facet, value in found.facets().items():
            if value != wanted[facet]:
                yield f"{what} has {facet} {value}, not {wanted[facet]}"
        if found.owner is None:
            yield f"{what} does not say whose it is"
        entries = self._asked("bridge", "fdb", "show", "dev", end.device)
        remotes = {one["dst"] for one in entries if one.get("mac") == FLOOD and "dst" in one}
        if remotes != set(end.remotes):
            yield f"{what} leads to {sorted(remotes)}, not {sorted(end.remotes)}"

    def ensure(self, end: TunnelEnd, owner: Owner) -> bool:
        """Have the tunnel end as it must be; whether anything had to be done.

        Raises PreflightError when this user may not make it, or the kernel has no VXLAN. Raises
        BrokenError when a stranger's device has its name, or the network's bridge is not there.
        """
        doing = f"extending network '{end.segment}' to hypervisor '{end.host}'"
        found = self._find(end.device)
        if not list(self._differences(end, found)):
            return False
        if found is not None:
            if not found.is_of(owner.token, end.vni):
                raise BrokenError(
                    doing,
                    f"device '{end.device}' exists and is not this lab's",
                    f"find out whose it is: 'ip -details link show {end.device}'",
                )
            self._delete(end.device, doing)
        self._changed(doing, "ip", "-batch", "-", lines=_commands(end, owner))
        flood = [f"fdb append {FLOOD} dev {end.device} dst {remote}" for remote in end.remotes]
        self._changed(doing, "bridge", "-batch", "-", lines=flood)
        return True

    def remove(self, token: str, keep: Collection[str] = ()) -> tuple[str, ...]:
        """Remove the lab's tunnel ends but those to keep; their names. Safe to repeat."""
        gone = [one.device for one in self.vxlans() if one.is_of(token) and one.device not in keep]
        for device in gone:
            self._delete(device, f"removing tunnel end '{device}'")
        return tuple(gone)

    def require(self, hypervisor: Hypervisor) -> None:
        """See that the hypervisor can be one end of tunnels; nothing is made that stays.

        Raises PreflightError when it cannot: no right to, no VXLAN, another address or a smaller
        MTU than the inventory says.
        """
        add = ("ip", "link", "add", "probe", "type", "vxlan", "id", "1", "dstport", "4789")
        self._changed("trying a VXLAN device", "unshare", "--net", *add)
        address = tunnel_address(hypervisor)
        doing = f"looking for the uplink of hypervisor '{hypervisor.name}'"
        held = [
            link
            for link in self._asked("ip", "address", "show", "to", f"{address}/32")
            if link.get("addr_info")
        ]
        if not held:
            raise PreflightError(
                doing,
                f"none of its devices has the address {address}",
                f"give '{hypervisor.name}' in the inventory the 'address' by which the other "
                "hypervisors reach it",
            )
        device, mtu = held[0]["ifname"], int(held[0]["mtu"])
        if mtu < hypervisor.mtu:
            raise PreflightError(
                doing,
                f"its device '{device}' has an MTU of {mtu}, but the inventory says "
                f"{hypervisor.mtu}",
                f"write 'mtu = {mtu}' for '{hypervisor.name}' into the inventory",
            )

    def _delete(self, device: str, doing: str) -> None:
        """Remove a device, which others may have removed meanwhile."""
        done = self._run(*self._as_root, "ip", "link", "delete", "dev", device)
        if done.code != 0 and "Cannot find device" not in done.stderr:
            _raise_refusal(doing, done)

    @cached_property
    def _as_root(self) -> tuple[str, ...]:
        return () if self._run("id", "-u").stdout.strip() == "0" else ("sudo", "-n")

    def _run(self, *command: str, lines: Sequence[str] = ()) -> Completed:
        stdin = "".join(f"{line}\n" for line in lines).encode()
        return self._shell.run((*_FOUND_BY_ANYONE, *command), self._deadline, stdin)

    def _asked(self, program: str, *words: str) -> list[dict[str, Any]]:
        done = self._run(program, "-json", *words)
        doing = f"reading what '{program} {' '.join(words)}' says on a hypervisor"
        if done.code != 0:
            _raise_refusal(doing, done)
        try:
            return [one for one in json.loads(done.stdout or "[]") if one]
        except ValueError as error:
            raise PreflightError(
                doing, f"no JSON: {done.stdout[:80]!r}", "iproute2 4.13 or newer there"
            ) from error

    def _changed(self, doing: str, *command: str, lines: Sequence[str] = ()) -> None:
        done = self._run(*self._as_root, *command, lines=lines)
        if done.code != 0:
            _raise_refusal(doing, done)


def write_alias(owner: Owner) -> str:
    """The alias that says whose a device is; the lab's directory only where it fits."""
    facts = {
        "lab": owner.lab,
        "token": owner.token,
        "controller": owner.controller,
        "created": f"{owner.created:.0f}",
        **({} if owner.expires is None else {"expires": f"{owner.expires:.0f}"}),
    }
    text = _MARK + urlencode(facts)
    for name, value in (("directory", str(owner.directory)), ("owner", owner.owner)):
        longer = f"{text}&{urlencode({name: value}, safe='/@')}"
        if len(longer) <= _ALIAS_BYTES:
            text = longer
    return text


def read_alias(alias: str) -> Owner | None:
    """Whose a device with this alias is; None for a stranger's."""
    if not alias.startswith(_MARK):
        return None
    found = {name: values[0] for name, values in parse_qs(alias.removeprefix(_MARK)).items()}
    try:
        return Owner(
            lab=found["lab"],
            token=found["token"],
            directory=Path(found.get("directory", "")),
            controller=found["controller"],
            owner=found.get("owner", ""),
            created=float(found["created"]),
            expires=float(found["expires"]) if "expires" in found else None,
        )
    except (KeyError, ValueError):
        return None


def _read_vxlans(links: Sequence[dict[str, Any]]) -> Iterator[VxlanDevice]:
    for link in links:
        info = link.get("linkinfo", {})
        if info.get("info_kind") != "vxlan":  # a kernel without the kind shows every device
            continue
        data = info.get("info_data", {})
        yield VxlanDevice(
            device=link["ifname"],
            vni=int(data.get("id", 0)),
            port=int(data.get("port", 0)),
            local=data.get("local", ""),
            learning=bool(data.get("learning", False)),
            mtu=int(link["mtu"]),
            bridge=link.get("master", ""),
            up="UP" in link.get("flags", ()),
            alias=link.get("ifalias", ""),
        )


def _raise_refusal(doing: str, done: Completed) -> NoReturn:
    said = " ".join(done.stderr.split()) or f"exit {done.code}"
    for signs, why, hint in _REFUSALS:
        if any(sign in said for sign in signs):
            raise PreflightError(doing, f"{why}: {said}", hint)
    raise BrokenError(doing, said)


PORT = 14789
"""UDP, of the tunnels between hypervisors. Not 4789 (IANA's for VXLAN, Calico's and Docker's)
nor 8472 (flannel's and Cilium's), so that a hypervisor which runs one of those keeps its own
port and its own VNIs; below Linux' ephemeral ports (32768), and in nobody's /etc/services."""
_TTL = 64
"""Between hypervisors there may be routers."""
_VNIS = (1 << 24) - 1
"""VNIs are 24 bits wide (RFC 7348, section 5); 0 is left out."""


@dataclass(frozen=True, slots=True)
class TunnelEnd:
    """One end of one network's tunnels."""

    host: str
    segment: str
    device: str
    bridge: str
    vni: int
    local: str
    remotes: tuple[str, ...]
    mtu: int


def joined_hypervisors(
    intent: Intent, machines: Mapping[str, str]
) -> Mapping[str, tuple[str, ...]]:
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


def plan_tunnels(
    lab: LabHandle,
    intent: Intent,
    machines: Mapping[str, str],
    ends: Mapping[str, str],
    taken: Collection[int] = (),
) -> tuple[TunnelEnd, ...]:
    """Every tunnel end that the lab needs.

    ``machines`` has each one's hypervisor, ``ends`` the address of each hypervisor's end, and
    ``taken`` the VNIs that others use on any of them.
    """
    mtus = {segment.name: segment.mtu for segment in intent.segments}
    carriers: list[TunnelEnd] = []
    used = set(taken)
    for segment, hosts in joined_hypervisors(intent, machines).items():
        number = choose_vni(lab.token, segment, used)
        used.add(number)
        carriers += [
            TunnelEnd(
                host=host,
                segment=segment,
                device=ownership.tunnel_name(lab, segment),
                bridge=ownership.bridge_name(lab, segment),
                vni=number,
                local=ends[host],
                remotes=tuple(ends[other] for other in hosts if other != host),
                mtu=mtus[segment],
            )
            for host in hosts
        ]
    return tuple(carriers)


def choose_vni(token: str, segment: str, taken: Collection[int]) -> int:
    """The network's number: the same every time, and none of ``taken``."""
    seed = sha256(f"{token}/{segment}".encode()).digest()
    first = int.from_bytes(seed[:3], "big")
    return next(
        number
        for number in ((first + step) % _VNIS + 1 for step in range(_VNIS))
        if number not in taken
    )


def _commands(end: TunnelEnd, owner: Owner) -> tuple[str, ...]:
    device = end.device
    tunnel = f"local {end.local} dstport {PORT} ttl {_TTL} learning"
    return (
        f"link add {device} type vxlan id {end.vni} {tunnel}",
        f"link set dev {device} alias {write_alias(owner)}",
        f"link set dev {device} mtu {end.mtu} addrgenmode none",
        f"link set dev {device} master {end.bridge} up",
    )


def tunnel_address(hypervisor: Hypervisor) -> str:
    """The IPv4 address of a hypervisor's end of the tunnels.

    Raises PreflightError when the inventory has none and the host of its URI cannot be
    resolved.
    """
    if hypervisor.address is not None:
        return hypervisor.address
    host = uri.parse(hypervisor.uri).host
    doing = f"finding the address of hypervisor '{hypervisor.name}'"
    hint = f"give '{hypervisor.name}' an 'address' in the inventory"
    if host is None:
        raise PreflightError(doing, "its URI names no host", hint)
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_DGRAM)
    except OSError as error:
        raise PreflightError(doing, f"'{host}' of its URI: {error}", hint) from error
    return str(found[0][4][0])


_T = TypeVar("_T")
_TUNNELS_SECONDS = 60.0
"""For all hypervisors; the first connection to one took 10.8 s on a slow machine."""


@dataclass(frozen=True)
class VxlanUnderlay:
    """What joins the networks of a lab whose machines are on several hypervisors."""

    lab: LabHandle
    intent: Intent
    machines: Mapping[str, str]
    hosts: Mapping[str, Host]
    deadline: Deadline = field(default_factory=lambda: Deadline(_TUNNELS_SECONDS))

    def check(self) -> None:
        """See that every hypervisor that needs tunnels can have them; none is made.

        Raises PreflightError naming the hypervisor, what is in the way, and the fix.
        """
        self._on_each(lambda host: self._devices(host).require(host.hypervisor))

    def make(self, owner: Owner) -> tuple[str, ...]:
        """Have every tunnel end as it must be, and no other of this lab's; what was done.

        Raises PreflightError, BrokenError as :meth:`VxlanDevices.ensure` does.
        """
        wanted = self._planned()
        done = self._on_each(lambda host: self._make(host, wanted, owner))
        return tuple(line for lines in done.values() for line in lines)

    def differences(self) -> tuple[str, ...]:
        """What is not as it must be, in words; empty when all is, or none is needed."""
        wanted = self._planned()
        found = self._on_each(
            lambda host: [
                line
                for one in wanted
                if one.host == host.name
                for line in self._devices(host).differences(one)
            ]
        )
        return tuple(line for lines in found.values() for line in lines)

    def _joined(self) -> tuple[str, ...]:
        spans = joined_hypervisors(self.intent, self.machines)
        return tuple(dict.fromkeys(name for hosts in spans.values() for name in hosts))

    def _planned(self) -> tuple[TunnelEnd, ...]:
        ends = {name: tunnel_address(self.hosts[name].hypervisor) for name in self._joined()}
        taken = self._on_each(lambda host: self._devices(host).used_vnis(self.lab.token))
        numbers = frozenset[int]().union(*taken.values())
        return plan_tunnels(self.lab, self.intent, self.machines, ends, numbers)

    def _make(self, host: Host, wanted: tuple[TunnelEnd, ...], owner: Owner) -> list[str]:
        devices = self._devices(host)
        here = [one for one in wanted if one.host == host.name]
        removed = devices.remove(self.lab.token, {one.device for one in here})
        made = [one.device for one in here if devices.ensure(one, owner)]
        return [
            *(f"tunnel end '{device}' on '{host.name}' removed" for device in removed),
            *(f"tunnel end '{device}' on '{host.name}' made" for device in made),
        ]

    def _devices(self, host: Host) -> VxlanDevices:
        return VxlanDevices(host.shell, self.deadline)

    def _on_each(self, act: Callable[[Host], _T]) -> Mapping[str, _T]:
        jobs = {name: {name: partial(act, self.hosts[name])} for name in self._joined()}
        return run_jobs(jobs, {}, self.deadline)
