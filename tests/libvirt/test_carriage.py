"""All tunnels of a lab at once, over hosts of namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bridged_hosts import BRIDGE, BridgedHost, NamespaceShell, bridged_hosts, impossible

from lab._errors import PreflightError
from lab.inventory.inventory import Hypervisor
from lab.providers.libvirt import vxlan_underlay
from lab.providers.libvirt.host import Host
from lab.providers.libvirt.ownership import Owner
from lab.providers.libvirt.vxlan_underlay import VxlanDevices, VxlanUnderlay
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent, Interface, MachineIntent, Segment

pytestmark = pytest.mark.skipif(impossible() is not None, reason=str(impossible()))

LAB = LabHandle("overlay", Path("/labs/overlay"), "3fa9c2d1b0e84f6a9d7c5b3a19283746")
OWNER = Owner("overlay", LAB.token, LAB.directory, "c0ffee", "ann@desk", 1.7e9)
MTU = 1350


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


@pytest.fixture
def three() -> Iterator[tuple[BridgedHost, ...]]:
    with bridged_hosts(3, MTU + 50, MTU) as hosts:
        yield hosts


def carriage(
    hosts: tuple[BridgedHost, ...], machines: dict[str, str] = APART, mtu: int = MTU + 50
) -> VxlanUnderlay:
    made = {}
    for one in hosts:
        uri = f"qemu+ssh://{one.address}/system"
        host = Host(Hypervisor(name=one.name, uri=uri, mtu=mtu))
        host.__dict__["shell"] = one.shell()
        made[one.name] = host
    return VxlanUnderlay(LAB, INTENT, machines, made)


def test_a_lab_over_three_hypervisors_is_joined_and_looked_at(
    three: tuple[BridgedHost, ...],
) -> None:
    whole = carriage(three)
    whole.check()
    assert len(whole.differences()) == 3
    assert len(whole.make(OWNER)) == 3
    assert whole.differences() == ()
    assert whole.make(OWNER) == ()
    assert three[0].guest.ping(three[2].guest_address, MTU) == 0


def test_a_lab_on_one_hypervisor_asks_nothing_of_any(three: tuple[BridgedHost, ...]) -> None:
    alone = carriage(three, dict.fromkeys(APART, "h1"))
    alone.check()
    assert alone.make(OWNER) == ()
    assert alone.differences() == ()
    shells = [host.shell for host in alone.hosts.values()]
    assert [shell.asked for shell in shells if isinstance(shell, NamespaceShell)] == [[], [], []]


def test_when_a_host_reboots_the_others_are_left_alone(three: tuple[BridgedHost, ...]) -> None:
    whole = carriage(three)
    whole.make(OWNER)
    (device,) = VxlanDevices(three[1].shell(), whole.deadline).remove(LAB.token)
    assert whole.differences() == (f"tunnel end '{device}' on hypervisor 'h2' is gone",)
    assert whole.make(OWNER) == (f"tunnel end '{device}' on 'h2' created",)
    assert three[0].guest.ping(three[1].guest_address, MTU) == 0


def test_a_number_that_a_stranger_took_on_one_host_is_used_on_none(
    three: tuple[BridgedHost, ...],
) -> None:
    first = vxlan_underlay.choose_vni(LAB.token, "cluster", ())
    three[2].space.do(f"ip link add other0 type vxlan id {first} dstport {vxlan_underlay.PORT}")
    carriage(three).make(OWNER)
    assert three[0].guest.ping(three[2].guest_address, MTU) == 0
    for host in three:
        assert f"vxlan id {first} " not in host.space.do(
            f"ip -details link show master {BRIDGE} type vxlan"
        )


def test_an_uplink_of_another_mtu_is_refused_by_the_hypervisors_name(
    three: tuple[BridgedHost, ...],
) -> None:
    with pytest.raises(PreflightError, match="hypervisor 'h2': its device 'uplink'"):
        carriage(three, mtu=9000).check()
    assert carriage(three).differences() != ()
