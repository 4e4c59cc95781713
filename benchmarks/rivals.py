"""What a user would take instead of us, given the same image, kernel, seed and machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

from lab._deadline import Deadline
from lab.machines.images.golden import GoldenImage
from lab.machines.images.seed import Identity, SeedCard, seed_files, seed_image

URI = "qemu:///system"
NETWORK, POOL, PLAN = "hlbench", "hlbench", "hlbench"
BRIDGE = "hlbench0"
SUBNET = "10.219.55"
STORAGE = Path("/var/lib/libvirt/images")
MEMORY_MIB, DISK_GIB = 768, 20
SSH_PORT = 22


@dataclass(frozen=True)
class Place:
    """A network and a directory that all rivals use."""

    directory: Path
    """Also a storage pool, with the golden image as ``golden.qcow2``, ``kernel``, ``initrd``."""
    key: Path
    accelerated: bool

    @property
    def kind(self) -> str:
        return "kvm" if self.accelerated else "qemu"


@contextmanager
def place(image: GoldenImage, *, accelerated: bool) -> Iterator[Place]:
    """Make it, and take it and every guest that is left away."""
    directory = Path(tempfile.mkdtemp(prefix="hlbench-", dir=STORAGE))
    directory.chmod(0o711)
    try:
        for name, file in (
            ("golden.qcow2", image.disk),
            ("kernel", image.kernel),
            ("initrd", image.initrd),
        ):
            if file is not None:
                shutil.copy(file, directory / name)
        ssh_key(directory / "key")
        virsh("net-create", "/dev/stdin", document=_NETWORK)
        virsh("pool-create-as", POOL, "dir", "--target", str(directory))
        yield Place(directory, directory / "key", accelerated)
    finally:
        for name in virsh("list", "--all", "--name").split():
            if name.startswith("hlbench-"):
                discard(name)
        for words in (("net-destroy", NETWORK), ("pool-destroy", POOL)):
            virsh(*words, check=False)
        shutil.rmtree(directory)


_NETWORK = (
    f"<network><name>{NETWORK}</name><forward mode='nat'/><bridge name='{BRIDGE}' stp='off'/>"
    f"<ip address='{SUBNET}.1' prefix='24'/></network>"
)


def virsh(*words: str, document: str = "", check: bool = True) -> str:
    done = subprocess.run(
        ("virsh", "-q", "-c", URI, *words),
        input=document,
        capture_output=True,
        text=True,
        check=check,
    )
    return done.stdout


def discard(name: str) -> None:
    virsh("destroy", name, check=False)
    virsh("undefine", "--nvram", name, check=False)


def ssh_key(path: Path) -> tuple[str, str]:
    """Private and public text of a new key."""
    path.unlink(missing_ok=True)
    subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path), check=True)
    return path.read_text(), path.with_suffix(".pub").read_text().strip()


def address(number: int) -> str:
    return f"{SUBNET}.{10 + number}"


def mac(number: int) -> str:
    return f"52:54:00:be:2c:{number:02x}"


def seed(where: Place, image: GoldenImage, number: int) -> Path:
    """The seed of one guest; another machine every time."""
    private, public = ssh_key(where.directory / f"host-{number}")
    identity = Identity(
        instance=os.urandom(8).hex(),
        hostname=f"bench-{number}",
        user=image.user,
        authorized_key=where.key.with_suffix(".pub").read_text().strip(),
        host_key=private,
        host_key_public=public,
        nics=(
            SeedCard(
                "mgmt0",
                mac(number),
                IPv4Interface(f"{address(number)}/24"),
                IPv4Address(f"{SUBNET}.1"),
            ),
        ),
    )
    path = where.directory / f"hlbench-{number}.seed"
    path.write_bytes(seed_image(seed_files(identity)))
    return path


def await_logins(where: Place, user: str, numbers: Sequence[int], deadline: Deadline) -> None:
    """Wait until each guest lets its owner in."""
    for number in numbers:
        host = address(number)
        deadline.wait(f"waiting for {host}", lambda host=host: _greets(host), every=0.1)
        deadline.wait(f"logging in at {host}", lambda host=host: _enters(where, user, host))


def _greets(host: str) -> bool:
    try:
        with socket.create_connection((host, SSH_PORT), timeout=1) as link:
            return link.recv(4) == b"SSH-"
    except OSError:
        return False


def _enters(where: Place, user: str, host: str) -> bool:
    options = ("BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null")
    words = [word for option in options for word in ("-o", option)]
    command = ("ssh", "-F", "none", "-q", "-i", where.key, *words, f"{user}@{host}", "true")
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 0


class VirtInstall:
    """``virt-install --import``: one guest."""

    def __init__(self, where: Place, image: GoldenImage) -> None:
        self.where, self.image = where, image
        self.there = shutil.which("virt-install") is not None

    def timed(self, deadline: Deadline) -> float:
        where, name = self.where, "hlbench-v0"
        disk = where.directory / f"{name}.qcow2"
        files = seed(where, self.image, 0)
        try:
            started = time.perf_counter()
            golden = str(where.directory / "golden.qcow2")
            clone = ("qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", golden)
            subprocess.run((*clone, str(disk), f"{DISK_GIB}G"), check=True)
            subprocess.run(self._command(name, disk, files), check=True, capture_output=True)
            await_logins(where, self.image.user, [0], deadline)
            return time.perf_counter() - started
        finally:
            discard(name)
            disk.unlink(missing_ok=True)

    def _command(self, name: str, disk: Path, files: Path) -> list[str]:
        image = self.image
        kernel, initrd = self.where.directory / "kernel", self.where.directory / "initrd"
        boot = f'kernel={kernel},initrd={initrd},kernel_args="{image.arguments}"'
        return [
            *("virt-install", "--connect", URI, "--name", name, "--import", "--noautoconsole"),
            *("--virt-type", self.where.kind, "--osinfo", "detect=on,require=off"),
            *("--memory", str(MEMORY_MIB), "--vcpus", "1"),
            *(("--boot", boot) if image.firmware == "kernel" else ()),
            *("--disk", f"path={disk},format=qcow2,bus=virtio"),
            *("--disk", f"path={files},format=raw,bus=virtio,readonly=on"),
            *("--network", f"network={NETWORK},mac={mac(0)},model=virtio"),
        ]


class Kcli:
    """``kcli create plan``: three guests."""

    NUMBERS = (1, 2, 3)

    def __init__(self, where: Place, image: GoldenImage) -> None:
        self.where, self.image = where, image
        self.program = os.environ.get("KCLI") or shutil.which("kcli") or ""
        self.there = bool(self.program)
        self.home = where.directory / "home"

    def timed(self, deadline: Deadline) -> float:
        (self.home / ".kcli").mkdir(parents=True, exist_ok=True)
        (self.home / ".kcli" / "config.yml").write_text(
            f"default: {{client: local, pool: {POOL}}}\nlocal: {{type: kvm, host: 127.0.0.1}}\n"
        )
        plan = self.where.directory / "plan.yml"
        plan.write_text(
            json.dumps({f"hlbench-k{number}": self._machine(number) for number in self.NUMBERS})
        )
        virsh("pool-refresh", POOL)
        try:
            started = time.perf_counter()
            self._run("create", "plan", "-f", str(plan), PLAN)
            await_logins(self.where, self.image.user, self.NUMBERS, deadline)
            return time.perf_counter() - started
        finally:
            self._run("delete", "plan", "--yes", PLAN)

    def _machine(self, number: int) -> dict[str, object]:
        image = self.image
        # kcli splits at blanks; a tab in an attribute of XML is read as a blank.
        append = image.arguments.replace(" ", "\t")
        here = self.where.directory
        kernel = f"-kernel {here}/kernel -initrd {here}/initrd -append {append}"
        return {
            "image": "golden.qcow2",
            "memory": MEMORY_MIB,
            "numcpus": 1,
            "pool": POOL,
            "virttype": self.where.kind,
            "cpumodel": "host-passthrough" if self.where.accelerated else "qemu64",
            "nets": [{"name": NETWORK, "mac": mac(number)}],
            "disks": [DISK_GIB, {"name": seed(self.where, image, number).name, "thin": False}],
            "cloudinit": False,
            **({"qemuextra": kernel} if image.firmware == "kernel" else {}),
        }

    def _run(self, *words: str) -> None:
        environment = {**os.environ, "HOME": str(self.home)}
        done = subprocess.run(
            (self.program, *words), env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"kcli {' '.join(words)}: {done.stdout}{done.stderr}")
