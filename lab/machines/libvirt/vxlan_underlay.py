"""Connect a lab's networks across hypervisors with VXLAN devices in the hypervisors' kernels.

On every hypervisor with machines on the network, a VXLAN device is a port of the network's bridge.
Frames to unknown addresses go to every other hypervisor (head-end replication), and addresses are
learned, so the devices need no knowledge of the machines. A device's alias, stored by the kernel,
holds its ownership mark. A hypervisor needs iproute2 (4.13 or newer, for JSON) and permission to
use it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qsl, urlencode

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError
from lab.inventory import uri
from lab.inventory.inventory import Hypervisor
from lab.machines.libvirt import ownership
from lab.machines.libvirt.host import Host
from lab.machines.libvirt.ownership import Owner, read_facts
from lab.providers.provider import LabHandle
from lab.shells.parallel import run_jobs
from lab.shells.shell import Completed, Shell, command_words
from lab.topology.intent import Intent

FLOOD = "00:00:00:00:00:00"
"""The address of forwarding entries for frames to unknown addresses."""
_MARK = "hybridlab?"
_ALIAS_BYTES = 255
"""IFALIASZ of linux/if.h minus the terminating zero."""
_FOUND_BY_ANYONE = ("sh", "-c", 'PATH="$PATH:/usr/sbin:/sbin" exec "$@"', "sh")
"""An unprivileged user's PATH over SSH lacks the sbin directories."""
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
    """The bridge that it is a port of, or empty."""
    up: bool
    alias: str

    @property
    def owner(self) -> Owner | None:
        """Its ownership mark; None if it has none."""
        return read_alias(self.alias)

    def is_of(self, token: str, vni: int | None = None) -> bool:
        """True if it belongs to that lab by its mark, or has no mark but was made for the lab.

        Without a mark, it is recognised by its VNI if ``vni`` is given, else by its name.
        """
        if self.owner is not None:
            return self.owner.token == token
        if self.alias or self.port != PORT:
            return False
        named = ownership.is_tunnel_name(self.device, token)
        return named if vni is None else self.vni == vni


