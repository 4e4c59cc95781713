"""VXLAN devices of a hypervisor, read and changed by its own ``ip`` and ``bridge``.

Whose a device is stands in its alias, which the kernel keeps with it. Nothing else is needed
on the hypervisor than iproute2 (4.13 or newer, for JSON) and the right to use it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlencode

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError
from lab.providers.libvirt.ownership import Owner
from lab.remote.shell import Completed, Shell

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
        "its kernel has no VXLAN",
        "'modprobe vxlan' there, or a kernel with CONFIG_VXLAN; or keep the lab on one hypervisor",
    ),
    (
        (
            *("a password is required", "a terminal is required", "not in the sudoers"),
            *("not allowed", "ermission denied", "not permitted"),
        ),
        "this user may not change its network",
        "log in as root, or let the user run 'ip', 'bridge' and 'unshare' by 'sudo -n' there",
    ),
    (
        ("not found", "No such file or directory"),
        "it lacks 'ip', 'bridge' or 'sudo'",
        "install iproute2 there (and sudo, unless you log in as root)",
    ),
)


@dataclass(frozen=True, slots=True)
class Vxlan:
    """A VXLAN device."""

    device: str
    vni: int
    port: int
    local: str
    learning: bool
    mtu: int
    bridge: str
    """Empty if it is no port of one."""
    up: bool
    alias: str

    @property
    def owner(self) -> Owner | None:
        """Whose it is; None for a stranger's."""
        return read_alias(self.alias)

    def facets(self) -> Iterator[tuple[str, object]]:
        """All of it that must be right, by name."""
        yield "VNI", self.vni
        yield "port", self.port
        yield "local address", self.local
        yield "learning", self.learning
        yield "MTU", self.mtu
        yield "bridge", self.bridge or "none"
        yield "up", self.up


class Links:
    """The devices of one hypervisor, by a shell on it."""

    def __init__(self, shell: Shell, deadline: Deadline) -> None:
        self._shell = shell
        self._deadline = deadline

    def vxlans(self) -> tuple[Vxlan, ...]:
        """Every VXLAN device, whoever's."""
        return tuple(_vxlans(self._asked("ip", "-details", "link", "show", "type", "vxlan")))

    def vxlan(self, device: str) -> Vxlan | None:
        """The VXLAN device of that name."""
        return next((one for one in self.vxlans() if one.device == device), None)

    def flooded(self, device: str) -> set[str]:
        """The addresses that frames to unknown MACs are sent to."""
        entries = self._asked("bridge", "fdb", "show", "dev", device)
        return {one["dst"] for one in entries if one.get("mac") == FLOOD and "dst" in one}

    def holds(self, address: str) -> tuple[str, int] | None:
        """The device that has the address, and its MTU; None if none has."""
        for link in self._asked("ip", "address", "show", "to", f"{address}/32"):
            if link.get("addr_info"):
                return str(link["ifname"]), int(link["mtu"])
        return None

    def try_vxlan(self) -> None:
        """Make a VXLAN device in a namespace that is gone the moment after.

        Raises
        ------
        PreflightError
            When it cannot be made, with the reason and the fix.

        """
        add = ("ip", "link", "add", "probe", "type", "vxlan", "id", "1", "dstport", "4789")
        self._changed("trying a VXLAN device", "unshare", "--net", *add)

    def delete(self, device: str, doing: str) -> None:
        """Take a device away; safe where it has gone meanwhile."""
        done = self._run(*self._as_root, "ip", "link", "delete", "dev", device)
        if done.code != 0 and "Cannot find device" not in done.stderr:
            _refuse(doing, done)

    def batch(self, commands: Sequence[str], doing: str) -> None:
        """Run ``ip`` commands, all or, where one fails, those before it."""
        self._changed(doing, "ip", "-batch", "-", lines=commands)

    def flood(self, device: str, addresses: Collection[str], doing: str) -> None:
        """Send frames to unknown MACs to all of the addresses."""
        lines = [f"fdb append {FLOOD} dev {device} dst {address}" for address in addresses]
        self._changed(doing, "bridge", "-batch", "-", lines=lines)

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
            _refuse(doing, done)
        try:
            return [one for one in json.loads(done.stdout or "[]") if one]
        except ValueError as error:
            raise PreflightError(
                doing, f"no JSON: {done.stdout[:80]!r}", "iproute2 4.13 or newer there"
            ) from error

    def _changed(self, doing: str, *command: str, lines: Sequence[str] = ()) -> None:
        done = self._run(*self._as_root, *command, lines=lines)
        if done.code != 0:
            _refuse(doing, done)


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


def _vxlans(links: Sequence[dict[str, Any]]) -> Iterator[Vxlan]:
    for link in links:
        info = link.get("linkinfo", {})
        if info.get("info_kind") != "vxlan":  # a kernel without the kind shows every device
            continue
        data = info.get("info_data", {})
        yield Vxlan(
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


def _refuse(doing: str, done: Completed) -> NoReturn:
    said = " ".join(done.stderr.split()) or f"exit {done.code}"
    for signs, why, hint in _REFUSALS:
        if any(sign in said for sign in signs):
            raise PreflightError(doing, f"{why}: {said}", hint)
    raise BrokenError(doing, said)
