"""Check this machine before bring-up: programs, kernel abilities, capacity.

Abilities are tried in temporary scratch namespaces: version numbers do not reveal kernels without
modules, containers and hardened distributions. Reading the capacity is separate from judging it,
so that tests can judge any machine.
"""

from __future__ import annotations

import os
import resource
import shutil
import stat
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lab._dataclass import dataclass
from lab._deadline import Deadline
from lab._errors import BrokenError, LabError, PreflightError
from lab.providers.netns import isolation, namespaces, netlink, operations
from lab.providers.netns.child_calls import call_isolated
from lab.providers.netns.holders import list_holders
from lab.providers.netns.machine import run_captured
from lab.providers.netns.netlink import GET_NEIGHBOUR, GET_NEIGHBOUR_TABLE, Socket, attributes
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
from lab.providers.provider import Diagnosis, Level
from lab.state.capacity import available
from lab.topology.cost import cost
from lab.topology.intent import Intent, Neighbour, Route
from lab.topology.links import LinkAbility, abilities


def require_programs(intent: Intent) -> None:
    """Check that the programs of every daemon are installed.

    Raises PreflightError: names each missing program, the first daemon that needs it, and its
    package.
    """
    missing: dict[str, tuple[str, str]] = {}
    known: set[str] = set()
    for machine in intent.machines:
        for daemon in machine.daemons:
            for program in daemon.programs():
                if program not in known and not shutil.which(program, path=isolation.search_path()):
                    missing[program] = daemon.package, f"'{daemon.name}' on '{machine.name}'"
                known.add(program)
    if missing:
        packages = dict.fromkeys(package for package, _ in missing.values())
        raise PreflightError(
            f"checking this machine for scenario '{intent.scenario}'",
            "; ".join(
                f"no program '{program}' (package {package}), needed for {user}"
                for program, (package, user) in missing.items()
            ),
            f"sudo apt-get install --no-install-recommends {' '.join(packages)}",
        )


NEED_FILE = "/run/neighbours"
_DESCRIPTORS_EACH = 3
"""Per namespace the responder holds a TCP and a UDP socket, and temporarily a namespace file."""
_DESCRIPTORS_MORE = 256
_PROCESSES = 16
"""Holder, responder, prober, and commands that enter the lab meanwhile."""
_PERMANENT = 0x80
_NOTHING_THAT_WAITS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CORES_A_LAB = 2
"""One for the prober and one for the responder. With fewer, probes time out."""
_DIGITS = 9
"""Enough for the size of any table."""
_ARP_CACHE = b"arp_cache\0"
_THRESHOLD3, _NAME = 4, 1


@dataclass(frozen=True, slots=True)
class NetnsNeed:
    """Resources that a lab needs."""

    namespaces: int
    neighbours: int
    """Most entries that the kernel will learn; permanent entries do not count."""
    memory_mib: int = 0
    """Used by the kernel and by the lab's processes."""

    @property
    def descriptors(self) -> int:
        """Open files of one process."""
        return self.namespaces * _DESCRIPTORS_EACH + _DESCRIPTORS_MORE


@dataclass(frozen=True, slots=True)
class NetnsRoom:
    """The machine's limits and current use."""

    neighbour_limit: int
    """gc_thresh3; all namespaces of the machine share one table."""
    neighbours_used: int
    descriptors: int
    network_namespaces: int
    processes: int
    memory_mib: int


def lab_need(intent: Intent) -> NetnsNeed:
    """Compute the resources that an intent needs.

    Neighbours: an entry on ``lo`` for each machine's traffic to itself, and one for each gateway
    without a permanent entry.
    """
    learnt = len(intent.everything())
    for machine in intent.everything():
        learnt += _count_learnt(machine.routes, machine.neighbours)
        for pod in machine.pods:
            learnt += _count_learnt((Route("default", "eth0", pod.gateway),), pod.neighbours)
    return NetnsNeed(len(namespaces.namespace_names(intent)), learnt, cost(intent).memory_mib)


def _count_learnt(routes: tuple[Route, ...], neighbours: tuple[Neighbour, ...]) -> int:
    known = {neighbour.address for neighbour in neighbours}
    return len({route.via for route in routes if route.via} - known)


def machine_room() -> NetnsRoom:
    """Read this machine's limits and current use."""
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    limit = _number("/proc/sys/user/max_net_namespaces")
    neighbour_limit = _neighbour_limit()
    return NetnsRoom(
        neighbour_limit=neighbour_limit,
        neighbours_used=_neighbours_used(neighbour_limit),
        descriptors=_make_finite(resource.getrlimit(resource.RLIMIT_NOFILE)[1]),
        network_namespaces=limit,
        processes=_make_finite(processes) if os.geteuid() else _make_finite(resource.RLIM_INFINITY),
        memory_mib=available() >> 20,
    )