class VxlanDevices:
    """The VXLAN devices of one hypervisor, through a shell on it."""

    def __init__(self, shell: Shell, deadline: Deadline) -> None:
        self._shell = shell
        self._deadline = deadline

    def vxlans(self) -> tuple[VxlanDevice, ...]:
        """Every VXLAN device, of any owner."""
        return tuple(_read_vxlans(self._asked("ip", "-details", "link", "show", "type", "vxlan")))

    def used_vnis(self, token: str) -> frozenset[int]:
        """The VNIs used on our port there by anything but the lab."""
        return frozenset(
            vxlan.vni
            for vxlan in self.vxlans()
            if vxlan.port == PORT and (vxlan.owner is None or vxlan.owner.token != token)
        )

    def differences(self, end: TunnelEnd) -> tuple[str, ...]:
        """How a tunnel end differs from its specification; empty if it does not."""
        return tuple(self._differences(end, self._find(end.device)))

    def _find(self, device: str) -> VxlanDevice | None:
        return next((vxlan for vxlan in self.vxlans() if vxlan.device == device), None)

    def _differences(self, end: TunnelEnd, device: VxlanDevice | None) -> Iterator[str]:
        title = f"tunnel end '{end.device}' on hypervisor '{end.host}'"
        if device is None:
            yield f"{title} is gone"
            return
        for facet, value, wanted in (
            ("VNI", device.vni, end.vni),
            ("port", device.port, PORT),
            ("local address", device.local, end.local),
            ("learning", device.learning, True),
            ("MTU", device.mtu, end.mtu),
            ("bridge", device.bridge or "none", end.bridge),
            ("up", device.up, True),
        ):
            if value != wanted:
                yield f"{title} has {facet} {value} instead of {wanted}"
        if device.owner is None:
            yield f"{title} has no ownership mark"
        entries = self._asked("bridge", "fdb", "show", "dev", end.device)
        remotes = {
            entry["dst"] for entry in entries if entry.get("mac") == FLOOD and "dst" in entry
        }
        if remotes != set(end.remotes):
            yield f"{title} has remotes {sorted(remotes)} instead of {sorted(end.remotes)}"

    def ensure(self, end: TunnelEnd, owner: Owner) -> bool:
        """Create or repair the tunnel end; returns True if anything was changed.

        Raises PreflightError when this user may not create it, or the kernel lacks VXLAN. Raises
        BrokenError when a foreign device has its name, or the network's bridge does not exist.
        """
        action = f"extending network '{end.segment}' to hypervisor '{end.host}'"
        device = self._find(end.device)
        if not list(self._differences(end, device)):
            return False
        if device is not None:
            if not device.is_of(owner.token, end.vni):
                raise BrokenError(
                    action,
                    f"device '{end.device}' exists, but does not belong to this lab",
                    f"find out whose it is: 'ip -details link show {end.device}'",
                )
            self._delete(end.device, action)
        self._changed(action, "ip", "-batch", "-", lines=_commands(end, owner))
        flood = [f"fdb append {FLOOD} dev {end.device} dst {remote}" for remote in end.remotes]
        self._changed(action, "bridge", "-batch", "-", lines=flood)
        return True

    def remove(self, token: str, keep: Collection[str] = ()) -> tuple[str, ...]:
        """Remove the lab's tunnel ends except ``keep``; returns their names. Safe to repeat."""
        gone = [
            vxlan.device
            for vxlan in self.vxlans()
            if vxlan.is_of(token) and vxlan.device not in keep
        ]
        for device in gone:
            self._delete(device, f"removing tunnel end '{device}'")
        return tuple(gone)

    def require(self, hypervisor: Hypervisor) -> None:
        """Check that the hypervisor can be a tunnel end; leaves nothing behind.

        Raises PreflightError when it cannot: no permission, no VXLAN, or an address or MTU that
        contradicts the inventory.
        """
        add = ("ip", "link", "add", "probe", "type", "vxlan", "id", "1", "dstport", "4789")
        self._changed("trying a VXLAN device", "unshare", "--net", *add)
        address = tunnel_address(hypervisor)
        action = f"looking for the uplink of hypervisor '{hypervisor.name}'"
        held = [
            link
            for link in self._asked("ip", "address", "show", "to", f"{address}/32")
            if link.get("addr_info")
        ]
        if not held:
            raise PreflightError(
                action,
                f"none of its devices has the address {address}",
                f"set the 'address' of '{hypervisor.name}' in the inventory to one that the other "
                "hypervisors reach",
            )
        device, mtu = held[0]["ifname"], int(held[0]["mtu"])
        if mtu < hypervisor.mtu:
            raise PreflightError(
                action,
                f"its device '{device}' has an MTU of {mtu}, but the inventory says "
                f"{hypervisor.mtu}",
                f"write 'mtu = {mtu}' for '{hypervisor.name}' in the inventory",
            )

    def _delete(self, device: str, action: str) -> None:
        """Remove a device; no error if it is already gone."""
        done = self._run(*self._as_root, "ip", "link", "delete", "dev", device)
        if done.code != 0 and "Cannot find device" not in done.stderr:
            _raise_refusal(action, done)

    @cached_property
    def _as_root(self) -> tuple[str, ...]:
        return () if self._run("id", "-u").stdout.strip() == "0" else ("sudo", "-n")

    def _run(self, *command: str, lines: Sequence[str] = ()) -> Completed:
        stdin = "".join(f"{line}\n" for line in lines).encode()
        return self._shell.run((*_FOUND_BY_ANYONE, *command), self._deadline, stdin)

    def _asked(self, program: str, *words: str) -> list[dict[str, Any]]:
        done = self._run(program, "-json", *words)
        action = f"running {command_words((program, *words))} on a hypervisor"
        if done.code != 0:
            _raise_refusal(action, done)
        try:
            return [entry for entry in json.loads(done.stdout or "[]") if entry]
        except ValueError as error:
            raise PreflightError(
                action, f"not JSON: {done.stdout[:80]!r}", "install iproute2 4.13 or newer there"
            ) from error

    def _changed(self, action: str, *command: str, lines: Sequence[str] = ()) -> None:
        done = self._run(*self._as_root, *command, lines=lines)
        if done.code != 0:
            _raise_refusal(action, done)


def write_alias(owner: Owner) -> str:
    """The alias with a device's ownership mark; includes directory and owner only if they fit."""
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
    """The ownership mark in an alias; None if it has none."""
    if not alias.startswith(_MARK):
        return None
    facts = dict(parse_qsl(alias.removeprefix(_MARK)))
    named = {"name": facts["lab"]} if "lab" in facts else {}
    return read_facts({"directory": "", "owner": "", **named, **facts})


def _read_vxlans(links: Sequence[dict[str, Any]]) -> Iterator[VxlanDevice]:
    for link in links:
        info = link.get("linkinfo", {})
        if info.get("info_kind") != "vxlan":  # a kernel without VXLAN lists every device
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


def _raise_refusal(action: str, done: Completed) -> NoReturn:
    message = " ".join(done.stderr.split()) or f"exit {done.code}"
    for signs, why, hint in _REFUSALS:
        if any(sign in message for sign in signs):
            raise PreflightError(action, f"{why}: {message}", hint)
    raise BrokenError(action, message)


