"""Every hypervisor of an inventory, examined; nothing is left on any."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Network

from lab._errors import LabError
from lab._log import quantity
from lab.inventory.inventory import Hypervisor, Inventory
from lab.providers.diagnosis import Diagnosis, Level
from lab.providers.libvirt import connection, facts
from lab.providers.libvirt.acceleration import KVM_CURE
from lab.providers.libvirt.facts import Facts
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.survey import Survey

TESTED_LIBVIRT = 8_000_000
"""<tcg><tb-cache> came with libvirt 8.0.0; without it a guest under TCG takes twice the memory."""
TESTED_QEMU = 6_002_000
"""QEMU 6.2, the oldest of a distribution with libvirt 8 (Ubuntu 22.04)."""
SMALL_LAB_MIB = 4096
"""About what three Linux nodes, the router and the client take."""
SMALL_LAB_GIB = 5
"""One golden image, and what five clones of it write."""
CLOCK_SECONDS = 5.0
_OWN_EIGHTH = 8
_SPARE_RANGES = tuple(IPv4Network(f"10.{number}.0.0/16") for number in range(202, 250))


@dataclass(frozen=True, slots=True)
class HypervisorCheck:
    """What facts are judged against."""

    hypervisor: Hypervisor
    management: IPv4Network
    several: bool
    now: float
    """Seconds since 1970."""


def judged(asked: HypervisorCheck, facts: Facts) -> Iterator[Diagnosis]:
    """Every finding about one hypervisor that could be reached."""
    subject = f"hypervisor '{asked.hypervisor.name}'"
    for check, judge in _JUDGES.items():
        for level, seen, hint in judge(asked, facts):
            yield Diagnosis(subject, check, level, seen, hint)


Found = Iterator[tuple[Level, str, str]]
"""Level, what was seen, what mends it."""


def _versions(_asked: HypervisorCheck, facts: Facts) -> Found:
    seen = f"libvirt {dotted(facts.libvirt)}, QEMU {dotted(facts.qemu)} on {facts.architecture}"
    if facts.architecture != "x86_64":
        yield "fail", seen, "take a hypervisor with x86_64 processors out of the same inventory"
    elif facts.libvirt < TESTED_LIBVIRT or facts.qemu < TESTED_QEMU:
        least = f"libvirt {dotted(TESTED_LIBVIRT)} and QEMU {dotted(TESTED_QEMU)}"
        yield "warn", f"{seen}: older than tested", f"upgrade it to at least {least}"
    else:
        yield "ok", seen, ""


def _acceleration(asked: HypervisorCheck, facts: Facts) -> Found:
    wanted = asked.hypervisor.acceleration
    works = next((one.kind for one in facts.trials if one.works), None)
    seen = "; ".join(one.detail for one in facts.trials)
    if works is None:
        yield "fail", seen, f"see QEMU's log there, in /var/log/libvirt/qemu; {KVM_CURE}"
    elif works == "kvm" and wanted == "tcg":
        yield (
            "warn",
            f"{seen}, but the inventory asks for TCG",
            _in_inventory(asked.hypervisor, 'acceleration = "auto"'),
        )
    elif works == "kvm" or wanted == "tcg":
        yield "ok", seen, ""
    elif wanted == "kvm":
        yield "fail", f"{seen}, but the inventory asks for KVM", KVM_CURE
    else:
        yield "warn", f"{seen}, ten times slower", KVM_CURE


def _nested(_asked: HypervisorCheck, facts: Facts) -> Found:
    if any(one.kind == "kvm" and one.works for one in facts.trials):
        yield "ok", "on" if facts.nested else "off, which only guests with Hyper-V would miss", ""


def _processors(asked: HypervisorCheck, facts: Facts) -> Found:
    limit = asked.hypervisor.vcpus
    seen = f"{facts.threads} threads"
    if limit is None:
        yield "ok", f"{seen}; the inventory sets no limit", ""
    elif limit > _MOST_A_THREAD * facts.threads:
        most = _MOST_A_THREAD * facts.threads
        yield (
            "warn",
            f"{seen}, and labs may have {limit} vCPUs",
            _in_inventory(asked.hypervisor, f"vcpus = {most}"),
        )
    else:
        yield "ok", f"{seen}; labs may have {limit} vCPUs", ""


_MOST_A_THREAD = 16
"""OpenStack's Nova gave so many vCPUs a thread by default; with more, guests miss deadlines."""


