"""Examine every hypervisor of an inventory, leaving nothing behind."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from lab._deadline import Deadline
from lab._errors import LabError
from lab._log import quantity
from lab.inventory import uri
from lab.inventory.inventory import Hypervisor, Inventory
from lab.machines.libvirt import connection, networks, ownership, storage
from lab.machines.libvirt.host import KVM_HINT, AccelerationTrial, Host, try_acceleration
from lab.machines.libvirt.owned import find_owned
from lab.machines.libvirt.ownership import Owner
from lab.machines.libvirt.placement import share_for_labs
from lab.providers.provider import Diagnosis, Level

if TYPE_CHECKING:
    import libvirt

SURVEY_SCRIPT = "date +%s.%N; ip -json -4 route show; echo; ip -json address show"
"""Prints four lines: the time, the routes, an empty line, the links with their addresses."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The result of :data:`SURVEY_SCRIPT` on one hypervisor."""

    clock: float
    """Seconds since 1970."""
    routes: tuple[tuple[IPv4Network, str], ...]
    """Network and device of each route of the main table, except default routes."""
    uplink: str | None
    mtus: dict[str, int]
    devices: dict[IPv4Address, str]

    def device_of(self, address: str | None) -> str | None:
        """The device with that address; the uplink if ``address`` is None."""
        return self.uplink if address is None else self.devices.get(IPv4Address(address))


def read_survey(printed: str) -> Survey:
    """Read the output of :data:`SURVEY_SCRIPT`.

    Raises ValueError when it cannot be parsed.
    """
    clock, _, rest = printed.partition("\n")
    routes, _, links = rest.partition("\n\n")
    ways, cards = _list(routes), _list(links)
    return Survey(
        clock=float(clock.replace("N", "0")),  # a 'date' without %N prints the letter
        routes=tuple(
            (IPv4Network(str(way["dst"])), str(way.get("dev", "")))
            for way in ways
            if way.get("dst") != "default"
        ),
        uplink=next((str(way["dev"]) for way in ways if way.get("dst") == "default"), None),
        mtus={str(card["ifname"]): int(card["mtu"]) for card in cards},
        devices={
            IPv4Address(address["local"]): str(card["ifname"])
            for card in cards
            for address in card.get("addr_info", ())
            if address.get("family") == "inet"
        },
    )


def _list(text: str) -> list[dict[str, Any]]:
    document = json.loads(text or "[]")
    if not isinstance(document, list):
        raise ValueError("the output of ip is not a list")  # noqa: TRY004  about the text, not a type
    return [entry for entry in document if isinstance(entry, dict) and entry]


_SHELL_SECONDS = 30.0
_PING_SECONDS = 15.0
_IP_AND_ICMP_BYTES = 28
_NO_SUCH_COMMAND = 127


@dataclass(frozen=True, slots=True)
class ShellFacts:
    """Facts from a shell on the hypervisor."""

    survey: Survey | None
    refusal: str
    """Why there is no survey; empty if there is."""
    hint: str
    offset: float | None
    """Seconds that its clock is ahead of ours; None for this machine."""
    unreached: tuple[tuple[str, str], ...] = ()
    """Other hypervisors that packets of the inventory's MTU do not reach: name, reason."""
    has_ping: bool = True


@dataclass(frozen=True, slots=True)
class HypervisorFacts:
    """All facts about one hypervisor."""

    libvirt: int
    """libvirt's version number: 9,000,000 for 9.0.0."""
    qemu: int
    architecture: str
    threads: int
    memory_mib: int
    available_mib: int
    uefi: bool
    nested: bool
    trials: tuple[AccelerationTrial, ...]
    storage: int | str
    """GiB free in the file system of the storage directory, or libvirt's error."""
    networks: tuple[tuple[str, IPv4Network], ...]
    """Ranges of libvirt networks that do not belong to a lab."""
    bridges: frozenset[str]
    """Bridges of networks that belong to a lab."""
    owners: tuple[Owner, ...]
    inside: ShellFacts