PORT = 14789
"""UDP port of the tunnels between hypervisors. Not 4789 (IANA's for VXLAN; Calico, Docker) or 8472
(flannel, Cilium), so it does not conflict with a hypervisor that runs one of those; below Linux'
ephemeral ports (32768), and in no /etc/services."""
_TTL = 64
"""There may be routers between hypervisors."""
_VNIS = (1 << 24) - 1
"""VNIs have 24 bits (RFC 7348, section 5); 0 is not used."""


@dataclass(frozen=True, slots=True)
class TunnelEnd:
    """One hypervisor's end of one network's tunnels."""

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
    """The segments with machines on several hypervisors, with those hypervisors in order."""
    hosts_by_segment: dict[str, tuple[str, ...]] = {}
    for segment in intent.segments:
        hosts = dict.fromkeys(
            machines[machine.name]
            for machine in intent.machines
            if any(card.segment == segment.name for card in machine.interfaces)
        )
        if len(hosts) > 1:
            hosts_by_segment[segment.name] = tuple(hosts)
    return hosts_by_segment


def plan_tunnels(
    lab: LabHandle,
    intent: Intent,
    machines: Mapping[str, str],
    ends: Mapping[str, str],
    taken: Collection[int] = (),
) -> tuple[TunnelEnd, ...]:
    """Every tunnel end that the lab needs.

    ``machines`` maps machines to hypervisors, ``ends`` maps hypervisors to tunnel addresses, and
    ``taken`` contains the VNIs used by others on any of them.
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
    """The network's VNI: deterministic, and not in ``taken``."""
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
    """The IPv4 address of a hypervisor's tunnel ends.

    Raises PreflightError when the inventory has none and the host of its URI cannot be
    resolved.
    """
    if hypervisor.address is not None:
        return hypervisor.address
    host = uri.parse(hypervisor.uri).host
    action = f"finding the address of hypervisor '{hypervisor.name}'"
    hint = f"give '{hypervisor.name}' an 'address' in the inventory"
    if host is None:
        raise PreflightError(action, "its URI names no host", hint)
    try:
        addresses = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_DGRAM)
    except OSError as error:
        raise PreflightError(action, f"cannot resolve '{host}': {error}", hint) from error
    return str(addresses[0][4][0])


_T = TypeVar("_T")
_TUNNELS_SECONDS = 60.0
"""For all hypervisors; the first connection to one took 10.8 s on a slow machine."""


@dataclass(frozen=True)
class VxlanUnderlay:
    """The tunnels of a lab whose machines are on several hypervisors."""

    lab: LabHandle
    intent: Intent
    machines: Mapping[str, str]
    hosts: Mapping[str, Host]
    deadline: Deadline = field(default_factory=lambda: Deadline(_TUNNELS_SECONDS))

    def check(self) -> None:
        """Check that every hypervisor that needs tunnels supports them; creates none.

        Raises PreflightError naming the hypervisor, the obstacle and the fix.
        """
        self._on_each(lambda host: self._devices(host).require(host.hypervisor))

    def make(self, owner: Owner) -> tuple[str, ...]:
        """Create and repair tunnel ends, and remove the lab's others; returns what was done.

        Raises as :meth:`VxlanDevices.ensure`.
        """
        wanted = self._planned()
        done = self._on_each(lambda host: self._make(host, wanted, owner))
        return tuple(line for lines in done.values() for line in lines)

    def differences(self) -> tuple[str, ...]:
        """How tunnel ends differ from the plan; empty if they do not, or none is needed."""
        wanted = self._planned()
        lines_by_host = self._on_each(
            lambda host: [
                line
                for end in wanted
                if end.host == host.name
                for line in self._devices(host).differences(end)
            ]
        )
        return tuple(line for lines in lines_by_host.values() for line in lines)

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
        here = [end for end in wanted if end.host == host.name]
        removed = devices.remove(self.lab.token, {end.device for end in here})
        made = [end.device for end in here if devices.ensure(end, owner)]
        return [
            *(f"tunnel end '{device}' on '{host.name}' removed" for device in removed),
            *(f"tunnel end '{device}' on '{host.name}' created" for device in made),
        ]

    def _devices(self, host: Host) -> VxlanDevices:
        return VxlanDevices(host.shell, self.deadline)

    def _on_each(self, act: Callable[[Host], _T]) -> Mapping[str, _T]:
        jobs = {name: {name: partial(act, self.hosts[name])} for name in self._joined()}
        return run_jobs(jobs, {}, self.deadline)
