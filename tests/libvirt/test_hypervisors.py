"""The hypervisors that the tests make: separate, reachable, and gone afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import hypervisors
import pytest
from hypervisors import Hypervisor, hypervisor, uplink

from lab._deadline import Deadline

PING = Path(__file__).with_name("programs") / "ping.py"
NETWORK = """
<network><name>hvtest</name><bridge name='hvtest0'/>
  <ip address='198.19.7.1' netmask='255.255.255.0'>
    <dhcp><range start='198.19.7.10' end='198.19.7.20'/></dhcp></ip></network>
"""
DOMAIN = """
<domain type='qemu'><name>hvtest</name><memory unit='MiB'>32</memory><vcpu>1</vcpu>
  <os><type machine='q35'>hvm</type></os>
  <devices><interface type='network'><source network='hvtest'/></interface></devices></domain>
"""


def virsh(uri: str, *words: str, content: str = "") -> str:
    done = subprocess.run(
        ("virsh", "-q", "-c", uri, *words),
        input=content,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def ping(one: Hypervisor, address: str, size: int = 100) -> int:
    """0 with a reply, 1 without, 2 for a packet that is too large to be sent."""
    entry = ("nsenter", f"--target={one.inner}", "--net", "--")
    return subprocess.run(
        (*entry, sys.executable, PING, address, str(size)), check=False
    ).returncode


def traces(one: Hypervisor) -> list[str]:
    known = hypervisors.known_hosts.FILE
    return [
        *([f"link {one.port}"] if Path("/sys/class/net", one.port).exists() else []),
        *([f"directory {one.directory}"] if one.directory.exists() else []),
        *([f"process {pid}" for pid in (one.outer, one.inner) if Path(f"/proc/{pid}").exists()]),
        *(["known host"] if known.exists() and f"{one.address} " in known.read_text() else []),
    ]


def test_two_hypervisors_know_nothing_of_each_other(
    two_hypervisors: tuple[Hypervisor, Hypervisor],
) -> None:
    first, second = two_hypervisors
    for one in two_hypervisors:
        virsh(one.uri, "net-create", "/dev/stdin", content=NETWORK)
    virsh(first.uri, "create", "/dev/stdin", content=DOMAIN)
    try:
        assert virsh(first.uri, "list", "--name") == "hvtest"
        assert virsh(second.uri, "list", "--name") == ""
        assert "hvtest" not in virsh("qemu:///system", "list", "--all", "--name").split()
        assert "hvtest" not in virsh("qemu:///system", "net-list", "--all", "--name").split()
    finally:
        virsh(first.uri, "destroy", "hvtest")
        for one in two_hypervisors:
            virsh(one.uri, "net-destroy", "hvtest")
    assert len({virsh(one.uri, "capabilities").split("uuid>")[1] for one in two_hypervisors}) == 2


def test_their_network_carries_its_mtu_and_no_more(
    two_hypervisors: tuple[Hypervisor, Hypervisor],
) -> None:
    first, second = two_hypervisors
    assert ping(first, second.address, first.mtu) == 0
    assert ping(first, second.address, first.mtu + 1) == 2


def test_one_that_is_unplugged_does_not_answer_until_plugged_again(
    two_hypervisors: tuple[Hypervisor, Hypervisor],
) -> None:
    first, second = two_hypervisors
    second.unplug()
    assert ping(first, second.address) == 1
    second.plug()
    Deadline(10).wait("waiting for the cable", lambda: ping(first, second.address) == 0)


def test_what_this_machine_keeps_is_not_seen_there(
    two_hypervisors: tuple[Hypervisor, Hypervisor], tmp_path: Path
) -> None:
    first, second = two_hypervisors
    images = "/var/lib/libvirt/images"
    first.run("touch", f"{images}/of-first")
    assert "of-first" not in second.run("ls", images)
    assert not Path(images, "of-first").exists()
    with pytest.raises(AssertionError):
        first.run("ls", str(tmp_path))


def test_nothing_of_one_is_left_with_a_guest_still_running() -> None:
    with uplink() as network, hypervisor("hvtest", network, 9) as one:
        virsh(one.uri, "net-create", "/dev/stdin", content=NETWORK)
        virsh(one.uri, "create", "/dev/stdin", content=DOMAIN)
        assert len(traces(one)) == 5
        guests = one.run("pgrep", "qemu-system").split()
        assert len(guests) == 1
    assert traces(one) == []
    assert not Path("/sys/class/net", network.bridge).exists()


def test_one_whose_maker_is_killed_ends_and_the_next_run_sweeps() -> None:
    program = Path(hypervisors.__file__)
    maker = subprocess.Popen(
        (sys.executable, str(program), "--count", "1"), stdout=subprocess.PIPE, text=True
    )
    assert maker.stdout is not None
    entry = [maker.stdout.readline() for _ in range(2)]
    maker.send_signal(signal.SIGKILL)
    maker.communicate()
    place = Path(entry[1].partition("keyfile=")[2].strip(' "\n')).parent
    address = entry[1].partition("@")[2].partition("/")[0] + " "
    assert place.is_dir()

    def processes() -> list[str]:
        every = subprocess.run(("ps", "axww", "-o", "args"), capture_output=True, check=True)
        return [line for line in every.stdout.decode().splitlines() if str(place) in line]

    Deadline(20).wait("waiting for it to end", processes, until=lambda seen: not seen)
    assert address in hypervisors.known_hosts.FILE.read_text()
    hypervisors.sweep()
    assert not place.exists()
    known = hypervisors.known_hosts.FILE
    assert not known.exists() or address not in known.read_text()
