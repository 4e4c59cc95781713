"""A network carried between hosts by real VXLAN devices, in namespaces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bridged_hosts import BRIDGE, BridgedHost, NamespaceShell, bridged_hosts, impossible, namespace

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError
from lab.inventory.inventory import Hypervisor
from lab.providers.libvirt.ownership import Owner
from lab.providers.libvirt.vxlan_underlay import TunnelEnd, VxlanDevices

UPLINK, MTU = 1400, 1350
TOKEN = "3fa9c2d1b0e84f6a9d7c5b3a19283746"
DEVICE = "hx3fa9c2d1-clus"
OWNER = Owner("overlay", TOKEN, Path("/home/ann/labs/overlay"), "c0ffee", "ann@desk", 1.7e9, 1.8e9)
STRANGER = replace(OWNER, lab="other", token="ff" * 16)


pytestmark = pytest.mark.skipif(impossible() is not None, reason=str(impossible()))


def soon() -> Deadline:
    return Deadline(10.0)


def ends(hosts: tuple[BridgedHost, ...]) -> tuple[TunnelEnd, ...]:
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


def carry(hosts: tuple[BridgedHost, ...]) -> None:
    for host, end in zip(hosts, ends(hosts), strict=True):
        assert VxlanDevices(host.shell(), soon()).ensure(end, OWNER)


@pytest.fixture
def two() -> Iterator[tuple[BridgedHost, ...]]:
    with bridged_hosts(2, UPLINK, MTU) as hosts:
        yield hosts


def test_guests_reach_each_other_with_packets_of_the_mtu_and_not_one_byte_more(
    two: tuple[BridgedHost, ...],
) -> None:
    first, second = two
    assert first.guest.ping(second.guest_address, 100) == 1
    carry(two)
    assert first.guest.ping(second.guest_address, MTU) == 0
    assert first.guest.ping(second.guest_address, MTU + 1) == 1


def test_no_packet_of_the_mtu_is_cut_to_pieces_on_the_way(two: tuple[BridgedHost, ...]) -> None:
    carry(two)
    assert two[0].guest.ping(two[1].guest_address, MTU) == 0
    for host in two:
        assert "FragCreates" in host.space.do("cat /proc/net/snmp")
        said = host.space.do("nstat --zeros --noupdate IpFragCreates")
        assert said.split()[-2:] == ["0", "0.0"]


def test_three_hosts_are_one_network_without_a_loop() -> None:
    with bridged_hosts(3, UPLINK, MTU) as hosts:
        carry(hosts)
        for one in hosts:
            for other in hosts:
                assert one is other or one.guest.ping(other.guest_address, MTU) == 0
        # A broadcast arrives once: were there a loop, each would come back without end.
        before = int(_sent(hosts[0]))
        assert hosts[0].guest.ping("198.18.201.99", 100) == 1
        assert int(_sent(hosts[0])) - before < 20


def _sent(host: BridgedHost) -> str:
    said = host.space.do(f"ip -json -stats link show {DEVICE}")
    return str(json.loads(said)[0]["stats64"]["tx"]["packets"])


def test_doing_it_again_changes_nothing(two: tuple[BridgedHost, ...]) -> None:
    carry(two)
    shell = two[0].shell()
    assert not VxlanDevices(shell, soon()).ensure(ends(two)[0], OWNER)
    assert shell.changes() == 0


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
def test_what_was_damaged_is_told_and_mended(
    two: tuple[BridgedHost, ...], damage: str, says: str
) -> None:
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
def test_one_made_differently_is_made_anew(two: tuple[BridgedHost, ...], wrong: str) -> None:
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


def test_one_cut_off_before_it_was_marked_is_taken_over(two: tuple[BridgedHost, ...]) -> None:
    tunnel = "id 777 local 198.18.200.1 dstport 14789 ttl 64 learning"
    two[0].space.do(f"ip link add {DEVICE} type vxlan {tunnel}")
    carry(two)
    assert two[0].guest.ping(two[1].guest_address, MTU) == 0


def test_strangers_devices_are_never_touched(two: tuple[BridgedHost, ...]) -> None:
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


def test_a_removed_one_leaves_nothing_and_is_safe_to_remove_again(
    two: tuple[BridgedHost, ...],
) -> None:
    before = two[0].links()
    carry(two)
    assert VxlanDevices(two[0].shell(), soon()).remove(TOKEN) == (DEVICE,)
    assert two[0].links() == before
    assert VxlanDevices(two[0].shell(), soon()).remove(TOKEN) == ()


def test_whose_it_is_stands_on_the_device_itself(two: tuple[BridgedHost, ...]) -> None:
    carry(two)
    two[0].space.do("ip link add flannel.1 type vxlan id 1 dstport 8472")
    assert VxlanDevices(two[0].shell(), soon()).owned() == ((DEVICE, OWNER),)


def test_numbers_of_other_labs_and_strangers_on_our_port_are_taken(
    two: tuple[BridgedHost, ...],
) -> None:
    carry(two)
    two[0].space.do(
        "ip link add other0 type vxlan id 900 dstport 14789",
        "ip link add flannel.1 type vxlan id 901 dstport 8472",
    )
    assert VxlanDevices(two[0].shell(), soon()).used_vnis(TOKEN) == {900}
    assert VxlanDevices(two[0].shell(), soon()).used_vnis(STRANGER.token) == {777, 900}


def test_a_bridge_that_is_not_there_is_said(two: tuple[BridgedHost, ...]) -> None:
    end = replace(ends(two)[0], bridge="nobr0")
    with pytest.raises(BrokenError, match=r"extending network 'cluster' to hypervisor 'h1'.*nobr0"):
        VxlanDevices(two[0].shell(), soon()).ensure(end, OWNER)
    VxlanDevices(two[0].shell(), soon()).remove(TOKEN)


def test_a_hypervisor_that_can_be_an_end_passes(two: tuple[BridgedHost, ...]) -> None:
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
def test_an_uplink_other_than_the_inventory_says_is_refused(
    two: tuple[BridgedHost, ...], change: dict[str, object], says: str
) -> None:
    with pytest.raises(PreflightError, match=says):
        VxlanDevices(two[0].shell(), soon()).require(hypervisor().replace(**change))


def hypervisor() -> Hypervisor:
    return Hypervisor(
        name="h1", uri="qemu+ssh://h1.example/system", address="198.18.200.1", mtu=UPLINK
    )


def test_a_user_without_the_right_is_refused_and_told_what_would_help() -> None:
    with namespace() as space:
        nobody = ("setpriv", "--reuid=65534", "--clear-groups", "env", "PATH=/usr/bin:/bin")
        with pytest.raises(PreflightError) as told:
            VxlanDevices(NamespaceShell(space, *nobody), soon()).require(hypervisor())
    assert "sudo" in str(told.value)
