"""What this machine can do of what a lab needs, tried in a scratch world gone a moment later.

Every finding is made by doing the thing itself: kernels without modules, containers and
hardened distributions cannot be known from version numbers.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import LabError
from lab.providers.netns import namespaces, nft, requests
from lab.providers.netns.entry import scratch
from lab.providers.netns.isolation import privileged
from lab.providers.netns.operations import (
    BridgeAdd,
    ChecksumOff,
    HairpinOn,
    MasterSet,
    NamespaceOperations,
    NeighbourSet,
    Operation,
    SysctlSet,
    TapAdd,
    VethAdd,
    VxlanAdd,
)

_SECONDS = 10.0
_MAC, _FAR_MAC = "0e:00:00:00:00:02", "0e:00:00:00:00:03"
_INDEXES = (("port", 2), ("bridge", 4), ("tunnel", 5))
_RULES = """table ip probe {
  map services { type ipv4_addr . inet_proto . inet_service : verdict
  }
  chain one { meta l4proto tcp dnat to 192.0.2.2:80
  }
  chain nat-output {
    type nat hook output priority -100; policy accept;
    ip daddr . meta l4proto . th dport vmap @services
    fib daddr type local numgen random mod 2 vmap { 0 : goto one, 1 : goto one }
  }
  chain filter-output {
    type filter hook output priority -150; policy accept;
    ct state new ip daddr 192.0.2.3 reject
  }
  chain nat-postrouting {
    type nat hook postrouting priority 100; policy accept;
    meta mark and 0x4000 == 0x4000 masquerade fully-random
  }
}
"""


@dataclass(frozen=True, slots=True)
class Ability:
    """One thing that a lab needs, and whether this machine can do it."""

    name: str
    """``"namespaces"``, ``"vxlan"``, ..."""
    needs: str
    """What a lab needs it for."""
    there: bool
    detail: str
    """What the kernel said, where it is not there."""
    hint: str
    """The command, or the sentence, that mends it."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """One operation of a real lab, done once."""

    name: str
    needs: str
    operation: Operation
    module: str
    """The kernel module that has it, in most distributions."""
    file: str = ""
    """What must be opened for it; empty for nothing."""


_TRIALS = (
    _Trial(
        "veth",
        "links between machines",
        VethAdd("port", 2, _MAC, "far", "eth0", 3, _FAR_MAC, 1500),
        "veth",
    ),
    _Trial("bridge", "network segments", BridgeAdd("bridge", 4, _MAC, 1500), "bridge"),
    _Trial("bridge ports", "network segments", MasterSet("port", "bridge"), "bridge"),
    _Trial("hairpin mode", "a pod behind its own Service", HairpinOn("port"), "bridge"),
    _Trial(
        "permanent neighbours",
        "labs larger than the neighbour table",
        NeighbourSet("192.0.2.2", _FAR_MAC, "bridge"),
        "bridge",
    ),
    _Trial(
        "br_netfilter",
        "Services whose backend is on the same bridge",
        SysctlSet("net/bridge/bridge-nf-call-iptables", "1"),
        "br_netfilter",
    ),
)
_VXLAN = _Trial(
    "vxlan",
    "overlay tunnels",
    VxlanAdd("tunnel", 5, _MAC, 1450, 4096, 4789, "192.0.2.1", "bridge"),
    "vxlan",
)
_NFT_MODULES = "nf_tables nft_chain_nat nft_numgen nft_fib_ipv4 nft_masq nft_reject_ipv4 nft_ct"


_SWITCHES = "Open vSwitch in user space"
_SWITCH_TRIALS = (
    _Trial("tap devices", _SWITCHES, TapAdd("tap", 6, _MAC), "tun", requests.TUN),
    _Trial("checksum offload", _SWITCHES, ChecksumOff("port"), "veth"),
)
_INGRESS = """table netdev probe {
  chain ports { type filter hook ingress device "port" priority 0; policy drop;
  }
}
"""
FOR_SWITCHES = frozenset({"tap devices", "checksum offload", "ingress rules"})
"""Names of the abilities that only labs with virtual switches need."""


def abilities(*, tunnels: bool, switches: bool = False) -> tuple[Ability, ...]:
    """Every ability, tried in milliseconds.

    Those for VXLAN and those for virtual switches only where such are wanted.
    """
    library = _outcome("libnftables", "Services", lambda: _found(nft.libnftables()), nft.INSTALL)
    trials = (
        *_TRIALS,
        *((_VXLAN,) if tunnels else ()),
        *(_SWITCH_TRIALS if switches else ()),
    )

    def try_all() -> tuple[Ability, ...]:
        namespaces.create(("far", "near"))
        found = tuple(_tried(trial) for trial in trials)
        if not library.there:
            return found
        return (*found, _rules(), *((_ingress(),) if switches else ()))

    name, needs = "namespaces", "every machine and pod is a network namespace"
    try:
        kernel = scratch("probing the kernel's abilities", try_all, Deadline(_SECONDS))
    except OSError as error:
        detail = f"{error.filename or 'fork'}: {error.strerror}"
        hint = world_cure(str(error.filename), error.errno or 0)
        return (Ability(name, needs, False, detail, hint), library)
    return (Ability(name, needs, True, "", ""), library, *kernel)


_USED_UP = {
    errno.ENOSPC: "sudo sysctl -w user.max_user_namespaces=15000 user.max_net_namespaces=15000",
    errno.EAGAIN: "end some processes, or allow more: ulimit -u 4096",
}
"""What a count that is used up, or is zero, is mended with: of namespaces, of processes."""


def world_cure(call: str, number: int) -> str:
    """What mends a refusal of the holder's namespaces: the knob that is shut, or a sentence.

    ``call`` is the refused call and ``number`` its errno.
    """
    if number in _USED_UP:
        return _USED_UP[number]
    if call.startswith("mount on /proc"):
        return "run on the host itself, or in a container whose /proc is not masked"
    if privileged():
        return "run on the host itself, or in a container that may unshare and mount"
    if _reading("/proc/sys/kernel/unprivileged_userns_clone") == 0:
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if _reading("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1:
        return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    return f"run as root, or have user namespaces allowed ({os.strerror(number)})"


def _reading(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _tried(trial: _Trial) -> Ability:
    one = NamespaceOperations("near", _INDEXES, (trial.operation,))
    hint = f"sudo modprobe {trial.module}   (or a kernel that has it)"
    if trial.file and Path(trial.file).exists():
        hint = f"run as root, or: sudo chmod 0666 {trial.file}"
    return _outcome(trial.name, trial.needs, lambda: namespaces.apply((one,)), hint)


def _rules() -> Ability:
    hint = f"sudo modprobe -a {_NFT_MODULES}   (or a kernel that has them)"
    return _outcome("nftables", "Services", lambda: nft.load(_RULES, "scratch"), hint)


def _ingress() -> Ability:
    hint = "sudo modprobe nf_tables   (or a kernel with CONFIG_NETFILTER_INGRESS)"
    return _outcome("ingress rules", _SWITCHES, lambda: nft.load(_INGRESS, "scratch"), hint)


def _found(_: object) -> None:
    """Finding it is all that is wanted of the library here."""


def _outcome(name: str, needs: str, attempt: Callable[[], None], hint: str) -> Ability:
    try:
        attempt()
    except LabError as error:
        return Ability(name, needs, False, error.happened, hint)
    return Ability(name, needs, True, "", "")