def gather_facts(host: Host, peers: tuple[Hypervisor, ...]) -> HypervisorFacts:
    """Collect all facts. Starts a tiny guest; leaves nothing behind.

    Raises PreflightError when the hypervisor is unreachable. Raises libvirt.libvirtError.
    """
    connected = host.connected
    info = connected.getInfo()
    stats = connected.getMemoryStats(-1)
    kib = sum(stats.get(part, 0) for part in ("free", "buffers", "cached"))
    capabilities = _capabilities(connected, "kvm") or _capabilities(connected, "qemu")
    ours, strangers = _libvirt_networks(connected)
    return HypervisorFacts(
        libvirt=int(connected.getLibVersion()),
        qemu=int(connected.getVersion()),
        architecture=str(info[0]),
        threads=int(info[2]),
        memory_mib=int(stats.get("total", info[1] * 1024)) // 1024,
        available_mib=kib // 1024,
        uefi="efi" in _values(capabilities, "os/enum[@name='firmware']/value"),
        nested=_is_nested(capabilities),
        trials=try_acceleration(connected),
        storage=_storage_room(host),
        networks=strangers,
        bridges=ours,
        owners=tuple(owner for _, owner in find_owned(host)),
        inside=_shell_facts(host, peers),
    )


def _storage_room(host: Host) -> int | str:
    library = connection.load()
    try:
        with storage.scratch_pool(host.connected, host.hypervisor) as pool:
            return int(pool.info()[3]) >> 30
    except library.libvirtError as error:
        return connection.reason(error)


def _capabilities(connected: libvirt.virConnect, kind: str) -> ET.Element | None:
    library = connection.load()
    try:
        document = connected.getDomainCapabilities(None, "x86_64", "q35", kind)
    except library.libvirtError:  # its QEMU does not support this kind
        return None
    return ET.fromstring(document)  # noqa: S314  libvirt's own document


def _values(element: ET.Element | None, path: str) -> list[str]:
    return [] if element is None else [item.text or "" for item in element.iterfind(path)]


def _is_nested(capabilities: ET.Element | None) -> bool:
    if capabilities is None or capabilities.findtext("domain") != "kvm":
        return False
    shown = capabilities.iterfind("cpu/mode[@name='host-model']/feature[@policy='require']")
    return any(flag.get("name") in {"vmx", "svm"} for flag in shown)


def _libvirt_networks(
    connected: libvirt.virConnect,
) -> tuple[frozenset[str], tuple[tuple[str, IPv4Network], ...]]:
    ours: set[str] = set()
    strangers: list[tuple[str, IPv4Network]] = []
    for network in connected.listAllNetworks():
        document = network.XMLDesc()
        bridge = ET.fromstring(document).find("bridge")  # noqa: S314  libvirt's own document
        if ownership.read_owner(document) is None:
            strangers += [(network.name(), subnet) for subnet in networks.subnets(document)]
        elif bridge is not None:
            ours.add(bridge.get("name", ""))
    return frozenset(ours), tuple(strangers)


def _shell_facts(host: Host, peers: tuple[Hypervisor, ...]) -> ShellFacts:
    try:
        shell = host.shell
        before = time.time()
        done = shell.run(("sh", "-c", SURVEY_SCRIPT), Deadline(_SHELL_SECONDS))
        after = time.time()
        survey = read_survey(done.stdout)
    except LabError as error:
        return ShellFacts(None, error.happened, error.hint, None)
    except ValueError:
        output = (done.stderr or done.stdout).strip().splitlines()
        hint = "install iproute2 there"
        return ShellFacts(None, f"unexpected answer: {output[-1:]}", hint, None)
    is_here = uri.parse(host.hypervisor.uri).host is None
    offset = None if is_here else survey.clock - (before + after) / 2
    unreached = _unreachable_peers(host, peers)
    return ShellFacts(
        survey, "", "", offset, tuple(unreached or ()), has_ping=unreached is not None
    )


def _unreachable_peers(host: Host, peers: tuple[Hypervisor, ...]) -> list[tuple[str, str]] | None:
    """Peers that packets of the inventory's MTU do not reach; None if ping is missing."""
    failed: list[tuple[str, str]] = []
    for peer in peers:
        address = peer.address or uri.parse(peer.uri).host or ""
        payload = min(peer.mtu, host.hypervisor.mtu) - _IP_AND_ICMP_BYTES
        command = ("ping", "-n", "-c", "3", "-i", "0.3", "-W", "2", "-M", "do")
        try:
            words = (*command, "-s", str(payload), address)
            done = host.shell.run(words, Deadline(_PING_SECONDS))
        except LabError as error:
            failed.append((peer.name, error.happened))
            continue
        if done.code == _NO_SUCH_COMMAND:
            return None
        if done.code != 0:
            output = (done.stderr or done.stdout).strip().splitlines()
            failed.append((peer.name, output[-1] if output else f"ping exited with {done.code}"))
    return failed


