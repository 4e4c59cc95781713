"""Which tunnel ends a lab needs, whose a device is, and a hypervisor's refusals in words."""

import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab.inventory.inventory import Hypervisor
from lab.machines.libvirt import vxlan_underlay
from lab.machines.libvirt.ownership import Owner
from lab.machines.libvirt.vxlan_underlay import VxlanDevice, VxlanDevices, read_alias, write_alias
from lab.providers.provider import LabHandle
from lab.shells.shell import Completed
from lab.topology.intent import Intent, Interface, MachineIntent, Segment

LAB = LabHandle("overlay", Path("/labs/overlay"), "3fa9c2d1b0e84f6a9d7c5b3a19283746")
ENDS = {"a": "192.0.2.1", "b": "192.0.2.2", "c": "192.0.2.3"}
OWNER = Owner("overlay", LAB.token, LAB.directory, "c0ffee", "ann & bob@desk", 17e8, None)


def machine(name: str, *segments: str) -> MachineIntent:
    cards = tuple(
        Interface(f"eth{number}", segment, "52:54:00:00:00:01", (), 1450)
        for number, segment in enumerate(segments)
    )
    return MachineIntent(
        name, "node", "linux", cards, None, None, (), (), (), (), (), None, (), forwards=False
    )


INTENT = Intent(
    scenario="overlay",
    topology="overlay",
    domain="cluster.local",
    segments=(Segment("cluster", "10.0.0.0/24", 1350), Segment("outside", "10.1.0.0/24", 1300)),
    machines=(
        machine("one", "cluster"),
        machine("two", "cluster"),
        machine("three", "cluster"),
        machine("router", "cluster", "outside"),
        machine("client", "outside"),
    ),
    pod_mtu=1300,
    node_mtu=1350,
)


def planned(where: str) -> tuple[vxlan_underlay.TunnelEnd, ...]:
    names = [machine.name for machine in INTENT.machines]
    return vxlan_underlay.plan_tunnels(LAB, INTENT, dict(zip(names, where, strict=True)), ENDS)


def test_a_lab_on_one_hypervisor_needs_no_tunnels():
    assert planned("aaaaa") == ()


def test_every_hypervisor_of_a_network_has_an_end_that_leads_to_all_others():
    ends = planned("abcaa")
    assert [(end.host, end.segment, end.local, end.remotes) for end in ends] == [
        ("a", "cluster", "192.0.2.1", ("192.0.2.2", "192.0.2.3")),
        ("b", "cluster", "192.0.2.2", ("192.0.2.1", "192.0.2.3")),
        ("c", "cluster", "192.0.2.3", ("192.0.2.1", "192.0.2.2")),
    ]
    assert {(end.device, end.bridge, end.mtu) for end in ends} == {
        ("hx3fa9c2d1-clus", "hl3fa9c2d1-clus", 1350)
    }
    assert len({end.vni for end in ends}) == 1


def test_a_network_is_carried_to_those_hypervisors_alone_that_have_machines_on_it():
    ends = planned("aaabc")
    assert [(end.segment, end.host) for end in ends] == [
        ("cluster", "a"),
        ("cluster", "b"),
        ("outside", "b"),
        ("outside", "c"),
    ]
    assert len({end.vni for end in ends}) == 2


def test_a_number_in_use_is_passed_over_and_the_choice_is_the_same_every_time():
    first = vxlan_underlay.choose_vni(LAB.token, "cluster", ())
    assert first == vxlan_underlay.choose_vni(LAB.token, "cluster", ())
    second = vxlan_underlay.choose_vni(LAB.token, "cluster", {first})
    third = vxlan_underlay.choose_vni(LAB.token, "cluster", {first, second})
    assert len({0, first, second, third}) == 4
    assert 0 < second < 1 << 24


TEXT = st.text(min_size=1, max_size=120)


