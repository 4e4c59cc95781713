"""What "lab doctor" reads from a hypervisor, and what it thinks of its figures."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from lab.inventory.inventory import MANAGEMENT, Hypervisor
from lab.machines.libvirt import documents, host, storage
from lab.machines.libvirt.doctor import (
    ExaminedHypervisor,
    HypervisorFacts,
    ShellFacts,
    Survey,
    check_facts,
    read_survey,
)
from lab.machines.libvirt.host import AccelerationTrial
from lab.machines.libvirt.ownership import Owner
from lab.providers.provider import Diagnosis

NOW = 1_800_000_000.0
KVM = AccelerationTrial("kvm", works=True, detail="a tiny guest runs with KVM")
NO_KVM = AccelerationTrial("kvm", works=False, detail="no guest runs with KVM: ...")
TCG = AccelerationTrial("tcg", works=True, detail="a tiny guest runs with TCG")
NO_TCG = AccelerationTrial("tcg", works=False, detail="no guest runs with TCG: ...")
SURVEY = Survey(
    clock=NOW,
    routes=((IPv4Network("192.0.2.0/24"), "eth0"),),
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
    storage=500,
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
    examined = ExaminedHypervisor(HYPERVISOR.replace(**given), management, several, NOW)
    diagnoses = tuple(check_facts(examined, facts))
    assert all(diagnosis.subject == "hypervisor 'rack1'" for diagnosis in diagnoses)
    assert all(bool(diagnosis.hint) == (diagnosis.level != "ok") for diagnosis in diagnoses), (
        "a hint for all but ok"
    )
    return {diagnosis.check: diagnosis for diagnosis in diagnoses}


def test_good_hypervisor_has_nothing_to_fix():
    diagnoses = judge()
    assert {diagnosis.level for diagnosis in diagnoses.values()} == {"ok"}
    assert list(diagnoses) == [
        *("versions", "acceleration", "nested", "processors", "memory", "storage", "firmware"),
        *("management", "shell", "mtu", "clock", "leftovers"),
    ]


NO_SHELL = ShellFacts(None, "refused", "", None)
LATE = ShellFacts(SURVEY, "", "", -40.0)
CUT_OFF = ShellFacts(SURVEY, "", "", 0.0, (("rack2", "message too long"),))
NO_PING = ShellFacts(SURVEY, "", "", 0.0, (), has_ping=False)
FAR = "198.51.100.1"
BOTH: dict[str, Any] = {"several": True}
KVM_WANTED, TCG_WANTED = {"acceleration": "kvm"}, {"acceleration": "tcg"}


@pytest.mark.parametrize(
    ("check", "level", "seen", "facts", "given"),
    [
        ("versions", "warn", "older than tested", {"libvirt": 7_000_000}, {}),
        ("versions", "warn", "QEMU 5.2.0", {"qemu": 5_002_000}, {}),
        ("versions", "fail", "aarch64", {"architecture": "aarch64"}, {}),
        ("acceleration", "warn", "ten times slower", {"trials": (NO_KVM, TCG)}, {}),
        ("acceleration", "fail", "with TCG: ...", {"trials": (NO_KVM, NO_TCG)}, {}),
        ("acceleration", "fail", "asks for KVM", {"trials": (NO_KVM, TCG)}, KVM_WANTED),
        ("acceleration", "ok", "TCG", {"trials": (NO_KVM, TCG)}, TCG_WANTED),
        ("acceleration", "warn", "asks for TCG", {}, TCG_WANTED),
        ("nested", "ok", "off", {"nested": False}, {}),
        ("processors", "ok", "64 vCPUs", {}, {"vcpus": 64}),
        ("processors", "warn", "400 vCPUs", {}, {"vcpus": 400}),
        ("memory", "fail", "68.4", {}, {"memory_mib": 70_000}),
        ("memory", "warn", "2.9 GiB", {"available_mib": 3000}, {}),
        ("memory", "ok", "2.9", {"available_mib": 3000}, {"memory_mib": 2048}),
        ("storage", "fail", "cannot open", {"storage": "cannot open"}, {}),
        ("storage", "fail", "2 GiB are free", {"storage": 2}, {}),
        ("storage", "warn", "may have 900", {}, {"disk_gib": 900}),
        ("firmware", "warn", "Windows", {"uefi": False}, {}),
        ("clock", "warn", "40.0 s behind", {"inside": LATE}, {}),
        ("mtu", "warn", "1500 bytes fit on 'eth0'", {}, {"mtu": 9000}),
        ("mtu", "fail", "1500 bytes fit", {}, {"mtu": 9000, **BOTH}),
        ("mtu", "ok", "'eth1'", {}, {"mtu": 9000, "address": FAR}),
        ("shell", "warn", "refused", {"inside": NO_SHELL}, {}),
        ("shell", "fail", "no shell there: refused", {"inside": NO_SHELL}, BOTH),
        ("shell", "fail", "not have the address 192.0.2.9", {}, {"address": "192.0.2.9", **BOTH}),
        ("shell", "fail", "does not reach 'rack2': message", {"inside": CUT_OFF}, BOTH),
        ("shell", "warn", "no ping", {"inside": NO_PING}, BOTH),
        ("shell", "ok", "a shell works", {"inside": NO_PING}, {}),
        (
            "leftovers",
            "warn",
            "1 object of labs that have expired: 'old'",
            {"owners": (OWNER,)},
            {},
        ),
        ("leftovers", "ok", "labs: old", {"owners": (replace(OWNER, expires=None),)}, {}),
    ],
)
def test_figure_is_judged(check, level, seen, facts, given):
    diagnosis = judge(replace(GOOD, **facts), **given)[check]
    assert (diagnosis.level, seen in diagnosis.seen) == (level, True), diagnosis


def test_an_unknown_value_is_not_reported():
    diagnoses = judge(
        replace(GOOD, trials=(NO_KVM, TCG), inside=ShellFacts(None, "no", "do", None))
    )
    assert not {"nested", "mtu", "clock"} & set(diagnoses)


def test_partly_used_management_range_is_reported_with_a_free_one():
    networks = (("lan", IPv4Network("10.201.5.0/24")), ("other", IPv4Network("10.202.0.0/16")))
    diagnosis = judge(replace(GOOD, networks=networks))["management"]
    assert diagnosis.level == "warn"
    assert "network 'lan' overlaps it: 10.201.5.0/24" in diagnosis.seen
    assert '"10.203.0.0/16"' in diagnosis.hint


def test_management_range_within_a_route_leaves_no_room():
    survey = replace(SURVEY, routes=((IPv4Network("10.0.0.0/8"), "tun0"),))
    diagnosis = judge(replace(GOOD, inside=ShellFacts(survey, "", "", None)))["management"]
    assert diagnosis.level == "fail"
    assert "the route by tun0 overlaps it: 10.0.0.0/8" in diagnosis.seen
    assert "another range" in diagnosis.hint


def test_range_of_a_lab_of_ours_is_no_collision():
    route = (IPv4Network("10.201.7.0/24"), "hl01234567-mgmt")
    inside = ShellFacts(replace(SURVEY, routes=(route,)), "", "", None)
    assert judge(replace(GOOD, inside=inside))["management"].level == "ok"


def test_cure_of_the_stock_inventory_begins_with_a_file():
    diagnosis = judge(line=0, mtu=9000)["mtu"]
    assert "create a lab.toml with [hypervisors.rack1]" in diagnosis.hint
    assert "in [hypervisors.rack1]" in judge(mtu=9000)["mtu"].hint


PRINTED = """\
1800000000.250000000
[{"dst":"default","gateway":"192.0.2.1","dev":"eth0","flags":[]},\
{"dst":"192.0.2.0/24","dev":"eth0","prefsrc":"192.0.2.11","flags":[]},\
{"dst":"10.8.0.1","dev":"tun0","flags":[]}]

