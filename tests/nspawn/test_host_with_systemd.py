"""System containers on a host with systemd and control groups of version 2, as most hosts are.

The host is an emulated machine: minutes, where it takes seconds on a computer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated_host import EmulatedHost, emulated_host

libvirt = pytest.importorskip("libvirt", reason="libvirt-python is not installed")

from bundle.made_bundle import made_bundle  # noqa: E402

from lab._deadline import Deadline  # noqa: E402
from lab._errors import PreflightError  # noqa: E402
from lab.inventory.inventory import Hypervisor  # noqa: E402
from lab.providers.libvirt.host import Host  # noqa: E402

pytestmark = pytest.mark.hosts
TESTS = Path(__file__).parents[1]
SCENARIOS = (TESTS / "small.yaml", TESTS / "cluster.yaml")
UP = ("up", "small.yaml", "--provider", "nspawn", "--pods", "namespaces")
BOOT = ("cat", "/proc/sys/kernel/random/boot_id")
SECONDS = 600.0
GROUPS = "/sys/fs/cgroup/system.slice/hybridlab-*.scope"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedHost]:
    try:
        connected = Host(Hypervisor(name="local", uri="qemu:///system")).connected
    except PreflightError as error:
        pytest.skip(f"no libvirtd: {error.happened}")
    made_bundle()
    folder = tmp_path_factory.mktemp("host")
    for path in (folder, *folder.parents[:2]):
        path.chmod(path.stat().st_mode | 0o055)
    with emulated_host(connected, folder, SCENARIOS) as made:
        yield made
    connected.close()


@pytest.fixture(scope="module")
def lab(host: EmulatedHost) -> Iterator[EmulatedHost]:
    host.lab(*UP)
    yield host
    host.lab("down", "small")
    assert host.said(f"ls -d {GROUPS} 2>/dev/null || true") == ""
    assert host.said("pgrep systemd-nspawn || true") == ""


def test_it_has_systemd_and_control_groups_of_version_2(host: EmulatedHost) -> None:
    assert host.said("ps -o comm= -p 1") == "systemd"
    assert host.said("stat -f -c %T /sys/fs/cgroup") == "cgroup2fs"


def test_a_cluster_of_two_nodes(host: EmulatedHost) -> None:
    host.lab("up", "cluster.yaml", "--provider", "nspawn")
    try:
        said = host.lab("test", "cluster").stdout
        assert "Not as expected" not in said
        assert "workload checks passed" in said
    finally:
        host.lab("down", "cluster")
    assert host.said(f"ls -d {GROUPS} 2>/dev/null || true") == ""


def test_pods_reach_each_other(lab: EmulatedHost) -> None:
    assert "Not as expected" not in lab.lab("test", "small", "-k", "pod-pod").stdout


def test_the_lab_is_a_unit_that_outlives_the_session_it_was_started_in(lab: EmulatedHost) -> None:
    scope = lab.said("systemctl list-units --plain --no-legend 'hybridlab-*.scope'").split()
    assert scope[2:4] == ["active", "running"]
    outside = (
        "pgrep systemd-nspawn | sed 's,.*,/proc/&/cgroup,' | xargs grep -L /system.slice/hybridlab-"
    )
    assert lab.said(f"{outside} || true") == ""


def test_a_machine_has_the_memory_and_processors_of_the_scenario(lab: EmulatedHost) -> None:
    """More of the first ends a program; the second is the kernel's to keep."""
    take = "import os; taken = bytearray(os.urandom(1)) * (600 << 20)"
    lab.lab("exec", "small", "worker", "--", "python3", "-c", take, code=128 + 9)
    assert lab.said(f"cat {GROUPS}/hybridlab-*/worker/cpu.max") == "100000 100000"


def test_a_disk_of_the_host_cannot_be_opened(lab: EmulatedHost) -> None:
    for way in ("exec", "ssh"):
        line = "mknod /dev/disk b 254 0; head -c 1 /dev/disk; code=$?; rm /dev/disk; exit $code"
        done = lab.lab(way, "small", "worker", "--", "sh", "-c", line, code=1)
        assert "Operation not permitted" in done.stderr


def test_a_machine_reboots(lab: EmulatedHost) -> None:
    before = lab.tried("exec", "small", "worker", "--", *BOOT)
    lab.lab("exec", "small", "worker", "--", "systemctl", "--no-block", "reboot")
    Deadline(SECONDS).wait(
        "the worker to start again",
        lambda: lab.tried("exec", "small", "worker", "--", *BOOT),
        until=lambda said: said not in {"", before},
        every=1.0,
    )
    lab.lab(*UP)


def test_a_suspended_lab_goes_on(lab: EmulatedHost) -> None:
    assert "suspended: 4 machines" in lab.lab("suspend", "small").stdout
    assert lab.lab(*UP).stderr.count("resumed") == 4
