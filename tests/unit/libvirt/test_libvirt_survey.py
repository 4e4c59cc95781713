"""What a shell on a hypervisor prints, read."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest

from lab.providers.libvirt.doctor import KernelRoute, read_survey

PRINTED = """\
1800000000.250000000
[{"dst":"default","gateway":"192.0.2.1","dev":"eth0","flags":[]},\
{"dst":"192.0.2.0/24","dev":"eth0","prefsrc":"192.0.2.11","flags":[]},\
{"dst":"10.8.0.1","dev":"tun0","flags":[]}]

[{},{"ifname":"lo","mtu":65536,"addr_info":[{"family":"inet","local":"127.0.0.1"}]},\
{"ifname":"eth0","mtu":1400,"addr_info":[{"family":"inet","local":"192.0.2.11"},\
{"family":"inet6","local":"2001:db8::1"}]}]
"""


def test_clock_routes_links_and_addresses_are_read() -> None:
    found = read_survey(PRINTED)
    assert found.clock == 1_800_000_000.25
    assert found.routes == (
        KernelRoute(IPv4Network("192.0.2.0/24"), "eth0"),
        KernelRoute(IPv4Network("10.8.0.1/32"), "tun0"),
    )
    assert found.uplink == "eth0"
    assert found.mtus == {"lo": 65536, "eth0": 1400}
    assert found.devices[IPv4Address("192.0.2.11")] == "eth0"


def test_link_of_the_tunnels_is_that_of_the_address_or_the_uplink() -> None:
    found = read_survey(PRINTED)
    assert found.device_of(None) == "eth0"
    assert found.device_of("127.0.0.1") == "lo"
    assert found.device_of("203.0.113.1") is None


def test_clock_without_nanoseconds_and_host_without_routes_are_read() -> None:
    found = read_survey("1800000000.N\n[ ]\n\n[]\n")
    assert (found.clock, found.routes, found.uplink) == (1_800_000_000.0, (), None)
    assert read_survey("1800000000.5\n\n\n[]\n").routes == ()


@pytest.mark.parametrize("printed", ["", "Welcome!\n", "1.0\n{}\n\n[]", '1.0\n[{"dst":"x"}]\n\n'])
def test_anything_else_is_an_error(printed: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_survey(printed)
