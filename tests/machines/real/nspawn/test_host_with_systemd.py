"""System containers on a host with systemd and control groups of version 2, as most hosts are.

The host is an emulated machine: minutes, where it takes seconds on a computer.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from processes import run_program

libvirt = pytest.importorskip("libvirt", reason="libvirt-python is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "libvirt"))

import booting  # noqa: E402
from bundle.made_bundle import made_bundle  # noqa: E402

from lab._deadline import Deadline  # noqa: E402
from lab._errors import PreflightError  # noqa: E402
from lab.inventory.inventory import STOCK, Hypervisor  # noqa: E402
from lab.machines.images.golden import cache_directory  # noqa: E402
from lab.machines.images.image_store import ImageStore  # noqa: E402
from lab.machines.libvirt.host import Host  # noqa: E402

REPOSITORY = Path(__file__).parents[4]
MEMORY_MIB, VCPUS, CACHE_MIB, DISK_GIB = 6144, 2, 1024, 10
IMAGE = "debian-12"
DATA = "/data"
COMMAND_SECONDS = 3000


@dataclass(frozen=True)
class EmulatedHost:
    """A running host."""

    guest: booting.Guest

    def lab(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run the command ``lab`` on the host."""
        line = f"cd {DATA} && timeout {COMMAND_SECONDS} python3 -m lab {shlex.join(words)}"
        done = self.guest.try_ssh(f". {DATA}/environment; {line}")
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def tried(self, *words: str) -> str:
        """The output of the command; empty if it fails."""
        line = f"cd {DATA} && python3 -m lab {shlex.join(words)}"
        return self.guest.try_ssh(f". {DATA}/environment; {line}").stdout.strip()

    def said(self, line: str) -> str:
        """The output of a shell command on the host."""
        return self.guest.ssh(f". {DATA}/environment; {line}").strip()


@contextmanager
def emulated_host(
    connected: Any, folder: Path, scenarios: tuple[Path, ...]
) -> Iterator[EmulatedHost]:
    """Boot a host; its disks are in ``folder``, which QEMU must be able to read."""
    data = folder / "data.img"
    if not data.exists():
        _write_data(data, folder / "stage", scenarios)
    image = ImageStore(cache_directory(STOCK), STOCK).get(IMAGE, print)
    more = (
        f"<disk type='file' device='disk'><driver name='qemu' type='raw' cache='unsafe'/>"
        f"<source file='{data}'/><target dev='vdc' bus='virtio'/></disk>"
    )
    with booting.nat(connected, "nspawnhost", "10.219.78") as network:
        who = booting.identity(network, folder, "host")
        size = booting.Size(MEMORY_MIB, VCPUS, CACHE_MIB, more)
        with booting.guest(connected, image, who, network, folder, size=size) as guest:
            guest.wait()
            guest.ssh(f"mkdir {DATA} && mount /dev/vdc {DATA} ")
            guest.ssh(f"tar -C {DATA}/root -c . | tar -C / -x --keep-directory-symlink")
            guest.ssh("systemctl daemon-reload; modprobe -a overlay br_netfilter nf_conntrack")
            guest.ssh("sysctl -q -w fs.inotify.max_user_instances=1024")
            yield EmulatedHost(guest)


def _write_data(image: Path, stage: Path, scenarios: tuple[Path, ...]) -> None:
    """Write the extra disk's file system; cached files are linked into ``stage``."""
    cache = cache_directory(STOCK)
    image_store = ImageStore(cache, STOCK)
    image_store.root(IMAGE, print)
    for part in ("roots", "bundles", "containers"):
        place = stage / "cache/hybridlab" / part
        place.mkdir(parents=True)
        newest = max((cache / part).iterdir(), key=lambda path: path.stat().st_mtime)
        _run("cp", "--archive", "--link", newest, place)
    site = next(Path(one) for one in sys.path if one.endswith("site-packages"))
    _run("cp", "--archive", site, stage / "site")
    _run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--wheel-dir", stage / "wheel", REPOSITORY),
    )
    (wheel,) = (stage / "wheel").iterdir()
    shutil.rmtree(stage / "site/lab", ignore_errors=True)
    _run(sys.executable, "-m", "zipfile", "-e", wheel, stage / "site")
    for scenario in scenarios:
        shutil.copy(scenario, stage)
    _run("apt-get", "download", "-q", "systemd-container", cwd=stage)
    (package,) = stage.glob("systemd-container_*.deb")
    _run("dpkg-deb", "--extract", package, stage / "root")
    (stage / "environment").write_text(
        f"export PYTHONPATH={DATA}/site XDG_CACHE_HOME={DATA}/cache HYBRIDLAB_STATE={DATA}/state "
        "HYBRIDLAB_INVENTORY=/dev/null COLUMNS=100\n"
    )
    with image.open("wb") as file:
        file.truncate(DISK_GIB << 30)
    _run("mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-d", stage, image)
    shutil.rmtree(stage)
    image.chmod(0o666)