[{},{"ifname":"lo","mtu":65536,"addr_info":[{"family":"inet","local":"127.0.0.1"}]},\
{"ifname":"eth0","mtu":1400,"addr_info":[{"family":"inet","local":"192.0.2.11"},\
{"family":"inet6","local":"2001:db8::1"}]}]
"""


def test_clock_routes_links_and_addresses_are_read():
    survey = read_survey(PRINTED)
    assert survey.clock == 1_800_000_000.25
    assert survey.routes == (
        (IPv4Network("192.0.2.0/24"), "eth0"),
        (IPv4Network("10.8.0.1/32"), "tun0"),
    )
    assert survey.uplink == "eth0"
    assert survey.mtus == {"lo": 65536, "eth0": 1400}
    assert survey.devices[IPv4Address("192.0.2.11")] == "eth0"


def test_link_of_the_tunnels_is_that_of_the_address_or_the_uplink():
    survey = read_survey(PRINTED)
    assert survey.device_of(None) == "eth0"
    assert survey.device_of("127.0.0.1") == "lo"
    assert survey.device_of("203.0.113.1") is None


def test_clock_without_nanoseconds_and_host_without_routes_are_read():
    survey = read_survey("1800000000.N\n[ ]\n\n[]\n")
    assert (survey.clock, survey.routes, survey.uplink) == (1_800_000_000.0, (), None)
    assert read_survey("1800000000.5\n\n\n[]\n").routes == ()


@pytest.mark.parametrize("printed", ["", "Welcome!\n", "1.0\n{}\n\n[]", '1.0\n[{"dst":"x"}]\n\n'])
def test_anything_else_is_an_error(printed):
    with pytest.raises(ValueError, match=r"."):
        read_survey(printed)


@pytest.mark.parametrize(
    ("said", "where"),
    [
        (b"", "it does not start to boot"),
        (b"\xff\x00\x1b[2JSeaBIOS (version 1.16.2)\r\n", "its firmware begins"),
    ],
)
def test_guest_that_does_not_finish_is_reported(said, where):
    judged = host.judge_trial("kvm", said, "and then stops")
    assert not judged.works
    assert judged.detail == f"no guest runs with KVM: {where}, and then stops"


def test_guest_whose_firmware_comes_to_its_end_has_worked():
    assert host.judge_trial("tcg", b"SeaBIOS\r\nNo bootable device.\r\n", "").works


@pytest.mark.parametrize(("kind", "written"), [("kvm", "kvm"), ("tcg", "qemu")])
def test_guest_has_no_network_and_no_disk_and_ends_with_whatever_happens(kind, written):
    domain = ET.fromstring(documents.trial_domain("x", kvm=kind == "kvm"))
    assert domain.get("type") == written
    assert domain.find("devices/interface") is None
    assert domain.find("devices/disk") is None
    assert [domain.findtext(f"on_{event}") for event in ("poweroff", "reboot", "crash")] == [
        "destroy"
    ] * 3


def test_pool_of_a_killed_process_is_known_after_a_while():
    name = storage.scratch_name(1_800_000_000.7)
    assert not storage.is_abandoned(name, 1_800_000_100)
    assert storage.is_abandoned(name, 1_800_001_000)


@pytest.mark.parametrize(
    "name", ["default", "hybridlab-trial", "hybridlab-trial-1800000000", "hybridlab-images"]
)
def test_other_pools_are_not_taken_for_one(name):
    assert not storage.is_abandoned(name, 9_000_000_000)
