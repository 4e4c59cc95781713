"""A typical host: Debian with systemd and control groups of version 2, in a virtual machine.

It has this project's wheel with its dependencies, the bundle and the root file system of the
images, on an extra disk.
"""

from __future__ import annotations

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

from lab.imaging.golden import cache_directory
from lab.imaging.image_store import ImageStore
from lab.inventory.inventory import STOCK

libvirt = pytest.importorskip("libvirt", reason="libvirt-python is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "libvirt"))
import booting  # noqa: E402

REPOSITORY = Path(__file__).parents[2]
MEMORY_MIB, VCPUS, CACHE_MIB, DISK_GIB = 6144, 2, 1024, 10
IMAGE = "debian-12"
DATA = "/data"
SECONDS = 3000


@dataclass(frozen=True)
class EmulatedHost:
    """A running host."""

    guest: booting.Guest

    def lab(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run the command ``lab`` on the host."""
        line = f"cd {DATA} && timeout {SECONDS} python3 -m lab {shlex.join(words)}"
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
        newest = max((cache / part).iterdir(), key=lambda one: one.stat().st_mtime)
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
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env=os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout + done.stderr