TESTED_LIBVIRT = 8_000_000
"""libvirt 8.0.0 added <tcg><tb-cache>; without it a guest under TCG takes twice the memory."""
TESTED_QEMU = 6_002_000
"""QEMU 6.2, the oldest in a distribution with libvirt 8 (Ubuntu 22.04)."""
SMALL_LAB_MIB = 4096
"""About what three Linux nodes, the router and the client need."""
SMALL_LAB_GIB = 5
"""One golden image and the writes of five clones."""
CLOCK_SECONDS = 5.0
_SPARE_RANGES = tuple(IPv4Network(f"10.{number}.0.0/16") for number in range(202, 250))


@dataclass(frozen=True, slots=True)
class ExaminedHypervisor:
    """One hypervisor and the inventory's settings that its facts are checked against."""

    hypervisor: Hypervisor
    management: IPv4Network
    several: bool
    now: float
    """Seconds since 1970."""


def check_facts(examined: ExaminedHypervisor, facts: HypervisorFacts) -> Iterator[Diagnosis]:
    """Check the facts of one reachable hypervisor."""
    subject = f"hypervisor '{examined.hypervisor.name}'"
    for check, judge in _CHECKS.items():
        for level, finding, hint in judge(examined, facts):
            yield Diagnosis(subject, check, level, finding, hint)


Findings = Iterator[tuple[Level, str, str]]
"""Level, what was seen, how to fix it."""


def _versions(_asked: ExaminedHypervisor, facts: HypervisorFacts) -> Findings:
    libvirt, qemu = format_version(facts.libvirt), format_version(facts.qemu)
    finding = f"libvirt {libvirt}, QEMU {qemu} on {facts.architecture}"
    if facts.architecture != "x86_64":
        yield "fail", finding, "use a hypervisor with x86_64 processors"
    elif facts.libvirt < TESTED_LIBVIRT or facts.qemu < TESTED_QEMU:
        least = f"libvirt {format_version(TESTED_LIBVIRT)} and QEMU {format_version(TESTED_QEMU)}"
        yield "warn", f"{finding}: older than tested", f"upgrade it to at least {least}"
    else:
        yield "ok", finding, ""


def _acceleration(examined: ExaminedHypervisor, facts: HypervisorFacts) -> Findings:
    wanted = examined.hypervisor.acceleration
    works = next((trial.kind for trial in facts.trials if trial.works), None)
    finding = "; ".join(trial.detail for trial in facts.trials)
    if works is None:
        yield "fail", finding, f"see QEMU's log there, in /var/log/libvirt/qemu; {KVM_HINT}"
    elif works == "kvm" and wanted == "tcg":
        yield (
            "warn",
            f"{finding}, but the inventory asks for TCG",
            _in_inventory(examined.hypervisor, 'acceleration = "auto"'),
        )
    elif works == "kvm" or wanted == "tcg":
        yield "ok", finding, ""
    elif wanted == "kvm":
        yield "fail", f"{finding}, but the inventory asks for KVM", KVM_HINT
    else:
        yield "warn", f"{finding}, ten times slower", KVM_HINT


def _check_nesting(_asked: ExaminedHypervisor, facts: HypervisorFacts) -> Findings:
    if any(trial.kind == "kvm" and trial.works for trial in facts.trials):
        yield "ok", "on" if facts.nested else "off, which matters only to guests with Hyper-V", ""


def _processors(examined: ExaminedHypervisor, facts: HypervisorFacts) -> Findings:
    limit = examined.hypervisor.vcpus
    finding = f"{facts.threads} threads"
    if limit is None:
        yield "ok", f"{finding}; the inventory sets no limit", ""
    elif limit > _MOST_A_THREAD * facts.threads:
        most = _MOST_A_THREAD * facts.threads
        yield (
            "warn",
            f"{finding}, but labs may have {limit} vCPUs",
            _in_inventory(examined.hypervisor, f"vcpus = {most}"),
        )
    else:
        yield "ok", f"{finding}; labs may have {limit} vCPUs", ""