def _memory(asked: HypervisorCheck, facts: Facts) -> Found:
    limit = asked.hypervisor.memory_mib
    given = limit or facts.memory_mib - facts.memory_mib // _OWN_EIGHTH
    seen = (
        f"{_gib(facts.available_mib)} GiB of {_gib(facts.memory_mib)} can be had now; "
        f"labs may have {_gib(given)}"
    )
    if given > facts.memory_mib:
        most = (facts.memory_mib - facts.memory_mib // _OWN_EIGHTH) // 1024
        yield "fail", seen, _in_inventory(asked.hypervisor, f'memory = "{most}GiB"')
    elif facts.available_mib < min(SMALL_LAB_MIB, given):
        yield "warn", seen, "stop what else runs there, or take old labs down: lab gc"
    else:
        yield "ok", seen, ""


def _storage(asked: HypervisorCheck, facts: Facts) -> Found:
    place = f"'{asked.hypervisor.storage}'"
    free, limit = facts.storage.free_gib, asked.hypervisor.disk_gib
    if free is None:
        hint = "write another [storage] path, a directory that libvirt may make pools in"
        yield "fail", f"{place}: {facts.storage.refusal}", hint
    elif free < SMALL_LAB_GIB:
        seen = f"{free} GiB are free in {place}, {SMALL_LAB_GIB} are needed at least"
        yield "fail", seen, "free some, or write another [storage] path"
    elif limit is not None and free < limit:
        seen = f"{free} GiB are free in {place}, labs may have {limit}"
        yield "warn", seen, _in_inventory(asked.hypervisor, f'disk = "{free}GiB"')
    else:
        yield "ok", f"{free} GiB are free in {place}", ""


def _firmware(_asked: HypervisorCheck, facts: Facts) -> Found:
    if facts.uefi:
        yield "ok", "UEFI is there", ""
    else:
        seen = "no UEFI: Windows, and images that boot by it, cannot be run"
        yield "warn", seen, "sudo apt-get install ovmf   (edk2-ovmf where there is dnf)"


def _management(asked: HypervisorCheck, facts: Facts) -> Found:
    used = {f"network '{name}'": subnet for name, subnet in facts.networks}
    survey = facts.inside.survey
    for route in survey.routes if survey else ():
        if route.device not in facts.bridges and route.network not in used.values():
            used[f"the route by {route.device}"] = route.network
    hits = {name: one for name, one in used.items() if one.overlaps(asked.management)}
    if not hits:
        yield "ok", f"{asked.management} is used by nothing else", ""
        return
    spare = next(
        (one for one in _SPARE_RANGES if not any(one.overlaps(other) for other in used.values())),
        None,
    )
    seen = "; ".join(f"{name} is in it: {subnet}" for name, subnet in hits.items())
    whole = any(asked.management.subnet_of(subnet) for subnet in hits.values())
    hint = f'write cidr = "{spare or "another range"}" below [management]'
    yield "fail" if whole else "warn", f"{asked.management}: {seen}", hint


def _mtu(asked: HypervisorCheck, facts: Facts) -> Found:
    survey, wanted = facts.inside.survey, asked.hypervisor.mtu
    device = _link(asked.hypervisor, survey)
    found = survey.mtus.get(device) if survey and device else None
    if found is None:
        return
    seen = f"packets of {found} bytes fit on '{device}', the inventory says {wanted}"
    if found >= wanted:
        yield "ok", seen, ""
    else:
        level: Level = "fail" if asked.several else "warn"
        yield level, seen, _in_inventory(asked.hypervisor, f"mtu = {found}")


def _in_inventory(hypervisor: Hypervisor, line: str) -> str:
    """How a line gets into the inventory; the stock one has no file."""
    if hypervisor.line:
        return f"write {line} below [hypervisors.{hypervisor.name}]"
    table = f'[hypervisors.{hypervisor.name}], uri = "{hypervisor.uri}" and {line}'
    return f"write a lab.toml with {table}"


def _link(hypervisor: Hypervisor, survey: Survey | None) -> str | None:
    return None if survey is None else survey.device_of(hypervisor.address) or survey.uplink


def _clock(_asked: HypervisorCheck, facts: Facts) -> Found:
    offset = facts.inside.offset
    if offset is None:
        return
    seen = f"{abs(offset):.1f} s {'ahead of' if offset > 0 else 'behind'} this machine's"
    if abs(offset) <= CLOCK_SECONDS:
        yield "ok", seen, ""
    else:
        yield "warn", seen, "timedatectl set-ntp true   (on both)"


def _tunnels(asked: HypervisorCheck, facts: Facts) -> Found:
    """What carries the node network between hypervisors, where there are several."""
    inside, address = facts.inside, asked.hypervisor.address
    if inside.survey is None:
        level: Level = "fail" if asked.several else "warn"
        seen = f"no shell there: {inside.refusal}"
        yield level, f"{seen}; {_WITHOUT_SHELL}", inside.hint or "let this user log in by SSH"
    elif asked.several and address and inside.survey.device_of(address) is None:
        listed = ", ".join(map(str, inside.survey.devices))
        yield "fail", f"it does not have the address {address}", f"write one of {listed}"
    elif asked.several and not inside.has_ping:
        seen = "a shell is there, and no ping: whether the others are reached is not known"
        yield "warn", seen, "sudo apt-get install iputils-ping   (iputils where there is dnf)"
    elif asked.several and inside.unreached:
        for name, why in inside.unreached:
            size = asked.hypervisor.mtu
            seen = f"a packet of {size} bytes does not come to '{name}': {why}"
            yield "fail", seen, "mend the network between the two, or write a smaller mtu for both"
    else:
        yield "ok", "a shell is there" + ("; the others are reached" if asked.several else ""), ""


_WITHOUT_SHELL = "clock, MTU and routes are not known, and no network can be carried to others"


def _leftovers(asked: HypervisorCheck, facts: Facts) -> Found:
    labs = sorted({owner.lab for owner in facts.owners})
    old = [one for one in facts.owners if one.expires is not None and one.expires < asked.now]
    if old:
        listed = ", ".join(f"'{name}'" for name in sorted({one.lab for one in old}))
        yield (
            "warn",
            f"{quantity(len(old), 'object')} of labs that have expired: {listed}",
            "'lab down' for your own, 'lab gc --all-users --yes' for others'",
        )
    elif labs:
        yield "ok", f"objects of labs: {', '.join(labs)}", ""
    else:
        yield "ok", "no lab has anything there", ""


_JUDGES = {
    "versions": _versions,
    "acceleration": _acceleration,
    "nested": _nested,
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


def dotted(version: int) -> str:
    """``9.0.0``, of libvirt's 9,000,000."""
    return f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f}"


_AT_ONCE = 8


def examine(inventory: Inventory) -> tuple[Diagnosis, ...]:
    """What was seen on every hypervisor, in the inventory's order."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = threads.map(lambda one: _examine(one, inventory), inventory.hypervisors.values())
        return tuple(diagnosis for several in found for diagnosis in several)


def _examine(hypervisor: Hypervisor, inventory: Inventory) -> tuple[Diagnosis, ...]:
    subject = f"hypervisor '{hypervisor.name}'"
    others = tuple(one for one in inventory.hypervisors.values() if one != hypervisor)
    host = Host(hypervisor)
    try:
        began = time.monotonic()
        _ = host.connected
        seen = f"{hypervisor.uri}, in {time.monotonic() - began:.1f} s"
        with host.told("examining it", "see what it logs: journalctl -u libvirtd"):
            known = facts.gather(host, others)
    except LabError as error:
        return (Diagnosis(subject, "connection", "fail", error.happened, error.hint),)
    asked = HypervisorCheck(hypervisor, inventory.management.cidr, bool(others), time.time())
    return (Diagnosis(subject, "connection", "ok", seen), *judged(asked, known))


def is_installed() -> Diagnosis | None:
    """What is wrong with libvirt's binding on this machine; None if nothing."""
    try:
        connection.load()
    except LabError as error:
        subject = "this machine, for virtual machines"
        return Diagnosis(subject, "binding", "fail", error.happened, error.hint)
    return None
