"""Networks of a lab carried between hosts by real VXLAN devices, in namespaces."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bridged_hosts import BRIDGE, BridgedHost, NamespaceShell, bridged_hosts, impossible, namespace

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError
from lab.inventory.inventory import Hypervisor
from lab.machines.libvirt import vxlan_underlay
from lab.machines.libvirt.host import Host
from lab.machines.libvirt.ownership import Owner
from lab.machines.libvirt.vxlan_underlay import TunnelEnd, VxlanDevices, VxlanUnderlay
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent, Interface, MachineIntent, Segment

UPLINK, MTU = 1400, 1350
TOKEN = "3fa9c2d1b0e84f6a9d7c5b3a19283746"
Hosts = tuple[BridgedHost, ...]
DEVICE = "hx3fa9c2d1-clus"
OWNER = Owner("overlay", TOKEN, Path("/home/ann/labs/overlay"), "c0ffee", "ann@desk", 1.7e9, 1.8e9)
STRANGER = replace(OWNER, lab="other", token="ff" * 16)


pytestmark = pytest.mark.skipif(impossible() is not None, reason=str(impossible()))


def soon() -> Deadline:
    return Deadline(10.0)


def ends(hosts: Hosts) -> tuple[TunnelEnd, ...]:
    return tuple(
        TunnelEnd(
            host=host.name,
            segment="cluster",
            device=DEVICE,
            bridge=BRIDGE,
            vni=777,
            local=host.address,
            remotes=tuple(other.address for other in hosts if other is not host),
            mtu=MTU,
        )
        for host in hosts
    )


def carry(hosts: Hosts) -> None:
    for host, end in zip(hosts, ends(hosts), strict=True):
        assert VxlanDevices(host.shell(), soon()).ensure(end, OWNER)


@pytest.fixture
def two():
    with bridged_hosts(2, UPLINK, MTU) as hosts:
        yield hosts


@pytest.fixture
def three():
    with bridged_hosts(3, UPLINK, MTU) as hosts:
        yield hosts


def test_guests_reach_each_other_with_whole_packets_of_the_mtu_and_not_one_byte_more(two):
    first, second = two
    assert first.guest.ping(second.guest_address, 100) == 1
    carry(two)
    assert first.guest.ping(second.guest_address, MTU) == 0
    for host in two:
        said = host.space.do("nstat --zeros --noupdate IpFragCreates")
        assert said.split()[-2:] == ["0", "0.0"]
    assert first.guest.ping(second.guest_address, MTU + 1) == 1


def test_three_hosts_are_one_network_without_a_loop(three):
    carry(three)
    for one in three:
        for other in three:
            assert one is other or one.guest.ping(other.guest_address, MTU) == 0
    # A broadcast arrives once: were there a loop, each would come back without end.
    before = _sent(three[0])
    assert three[0].guest.ping("198.18.201.99", 100) == 1
    assert _sent(three[0]) - before < 20


def _sent(host: BridgedHost) -> int:
    said = host.space.do(f"ip -json -stats link show {DEVICE}")
    return int(json.loads(said)[0]["stats64"]["tx"]["packets"])


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        pytest.param(f"ip link delete {DEVICE}", "is gone", id="device"),
        pytest.param(
            f"ip link set {DEVICE} nomaster", "bridge none instead of hl3fa9c2d1-clus", id="port"
        ),
        pytest.param(f"ip link set {DEVICE} down", "up False instead of True", id="down"),
        pytest.param(f"ip link set {DEVICE} mtu 1200", "MTU 1200 instead of 1350", id="MTU"),
        pytest.param(
            f"bridge fdb del 00:00:00:00:00:00 dev {DEVICE} dst 198.18.200.2",
            r"has remotes \[\] instead of \['198.18.200.2'\]",
            id="entry",
        ),
        pytest.param(
            f"bridge fdb append 00:00:00:00:00:00 dev {DEVICE} dst 198.18.200.9",
            "has remotes .*198.18.200.9",
            id="entry of another",
        ),
    ],
)
def test_damage_is_reported_and_repaired(two, damage, says):
    carry(two)
    first, second = two
    first.space.do(damage)
    (told,) = VxlanDevices(first.shell(), soon()).differences(ends(two)[0])
    assert re.search(says, told), told
    assert VxlanDevices(first.shell(), soon()).ensure(ends(two)[0], OWNER)
    assert VxlanDevices(first.shell(), soon()).differences(ends(two)[0]) == ()
    assert first.guest.ping(second.guest_address, MTU) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        "id 778 local 198.18.200.1 dstport 14789 learning",
        "id 777 local 198.18.200.1 dstport 4789 learning",
        "id 777 local 198.18.200.7 dstport 14789 learning",
        "id 777 local 198.18.200.1 dstport 14789 nolearning",
    ],
)
def test_one_made_differently_is_made_anew(two, wrong):
    carry(two)
    first, second = two
    alias = first.space.do(f"ip -details link show {DEVICE}").partition("alias ")[2].strip()
    first.space.do(
        f"ip link delete {DEVICE}",
        f"ip link add {DEVICE} type vxlan {wrong}",
        f"ip link set {DEVICE} alias {alias}",
    )
    assert VxlanDevices(first.shell(), soon()).ensure(ends(two)[0], OWNER)
    assert first.guest.ping(second.guest_address, MTU) == 0


def test_one_cut_off_before_it_was_marked_is_taken_over(two):
    tunnel = "id 777 local 198.18.200.1 dstport 14789 ttl 64 learning"
    two[0].space.do(f"ip link add {DEVICE} type vxlan {tunnel}")
    carry(two)
    assert two[0].guest.ping(two[1].guest_address, MTU) == 0


def test_strangers_devices_are_never_touched(two):
    host, end = two[0], ends(two)[0]
    host.space.do(
        f"ip link add {DEVICE} type vxlan id 5 dstport 4789",
        "ip link add flannel.1 type vxlan id 1 dstport 8472",
    )
    with pytest.raises(BrokenError, match=f"'{DEVICE}' exists, but does not belong to this lab"):
        VxlanDevices(host.shell(), soon()).ensure(end, OWNER)
    other = replace(end, device="hxffffffff-clus", vni=778)
    VxlanDevices(host.shell(), soon()).ensure(other, STRANGER)
    with pytest.raises(
        BrokenError, match="'hxffffffff-clus' exists, but does not belong to this lab"
    ):
        VxlanDevices(host.shell(), soon()).ensure(replace(end, device="hxffffffff-clus"), OWNER)
    before = host.links()
    assert VxlanDevices(host.shell(), soon()).remove(TOKEN) == ()
    assert host.links() == before


def test_a_removed_one_leaves_nothing_and_is_safe_to_remove_again(two):
    before = two[0].links()
    carry(two)
    assert VxlanDevices(two[0].shell(), soon()).remove(TOKEN) == (DEVICE,)
    assert two[0].links() == before
    assert VxlanDevices(two[0].shell(), soon()).remove(TOKEN) == ()


def test_numbers_of_other_labs_and_strangers_on_our_port_are_taken(two):
    carry(two)
    two[0].space.do(
        "ip link add other0 type vxlan id 900 dstport 14789",
        "ip link add flannel.1 type vxlan id 901 dstport 8472",
    )
    assert VxlanDevices(two[0].shell(), soon()).used_vnis(TOKEN) == {900}
    assert VxlanDevices(two[0].shell(), soon()).used_vnis(STRANGER.token) == {777, 900}


def test_a_missing_bridge_is_reported(two):
    end = replace(ends(two)[0], bridge="nobr0")
    with pytest.raises(BrokenError, match=r"extending network 'cluster' to hypervisor 'h1'.*nobr0"):
        VxlanDevices(two[0].shell(), soon()).ensure(end, OWNER)
    VxlanDevices(two[0].shell(), soon()).remove(TOKEN)


def test_a_hypervisor_that_can_be_an_end_passes(two):
    before = two[0].links()
    VxlanDevices(two[0].shell(), soon()).require(hypervisor())
    assert two[0].links() == before


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"address": "198.18.200.77"}, "none of its devices has the address 198.18.200.77"),
        ({"mtu": 1500}, "'uplink' has an MTU of 1400, but the inventory says 1500"),
    ],
)
def test_an_uplink_other_than_the_inventorys_is_refused(two, change, says):
    with pytest.raises(PreflightError, match=says):
        VxlanDevices(two[0].shell(), soon()).require(hypervisor().replace(**change))


def hypervisor() -> Hypervisor:
    return Hypervisor(
        name="h1", uri="qemu+ssh://h1.example/system", address="198.18.200.1", mtu=UPLINK
    )


def test_a_user_without_privileges_is_refused_with_a_hint():
    with namespace() as space:
        nobody = ("setpriv", "--reuid=65534", "--clear-groups", "env", "PATH=/usr/bin:/bin")
        with pytest.raises(PreflightError) as told:
            VxlanDevices(NamespaceShell(space, *nobody), soon()).require(hypervisor())
    assert "sudo" in str(told.value)


LAB = LabHandle("overlay", OWNER.directory, TOKEN)


def machine(name: str) -> MachineIntent:
    card = Interface("eth0", "cluster", "52:54:00:00:00:01", (), MTU)
    return MachineIntent(
        name, "node", "linux", (card,), None, None, (), (), (), (), (), None, (), forwards=False
    )


INTENT = Intent(
    scenario="overlay",
    topology="overlay",
    domain="cluster.local",
    segments=(Segment("cluster", "10.0.0.0/24", MTU),),
    machines=(machine("one"), machine("two"), machine("three")),
    pod_mtu=1300,
    node_mtu=MTU,
)
APART = {"one": "h1", "two": "h2", "three": "h3"}


def carriage(hosts: Hosts, machines: dict[str, str] = APART, mtu: int = UPLINK) -> VxlanUnderlay:
    made = {}
    for bridged_host in hosts:
        uri = f"qemu+ssh://{bridged_host.address}/system"
        host = Host(Hypervisor(name=bridged_host.name, uri=uri, mtu=mtu))
        host.__dict__["shell"] = bridged_host.shell()
        made[bridged_host.name] = host
    return VxlanUnderlay(LAB, INTENT, machines, made)


def test_a_lab_over_three_hypervisors_is_joined_and_looked_at(three):
    whole = carriage(three)
    whole.check()
    assert len(whole.differences()) == 3
    assert len(whole.make(OWNER)) == 3
    assert whole.differences() == ()
    shells: list[Any] = [host.shell for host in whole.hosts.values()]
    before = [shell.changes() for shell in shells]
    assert whole.make(OWNER) == ()
    assert [shell.changes() for shell in shells] == before
    assert three[0].guest.ping(three[2].guest_address, MTU) == 0


def test_a_lab_on_one_hypervisor_asks_nothing_of_any(three):
    alone = carriage(three, dict.fromkeys(APART, "h1"))
    alone.check()
    assert alone.make(OWNER) == ()
    assert alone.differences() == ()
    shells = [host.shell for host in alone.hosts.values()]
    assert [shell.asked for shell in shells if isinstance(shell, NamespaceShell)] == [[], [], []]


def test_when_a_host_reboots_the_others_are_left_alone(three):
    whole = carriage(three)
    whole.make(OWNER)
    (device,) = VxlanDevices(three[1].shell(), whole.deadline).remove(LAB.token)
    assert whole.differences() == (f"tunnel end '{device}' on hypervisor 'h2' is gone",)
    assert whole.make(OWNER) == (f"tunnel end '{device}' on 'h2' created",)
    assert three[0].guest.ping(three[1].guest_address, MTU) == 0


def test_a_number_that_a_stranger_took_on_one_host_is_used_on_none(three):
    first = vxlan_underlay.choose_vni(LAB.token, "cluster", ())
    three[2].space.do(f"ip link add other0 type vxlan id {first} dstport {vxlan_underlay.PORT}")
    carriage(three).make(OWNER)
    assert three[0].guest.ping(three[2].guest_address, MTU) == 0
    for host in three:
        assert f"vxlan id {first} " not in host.space.do(
            f"ip -details link show master {BRIDGE} type vxlan"
        )


def test_an_uplink_of_another_mtu_is_refused_by_the_hypervisors_name(three):
    with pytest.raises(PreflightError, match="hypervisor 'h2': its device 'uplink'"):
        carriage(three, mtu=9000).check()
    assert carriage(three).differences() != ()