_MOST_A_THREAD = 16
"""vCPUs per thread, the former default of OpenStack Nova; with more, guests miss deadlines."""


def _memory(examined: ExaminedHypervisor, facts: HypervisorFacts) -> Findings:
    limit = examined.hypervisor.memory_mib
    given = limit or share_for_labs(facts.memory_mib)
    finding = (
        f"{_gib(facts.available_mib)} GiB of {_gib(facts.memory_mib)} are available; labs may "
        f"have {_gib(given)}"
    )
    if given > facts.memory_mib:
        most = share_for_labs(facts.memory_mib) // 1024
        yield "fail", finding, _in_inventory(examined.hypervisor, f'memory = "{most}GiB"')
    elif facts.available_mib < min(SMALL_LAB_MIB, given):
        yield "warn", finding, "stop other programs there, or take old labs down: lab gc"
    else:
        yield "ok", finding, ""


def _storage(examined: ExaminedHypervisor, facts: HypervisorFacts) -> Findings:
    place = f"'{examined.hypervisor.storage}'"
    free, limit = facts.storage, examined.hypervisor.disk_gib
    if isinstance(free, str):
        hint = "set another [storage] path: a directory in which libvirt may create pools"
        yield "fail", f"{place}: {free}", hint
    elif free < SMALL_LAB_GIB:
        finding = f"{free} GiB are free in {place}, at least {SMALL_LAB_GIB} are needed"
        yield "fail", finding, "free some space, or set another [storage] path"
    elif limit is not None and free < limit:
        finding = f"{free} GiB are free in {place}, labs may have {limit}"
        yield "warn", finding, _in_inventory(examined.hypervisor, f'disk = "{free}GiB"')
    else:
        yield "ok", f"{free} GiB are free in {place}", ""


def _firmware(_asked: ExaminedHypervisor, facts: HypervisorFacts) -> Findings:
    if facts.uefi:
        yield "ok", "UEFI is available", ""
    else:
        finding = "no UEFI: Windows and images that need UEFI cannot run"
        yield "warn", finding, "sudo apt-get install ovmf   (with dnf: edk2-ovmf)"


def _management(examined: ExaminedHypervisor, facts: HypervisorFacts) -> Findings:
    used = {f"network '{name}'": subnet for name, subnet in facts.networks}
    survey = facts.inside.survey
    for network, device in survey.routes if survey else ():
        if device not in facts.bridges and network not in used.values():
            used[f"the route by {device}"] = network
    hits = {name: subnet for name, subnet in used.items() if subnet.overlaps(examined.management)}
    if not hits:
        yield "ok", f"{examined.management} is not used by anything else", ""
        return
    spare = next(
        (
            range_
            for range_ in _SPARE_RANGES
            if not any(range_.overlaps(other) for other in used.values())
        ),
        None,
    )
    finding = "; ".join(f"{name} overlaps it: {subnet}" for name, subnet in hits.items())
    whole = any(examined.management.subnet_of(subnet) for subnet in hits.values())
    hint = f'set cidr = "{spare or "another range"}" in [management]'
    yield "fail" if whole else "warn", f"{examined.management}: {finding}", hint


def _mtu(examined: ExaminedHypervisor, facts: HypervisorFacts) -> Findings:
    survey, wanted = facts.inside.survey, examined.hypervisor.mtu
    if survey is None:
        return
    device = survey.device_of(examined.hypervisor.address) or survey.uplink
    actual = survey.mtus.get(device) if device else None
    if actual is None:
        return
    finding = f"packets of {actual} bytes fit on '{device}', the inventory says {wanted}"
    if actual >= wanted:
        yield "ok", finding, ""
    else:
        level: Level = "fail" if examined.several else "warn"
        yield level, finding, _in_inventory(examined.hypervisor, f"mtu = {actual}")


def _in_inventory(hypervisor: Hypervisor, line: str) -> str:
    """The hint to add a line to the inventory; the built-in one has no file."""
    if hypervisor.line:
        return f"set {line} in [hypervisors.{hypervisor.name}]"
    table = f'[hypervisors.{hypervisor.name}], uri = "{hypervisor.uri}" and {line}'
    return f"create a lab.toml with {table}"


def _clock(_asked: ExaminedHypervisor, facts: HypervisorFacts) -> Findings:
    offset = facts.inside.offset
    if offset is None:
        return
    finding = f"{abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} this machine's"
    if abs(offset) <= CLOCK_SECONDS:
        yield "ok", finding, ""
    else:
        yield "warn", finding, "timedatectl set-ntp true   (on both)"