def check_capacity(need: NetnsNeed, room: NetnsRoom) -> None:
    """Refuse a lab that does not fit.

    Raises PreflightError: names the limit that is too low, and the command that raises it.
    """
    neighbours = need.neighbours + room.neighbours_used
    checks = (
        (
            neighbours > room.neighbour_limit,
            "the neighbour table",
            (
                f"the lab needs about {need.neighbours:,} entries and {room.neighbours_used:,} are "
                f"in use, but this machine's table is limited to {room.neighbour_limit:,}"
            ),
            f"sudo sysctl -w net.ipv4.neigh.default.gc_thresh3={_round_up(neighbours)}",
        ),
        (
            need.descriptors > room.descriptors,
            "open files",
            f"the lab needs {need.descriptors:,} in one process, the limit is {room.descriptors:,}",
            f"sudo prlimit --pid $$ --nofile={_round_up(need.descriptors)}",
        ),
        (
            need.namespaces > room.network_namespaces,
            "network namespaces",
            f"the lab needs {need.namespaces:,}, the limit is {room.network_namespaces:,}",
            f"sudo sysctl -w user.max_net_namespaces={_round_up(need.namespaces)}",
        ),
        (
            room.processes < _PROCESSES,
            "processes",
            f"the lab needs {_PROCESSES}, the limit is {room.processes}",
            f"ulimit -u {1 << 12}",
        ),
        (
            need.memory_mib > room.memory_mib,
            "memory",
            f"the lab needs about {need.memory_mib:,} MiB, and {room.memory_mib:,} MiB are free",
            "use fewer pods ('pods_per_node') or nodes, or take an unneeded lab down",
        ),
    )
    for short, subject, happened, hint in checks:
        if short:
            raise PreflightError(f"checking {subject}", happened, hint)


