"""What "lab doctor" thinks of a hypervisor's figures."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from lab.inventory.inventory import MANAGEMENT, Hypervisor
from lab.providers.libvirt.doctor import (
    ExaminedHypervisor,
    HypervisorFacts,
    KernelRoute,
    ShellFacts,
    StorageRoom,
    Survey,
    check_facts,
)
from lab.providers.libvirt.host import AccelerationTrial
from lab.providers.libvirt.ownership import Owner
from lab.providers.provider import Diagnosis

NOW = 1_800_000_000.0
KVM = AccelerationTrial("kvm", works=True, detail="a tiny guest runs with KVM")
NO_KVM = AccelerationTrial("kvm", works=False, detail="no guest runs with KVM: ...")
TCG = AccelerationTrial("tcg", works=True, detail="a tiny guest runs with TCG")
NO_TCG = AccelerationTrial("tcg", works=False, detail="no guest runs with TCG: ...")
SURVEY = Survey(
    clock=NOW,
    routes=(KernelRoute(IPv4Network("192.0.2.0/24"), "eth0"),),
    uplink="eth0",
    mtus={"lo": 65536, "eth0": 1500, "eth1": 9000},
    devices={IPv4Address("192.0.2.11"): "eth0", IPv4Address("198.51.100.1"): "eth1"},
)
GOOD = HypervisorFacts(
    libvirt=9_000_000,
    qemu=7_002_022,
    architecture="x86_64",
    threads=8,
    memory_mib=65_536,
    available_mib=60_000,
    uefi=True,
    nested=True,
    trials=(KVM,),
    storage=StorageRoom(500, ""),
    networks=(("default", IPv4Network("192.168.122.0/24")),),
    bridges=frozenset({"hl01234567-mgmt"}),
    owners=(),
    inside=ShellFacts(SURVEY, "", "", 0.2),
)
HYPERVISOR = Hypervisor(name="rack1", uri="qemu+ssh://rack1/system", line=7)
OWNER = Owner("old", "abcd", Path("/x"), "c", "me", NOW - 900, NOW - 100)


def judge(
    facts: HypervisorFacts = GOOD,
    *,
    several: bool = False,
    management: IPv4Network = MANAGEMENT,
    **given: Any,
) -> dict[str, Diagnosis]:
    asked = ExaminedHypervisor(HYPERVISOR.replace(**given), management, several, NOW)
    found = tuple(check_facts(asked, facts))
    assert all(one.subject == "hypervisor 'rack1'" for one in found)
    assert all(bool(one.hint) == (one.level != "ok") for one in found), "a hint for all but ok"
    return {one.check: one for one in found}


def test_good_hypervisor_has_nothing_to_mend() -> None:
    found = judge()
    assert {one.level for one in found.values()} == {"ok"}
    assert list(found) == [
        *("versions", "acceleration", "nested", "processors", "memory", "storage", "firmware"),
        *("management", "shell", "mtu", "clock", "leftovers"),
    ]


CASES: tuple[tuple[str, dict[str, Any], dict[str, Any], str, str, str], ...] = (
    ("old libvirt", {"libvirt": 7_000_000}, {}, "versions", "warn", "older than tested"),
    ("old QEMU", {"qemu": 5_002_000}, {}, "versions", "warn", "QEMU 5.2.0"),
    ("another processor", {"architecture": "aarch64"}, {}, "versions", "fail", "aarch64"),
    ("TCG alone", {"trials": (NO_KVM, TCG)}, {}, "acceleration", "warn", "ten times slower"),
    ("nothing runs", {"trials": (NO_KVM, NO_TCG)}, {}, "acceleration", "fail", "with TCG: ..."),
    (
        "KVM asked for and not had",
        {"trials": (NO_KVM, TCG)},
        {"acceleration": "kvm"},
        "acceleration",
        "fail",
        "asks for KVM",
    ),
    (
        "TCG asked for and had",
        {"trials": (NO_KVM, TCG)},
        {"acceleration": "tcg"},
        "acceleration",
        "ok",
        "TCG",
    ),
    (
        "KVM had and TCG asked for",
        {},
        {"acceleration": "tcg"},
        "acceleration",
        "warn",
        "asks for TCG",
    ),
    ("no nesting", {"nested": False}, {}, "nested", "ok", "off"),
    ("vCPUs in reason", {}, {"vcpus": 64}, "processors", "ok", "64 vCPUs"),
    ("vCPUs beyond reason", {}, {"vcpus": 400}, "processors", "warn", "400 vCPUs"),
    ("more memory than there is", {}, {"memory_mib": 70_000}, "memory", "fail", "68.4"),
    ("memory in use", {"available_mib": 3000}, {}, "memory", "warn", "2.9 GiB"),
    (
        "little memory, little wanted",
        {"available_mib": 3000},
        {"memory_mib": 2048},
        "memory",
        "ok",
        "2.9",
    ),
    (
        "no storage",
        {"storage": StorageRoom(None, "cannot open")},
        {},
        "storage",
        "fail",
        "cannot open",
    ),
    ("full storage", {"storage": StorageRoom(2, "")}, {}, "storage", "fail", "2 GiB are free"),
    ("less storage than given", {}, {"disk_gib": 900}, "storage", "warn", "may have 900"),
    ("no firmware", {"uefi": False}, {}, "firmware", "warn", "Windows"),
    (
        "another clock",
        {"inside": ShellFacts(SURVEY, "", "", -40.0)},
        {},
        "clock",
        "warn",
        "40.0 s behind",
    ),
    ("smaller MTU, alone", {}, {"mtu": 9000}, "mtu", "warn", "1500 bytes fit on 'eth0'"),
    (
        "MTU of the tunnels' card",
        {},
        {"mtu": 9000, "address": "198.51.100.1"},
        "mtu",
        "ok",
        "'eth1'",
    ),
    (
        "no shell, alone",
        {"inside": ShellFacts(None, "refused", "", None)},
        {},
        "shell",
        "warn",
        "refused",
    ),
    (
        "old lab",
        {"owners": (OWNER,)},
        {},
        "leftovers",
        "warn",
        "1 object of labs that have expired: 'old'",
    ),
    ("lab", {"owners": (replace(OWNER, expires=None),)}, {}, "leftovers", "ok", "labs: old"),
)


@pytest.mark.parametrize(
    ("facts", "given", "check", "level", "seen"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_figure_is_judged(
    facts: dict[str, Any], given: dict[str, Any], check: str, level: str, seen: str
) -> None:
    found = judge(replace(GOOD, **facts), **given)[check]
    assert (found.level, seen in found.seen) == (level, True), found


def test_nothing_is_said_of_what_is_not_known() -> None:
    found = judge(replace(GOOD, trials=(NO_KVM, TCG), inside=ShellFacts(None, "no", "do", None)))
    assert not {"nested", "mtu", "clock"} & set(found)


@pytest.mark.parametrize(
    ("facts", "given", "check", "seen"),
    [
        ({"inside": ShellFacts(None, "refused", "", None)}, {}, "shell", "no shell there: refused"),
        ({}, {"address": "203.0.113.9"}, "shell", "does not have the address 203.0.113.9"),
        (
            {"inside": ShellFacts(SURVEY, "", "", 0.0, (("rack2", "message too long"),))},
            {},
            "shell",
            "does not reach 'rack2': message too long",
        ),
        ({}, {"mtu": 9000}, "mtu", "1500 bytes fit"),
    ],
)
def test_what_several_hypervisors_cannot_do_without(
    facts: dict[str, Any], given: dict[str, Any], check: str, seen: str
) -> None:
    found = judge(replace(GOOD, **facts), several=True, **given)[check]
    assert (found.level, seen in found.seen) == ("fail", True), found


def test_hypervisor_without_ping_is_no_network_without_packets() -> None:
    facts = replace(GOOD, inside=ShellFacts(SURVEY, "", "", 0.0, (), has_ping=False))
    found = judge(facts, several=True)["shell"]
    assert (found.level, "no ping" in found.seen) == ("warn", True)
    assert judge(facts)["shell"].level == "ok"


def test_management_range_that_is_partly_used_is_told_with_a_free_one() -> None:
    networks = (("lan", IPv4Network("10.201.5.0/24")), ("other", IPv4Network("10.202.0.0/16")))
    found = judge(replace(GOOD, networks=networks))["management"]
    assert found.level == "warn"
    assert "network 'lan' overlaps it: 10.201.5.0/24" in found.seen
    assert '"10.203.0.0/16"' in found.hint


def test_management_range_within_a_route_leaves_no_room() -> None:
    survey = replace(SURVEY, routes=(KernelRoute(IPv4Network("10.0.0.0/8"), "tun0"),))
    found = judge(replace(GOOD, inside=ShellFacts(survey, "", "", None)))["management"]
    assert found.level == "fail"
    assert "the route by tun0 overlaps it: 10.0.0.0/8" in found.seen
    assert "another range" in found.hint


def test_range_of_a_lab_of_ours_is_no_collision() -> None:
    route = KernelRoute(IPv4Network("10.201.7.0/24"), "hl01234567-mgmt")
    inside = ShellFacts(replace(SURVEY, routes=(route,)), "", "", None)
    assert judge(replace(GOOD, inside=inside))["management"].level == "ok"


def test_cure_of_the_stock_inventory_begins_with_a_file() -> None:
    found = judge(line=0, mtu=9000)["mtu"]
    assert "create a lab.toml with [hypervisors.rack1]" in found.hint
    assert "in [hypervisors.rack1]" in judge(mtu=9000)["mtu"].hint