def _tunnels(examined: ExaminedHypervisor, facts: HypervisorFacts) -> Findings:
    """Check the requirements of tunnels between hypervisors: a shell, addresses, reachability."""
    inside, address = facts.inside, examined.hypervisor.address
    if inside.survey is None:
        level: Level = "fail" if examined.several else "warn"
        finding = f"no shell there: {inside.refusal}"
        hint = inside.hint or "allow this user to log in over SSH"
        yield level, f"{finding}; {_WITHOUT_SHELL}", hint
    elif examined.several and address and inside.survey.device_of(address) is None:
        listed = ", ".join(map(str, inside.survey.devices))
        yield "fail", f"it does not have the address {address}", f"write one of {listed}"
    elif examined.several and not inside.has_ping:
        finding = "no ping there: whether the other hypervisors are reachable is unknown"
        yield "warn", finding, "sudo apt-get install iputils-ping   (with dnf: iputils)"
    elif examined.several and inside.unreached:
        for name, why in inside.unreached:
            size = examined.hypervisor.mtu
            finding = f"a packet of {size} bytes does not reach '{name}': {why}"
            yield "fail", finding, "fix the network between the two, or set a smaller mtu for both"
    else:
        reached = "; the other hypervisors are reachable" if examined.several else ""
        yield "ok", f"a shell works{reached}", ""


_WITHOUT_SHELL = "clock, MTU and routes are unknown, and networks cannot span hypervisors"


def _leftovers(examined: ExaminedHypervisor, facts: HypervisorFacts) -> Findings:
    labs = sorted({owner.lab for owner in facts.owners})
    old = [
        owner
        for owner in facts.owners
        if owner.expires is not None and owner.expires < examined.now
    ]
    if old:
        listed = ", ".join(f"'{name}'" for name in sorted({owner.lab for owner in old}))
        yield (
            "warn",
            f"{quantity(len(old), 'object')} of labs that have expired: {listed}",
            "'lab down' for your own, 'lab gc --all-users --yes' for others'",
        )
    elif labs:
        yield "ok", f"objects of labs: {', '.join(labs)}", ""
    else:
        yield "ok", "no objects of labs", ""


_CHECKS = {
    "versions": _versions,
    "acceleration": _acceleration,
    "nested": _check_nesting,
    "processors": _processors,
    "memory": _memory,
    "storage": _storage,
    "firmware": _firmware,
    "management": _management,
    "shell": _tunnels,
    "mtu": _mtu,
    "clock": _clock,
    "leftovers": _leftovers,
}


def format_version(version: int) -> str:
    """``9.0.0`` for libvirt's 9,000,000."""
    return f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f}"


_AT_ONCE = 8


def examine(inventory: Inventory) -> tuple[Diagnosis, ...]:
    """Examine every hypervisor; results in the inventory's order."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        diagnoses = threads.map(
            lambda hypervisor: _examine(hypervisor, inventory), inventory.hypervisors.values()
        )
        return tuple(diagnosis for several in diagnoses for diagnosis in several)


def _examine(hypervisor: Hypervisor, inventory: Inventory) -> tuple[Diagnosis, ...]:
    subject = f"hypervisor '{hypervisor.name}'"
    others = tuple(other for other in inventory.hypervisors.values() if other != hypervisor)
    host = Host(hypervisor)
    try:
        began = time.monotonic()
        _ = host.connected
        finding = f"{hypervisor.uri}, in {time.monotonic() - began:.1f} s"
        with host.explain_errors("examining it", "see its log: journalctl -u libvirtd"):
            known = gather_facts(host, others)
    except LabError as error:
        return (Diagnosis(subject, "connection", "fail", error.happened, error.hint),)
    examined = ExaminedHypervisor(hypervisor, inventory.management.cidr, bool(others), time.time())
    return (Diagnosis(subject, "connection", "ok", finding), *check_facts(examined, known))


def is_installed() -> Diagnosis | None:
    """What is wrong with libvirt's Python binding on this machine; None if nothing is."""
    try:
        connection.load()
    except LabError as error:
        subject = "this machine, for virtual machines"
        return Diagnosis(subject, "binding", "fail", error.happened, error.hint)
    return None