def labs_at_once(cores: int | None = None) -> int:
    """How many labs this machine's processors can run; at least one."""
    return max(1, (cores or os.cpu_count() or 1) // _CORES_A_LAB)


def _round_up(number: int) -> int:
    """The next power of two above twice the number, which leaves room for a second lab."""
    return 1 << (2 * number).bit_length()


def _make_finite(limit: int) -> int:
    return (1 << 31) - 1 if limit == resource.RLIM_INFINITY else limit


def _number(path: str) -> int:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except FileNotFoundError:
        return _make_finite(resource.RLIM_INFINITY)


def _neighbour_limit() -> int:
    """gc_thresh3 by netlink; its file in /proc exists only in the initial namespace."""
    with Socket("here") as channel:
        for body in channel.dump(GET_NEIGHBOUR_TABLE, struct.pack("=Bxxx", 2)):
            values = attributes(body[4:])
            if values.get(_NAME) == _ARP_CACHE and _THRESHOLD3 in values:
                return int(struct.unpack("=I", values[_THRESHOLD3])[0])
    return _make_finite(resource.RLIM_INFINITY)


def _neighbours_used(limit: int) -> int:
    """Entries learnt in this namespace, plus the recorded needs of the running labs.

    A running lab fitted when it came up, so a recorded need above the limit is ignored.
    """
    with Socket("here") as channel:
        bodies = channel.dump(GET_NEIGHBOUR, struct.pack("=BxxxiHBB", 2, 0, 0, 0, 0))
    learnt = sum(1 for body in bodies if not struct.unpack_from("=H", body, 8)[0] & _PERMANENT)
    needs = [_needed_by(holder.pid) for holder in list_holders()]
    return learnt + sum(need for need in needs if 0 <= need <= limit)


def note_need(need: NetnsNeed) -> None:
    """Inside a holder: record the lab's need for the preflight of other labs."""
    Path(NEED_FILE).write_text(str(need.neighbours), encoding="ascii")


def _needed_by(pid: int) -> int:
    """The need recorded in a holder. Untrusted: root inside the lab can write anything there."""
    try:
        file = os.open(f"/proc/{pid}/root{NEED_FILE}", _NOTHING_THAT_WAITS)
    except OSError:  # it has no network yet, or has exited
        return 0
    try:
        regular = stat.S_ISREG(os.fstat(file).st_mode)
        return int(os.read(file, _DIGITS)) if regular else 0
    except (OSError, ValueError):
        return 0
    finally:
        os.close(file)


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
class _Trial:
    name: str
    needs: str
    operation: Operation
    module: str
    file: str = ""
    """A file that the operation must open; empty for none."""


_TRIALS = (
    _Trial(
        "veth",
        "links between machines",
        VethAdd("port", 2, _MAC, "far", "eth0", 3, _FAR_MAC, 1500),
        "veth",
    ),
    _Trial("bridge", "network segments", BridgeAdd("bridge", 4, _MAC), "bridge"),
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
_RULES_HINT = f"sudo modprobe -a {_NFT_MODULES}   (or a kernel that has them)"
_INGRESS_HINT = "sudo modprobe nf_tables   (or a kernel with CONFIG_NETFILTER_INGRESS)"

_SWITCHES = "Open vSwitch in user space"
_SWITCH_TRIALS = (
    _Trial("tap devices", _SWITCHES, TapAdd("tap", 6, _MAC), "tun", operations.TUN),
    _Trial("checksum offload", _SWITCHES, ChecksumOff("port"), "veth"),
)
_INGRESS = """table netdev probe {
  chain ports { type filter hook ingress device "port" priority 0; policy drop;
  }
}
"""


def try_abilities(*, tunnels: bool, switches: bool = False) -> tuple[Diagnosis, ...]:
    """Try every ability in scratch namespaces; takes milliseconds.

    ``tunnels`` adds VXLAN, ``switches`` adds the abilities for virtual switches.
    """
    library = _outcome_of("libnftables", "Services", namespaces.libnftables, namespaces.INSTALL)
    trials = (
        *_TRIALS,
        *((_VXLAN,) if tunnels else ()),
        *(_SWITCH_TRIALS if switches else ()),
    )

    def try_all() -> tuple[Diagnosis, ...]:
        namespaces.create(("far", "near"))
        diagnoses = tuple(_try_trial(trial) for trial in trials)
        if library.level != "ok":
            return diagnoses
        rules = _try_ruleset("nftables", "Services", _RULES, _RULES_HINT)
        if not switches:
            return (*diagnoses, rules)
        return (
            *diagnoses,
            rules,
            _try_ruleset("ingress rules", _SWITCHES, _INGRESS, _INGRESS_HINT),
        )

    name, needs = "namespaces", "every machine and pod"
    try:
        kernel = call_isolated(
            "probing the kernel's abilities", try_all, Deadline(_SECONDS), tuple[Diagnosis, ...]
        )
    except OSError as error:
        trouble = f"{error.filename or 'fork'}: {error.strerror}"
        hint = isolation.namespaces_hint(str(error.filename), error.errno or 0)
        return (_make_diagnosis(name, needs, trouble, hint), library)
    return (_make_diagnosis(name, needs), library, *kernel)


def try_links(intent: Intent) -> tuple[Diagnosis, ...]:
    """Try what the lab's slow or lossy links need; empty where there are none."""
    needed = abilities(intent)

    def try_all() -> tuple[Diagnosis, ...]:
        return tuple(
            _outcome_of(
                ability.name,
                ability.needs,
                partial(_require_line, ability),
                f"sudo modprobe -a {ability.module}   (or a kernel that has it)",
            )
            for ability in needed
        )

    if not needed:
        return ()
    return call_isolated(
        "probing the kernel for links", try_all, Deadline(_SECONDS), tuple[Diagnosis, ...]
    )


def _require_line(ability: LinkAbility) -> None:
    done = run_captured(("sh", "-c", f"PATH=$PATH:/usr/sbin:/sbin; {ability.line}"))
    if done.code:
        complaint = done.stderr.strip().splitlines() or [f"exit code {done.code}"]
        raise BrokenError(f"trying {ability.name}", complaint[0])


def _try_trial(trial: _Trial) -> Diagnosis:
    attempt = NamespaceOperations("near", _INDEXES, (trial.operation,))
    hint = f"sudo modprobe {trial.module}   (or a kernel that has it)"
    if trial.file and Path(trial.file).exists():
        hint = f"run as root, or: sudo chmod 0666 {trial.file}"
    return _outcome_of(trial.name, trial.needs, lambda: netlink.apply_operations((attempt,)), hint)


def _try_ruleset(name: str, needs: str, text: str, hint: str) -> Diagnosis:
    return _outcome_of(name, needs, lambda: namespaces.load_ruleset(text, "scratch"), hint)


def _outcome_of(name: str, needs: str, attempt: Callable[[], object], hint: str) -> Diagnosis:
    try:
        attempt()
    except LabError as error:
        return _make_diagnosis(name, needs, error.happened, hint)
    return _make_diagnosis(name, needs)


def _make_diagnosis(name: str, needs: str, trouble: str = "", hint: str = "") -> Diagnosis:
    """An ability that a lab needs; without ``trouble`` this machine has it."""
    subject = "this machine, for network namespaces"
    if not trouble:
        return Diagnosis(subject, name, "ok", f"works; needed for {needs}")
    level: Level = "warn" if needs == _SWITCHES else "fail"  # few labs have switches
    return Diagnosis(subject, name, level, f"needed for {needs}: {trouble}", hint)