def _run(*words: object, cwd: Path | None = None) -> str:
    done = run_program(
        [str(word) for word in words],
        cwd=cwd,
        check=False,
        timeout=COMMAND_SECONDS,
        env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout + done.stderr


pytestmark = pytest.mark.hosts
TESTS = Path(__file__).parents[3]
SCENARIOS = (TESTS / "small.yaml", TESTS / "cluster.yaml")
UP = ("up", "small.yaml", "--provider", "nspawn", "--pods", "namespaces")
BOOT = ("cat", "/proc/sys/kernel/random/boot_id")
SECONDS = 600.0
GROUPS = "/sys/fs/cgroup/system.slice/hybridlab-*.scope"


@pytest.fixture(scope="module")
def host(tmp_path_factory):
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
def lab(host):
    host.lab(*UP)
    yield host
    host.lab("down", "small")
    assert host.said(f"ls -d {GROUPS} 2>/dev/null || true") == ""
    assert host.said("pgrep systemd-nspawn || true") == ""


def test_it_has_systemd_and_control_groups_of_version_2(host):
    assert host.said("ps -o comm= -p 1") == "systemd"
    assert host.said("stat -f -c %T /sys/fs/cgroup") == "cgroup2fs"


def test_a_cluster_of_two_nodes(host):
    host.lab("up", "cluster.yaml", "--provider", "nspawn")
    try:
        stdout = host.lab("test", "cluster").stdout
        assert "Not as expected" not in stdout
        assert "workload checks passed" in stdout
    finally:
        host.lab("down", "cluster")
    assert host.said(f"ls -d {GROUPS} 2>/dev/null || true") == ""


def test_pods_reach_each_other(lab):
    assert "Not as expected" not in lab.lab("test", "small", "-k", "pod-pod").stdout


def test_the_lab_is_a_unit_that_outlives_the_session_it_was_started_in(lab):
    scope = lab.said("systemctl list-units --plain --no-legend 'hybridlab-*.scope'").split()
    assert scope[2:4] == ["active", "running"]
    outside = (
        "pgrep systemd-nspawn | sed 's,.*,/proc/&/cgroup,' | xargs grep -L /system.slice/hybridlab-"
    )
    assert lab.said(f"{outside} || true") == ""


def test_a_machine_has_the_memory_and_processors_of_the_scenario(lab):
    """More of the first ends a program; the second is the kernel's to keep."""
    take = "import os; taken = bytearray(os.urandom(1)) * (600 << 20)"
    lab.lab("exec", "small", "worker", "--", "python3", "-c", take, code=128 + 9)
    assert lab.said(f"cat {GROUPS}/hybridlab-*/worker/cpu.max") == "100000 100000"


def test_a_disk_of_the_host_cannot_be_opened(lab):
    for way in ("exec", "ssh"):
        line = "mknod /dev/disk b 254 0; head -c 1 /dev/disk; code=$?; rm /dev/disk; exit $code"
        done = lab.lab(way, "small", "worker", "--", "sh", "-c", line, code=1)
        assert "Operation not permitted" in done.stderr


def test_a_machine_reboots(lab):
    before = lab.tried("exec", "small", "worker", "--", *BOOT)
    lab.lab("exec", "small", "worker", "--", "systemctl", "--no-block", "reboot")
    Deadline(SECONDS).wait(
        "the worker to start again",
        lambda: lab.tried("exec", "small", "worker", "--", *BOOT),
        until=lambda said: said not in {"", before},
        every=1.0,
    )
    lab.lab(*UP)


def test_a_suspended_lab_goes_on(lab):
    assert "suspended: 4 machines" in lab.lab("suspend", "small").stdout
    assert lab.lab(*UP).stderr.count("resumed") == 4