@given(lab=st.from_regex(r"[a-z0-9-]{1,40}", fullmatch=True), owner=TEXT, directory=TEXT)
def test_an_alias_names_a_devices_owner_and_fits_for_any_names(lab, owner, directory):
    whole = replace(OWNER, lab=lab, owner=owner, directory=Path(directory), expires=18e8)
    alias = write_alias(whole)
    assert len(alias.encode()) <= 255
    assert not set(alias) & set(" \t\n\"'\\#")
    read = read_alias(alias)
    assert read is not None
    assert replace(read, owner="", directory=Path()) == replace(whole, owner="", directory=Path())
    assert read_alias(write_alias(OWNER)) == OWNER, "one of usual length loses nothing"


@pytest.mark.parametrize(
    "alias", ["", "uplink of rack 3", "hybridlab?lab=x", "hybridlab?created=x"]
)
def test_an_alias_of_anything_else_is_a_strangers(alias):
    assert read_alias(alias) is None


class Answers:
    """A shell on which every command ends the same."""

    def __init__(self, code: int, stdout: str = "", stderr: str = "") -> None:
        self._completed = Completed(code, stdout, stderr)

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        del command, deadline, stdin
        return self._completed


@pytest.mark.parametrize(
    ("answers", "says", "hint"),
    [
        (Answers(2, "", "Error: Unknown device type."), "does not support VXLAN", "modprobe vxlan"),
        (Answers(1, "", "sudo: a password is required"), "may not change", "sudo -n"),
        (Answers(127, "", "sh: 1: exec: sudo: not found"), "lacks 'ip'", "install iproute2"),
        (Answers(0, "1: lo:"), "not JSON: '1: lo:'", "4.13"),
    ],
)
def test_a_hypervisor_that_cannot_carry_is_refused_with_the_fix(answers, says, hint):
    with pytest.raises(PreflightError, match=says) as told:
        VxlanDevices(answers, Deadline(1)).require(
            Hypervisor(name="a", uri="qemu+ssh://192.0.2.8/system")
        )
    assert hint in told.value.hint


def test_a_kernel_that_shows_every_device_for_an_unknown_kind_has_no_vxlans():
    assert (
        VxlanDevices(Answers(0, '[{"ifname": "lo", "mtu": 65536}, {}]'), Deadline(1)).vxlans() == ()
    )


@pytest.mark.parametrize(
    ("given_uri", "address", "end"),
    [
        ("qemu:///system", "192.0.2.7", "192.0.2.7"),
        ("qemu+ssh://root@192.0.2.8/system", None, "192.0.2.8"),
        ("qemu+ssh://root@192.0.2.8/system", "192.0.2.9", "192.0.2.9"),
        ("qemu+ssh://localhost/system", None, "127.0.0.1"),
    ],
)
def test_the_end_of_tunnels_is_the_address_given_or_that_of_the_uri(given_uri, address, end):
    assert (
        vxlan_underlay.tunnel_address(Hypervisor(name="a", uri=given_uri, address=address)) == end
    )


@pytest.mark.parametrize(
    ("given_uri", "says"),
    [
        ("qemu:///system", "its URI names no host"),
        ("qemu+ssh://no-such-host.invalid/system", "cannot resolve 'no-such-host.invalid'"),
    ],
)
def test_a_hypervisor_without_an_address_is_refused_by_name(given_uri, says, monkeypatch):
    def unknown(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(PreflightError, match=says) as told:
        vxlan_underlay.tunnel_address(Hypervisor(name="rack1", uri=given_uri))
    assert "give 'rack1' an 'address'" in told.value.hint


TOKEN = "3fa9c2d1e0b4a596"
CUT_OFF = VxlanDevice(
    "hx3fa9c2d1-clus", 7, vxlan_underlay.PORT, "198.18.0.1", True, 1500, "", False, ""
)


@pytest.mark.parametrize(
    ("device", "token", "known"),
    [
        (CUT_OFF, TOKEN, True),
        (CUT_OFF, "0" * 16, False),
        (replace(CUT_OFF, alias="theirs"), TOKEN, False),
        (replace(CUT_OFF, port=4789), TOKEN, False),
        (replace(CUT_OFF, device="vxlan7"), TOKEN, False),
    ],
)
def test_an_end_cut_off_before_it_was_marked_is_known_by_its_name(device, token, known):
    assert device.is_of(token) == known
