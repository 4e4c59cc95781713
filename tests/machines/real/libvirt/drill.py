"""Drills with a small lab that boots no guest: kill or stop it, and check what it leaves."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import libvirt
from processes import run_program
from real_lab import RealLab, objects

from lab.inventory.inventory import STORAGE
from lab.machines.libvirt import connection, documents, ownership, storage
from lab.machines.libvirt.ownership import Owner
from lab.providers.provider import LabHandle
from lab.state.store import Store

PROGRAM = Path(__file__).with_name("programs") / "bootless.py"
SCENARIO = Path(__file__).with_name("drill.yaml")
SAVES = Path("/var/lib/libvirt/qemu/save")
LABS = Path(STORAGE) / "hybridlab" / "labs"
KILLED = -signal.SIGKILL
LOCAL = '[hypervisors.local]\nuri = "qemu:///system"\nacceleration = "tcg"\nparallel_boots = 1\n'
LOCAL += 'vcpus = 999\nmemory = "999GiB"\ndisk = "9999GiB"\n'  # other tests run beside
MOST = 48
"""More calls than an ``up`` of the drill makes, with the image copied."""
ROUNDS = int(os.environ.get("HYBRIDLAB_KILLS", "6"))
"""How many calls are tried by each test; HYBRIDLAB_KILLS=48 tries all of them."""


def chosen(most: int = MOST) -> list[int]:
    """Calls at which to kill: spread over all, others each time; told when a test fails."""
    if most <= ROUNDS:
        return list(range(1, most + 1))
    width = most / ROUNDS
    return [1 + int(width * (at + random.random())) for at in range(ROUNDS)]


@dataclass(frozen=True)
class Drill(RealLab):
    """The ``lab`` command of :data:`PROGRAM`, and one lab's name."""

    name: str = "drill"
    folder: Path = field(default_factory=Path)
    tokens: set[str] = field(default_factory=set)
    """All tokens that the lab has had."""

    @property
    def image(self) -> Path:
        """The disk of the golden image; it does not boot, unless a test writes another."""
        return self.folder / "image.qcow2"

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "BOOTLESS_IMAGE": str(self.image)}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, str(PROGRAM), *words]

    def up_words(self, scenario: Path = SCENARIO) -> tuple[str, ...]:
        words = ("up", str(scenario), "--provider", "libvirt", "--pods", "namespaces")
        return (*words, "--name", self.name)

    def killed(self, call: int, *words: str) -> subprocess.CompletedProcess[str]:
        """Kill the command with SIGKILL at this call on a hypervisor; it may end before."""
        return run_program(
            self.command(*words),
            env={**self.environment(), "BOOTLESS_KILL": str(call)},
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def started(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Start the command; the caller must end it."""
        return subprocess.Popen(
            self.command(*words),
            env={**self.environment(), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def calls(self, *words: str) -> list[str]:
        """Run a command; return the calls that changed something."""
        file = self.folder / "calls"
        file.unlink(missing_ok=True)
        with_calls = replace(self, extra={**self.extra, "BOOTLESS_CALLS": str(file)})
        with_calls.run(*words)
        return file.read_text(encoding="utf-8").split() if file.exists() else []

    def forget(self) -> None:
        """Delete the state directory, including the journal."""
        self.tokens.update(self._token())
        shutil.rmtree(self.state)

    def forget_image(self, connected: Any) -> None:
        """Remove its golden image from a hypervisor, so that it is copied again."""
        with suppress(libvirt.libvirtError):  # no image was ever copied there
            pool = connected.storagePoolLookupByName(ownership.IMAGES_POOL)
            storage.refresh(pool)
            digest = sha256(self.image.read_bytes()).hexdigest()
            for volume in pool.listAllVolumes():
                if f"-{digest[:16]}." in volume.name():
                    volume.delete()

    def _token(self) -> Iterator[str]:
        if (self.state / "labs").is_dir():
            with Store(self.state) as store:
                row = store.lab(self.name)
            if row is not None:
                yield row.token

    def left(self, connected: Any) -> set[str]:
        """Everything of this lab on a hypervisor, in the kernel and on disks."""
        for token in self._token():
            self.tokens.add(token)
        return {
            *objects(connected, f"{self.name}-"),
            *(
                f"device {path.name}"
                for token in self.tokens
                for path in Path("/sys/class/net").glob(f"h[lx]{token[:8]}-*")
            ),
            *(f"disks of {token}" for token in self.tokens if (LABS / token).exists()),
            *(f"saved memory {path.name}" for path in SAVES.glob(f"{self.name}-*")),
            *(
                f"files {path}"
                for path in _paths(self.state / "labs" / self.name)
                if not _may_stay(path)
            ),
        }


def _paths(directory: Path) -> Iterator[str]:
    yield from (str(path) for path in directory.rglob("*") if path.is_file())


def _may_stay(path: str) -> bool:
    return Path(path).name == "lock" or "/evidence/" in path


def owner_of(lab: LabHandle, machine: str = "") -> Owner:
    """The mark of this controller on the lab's objects, of a machine or of all."""
    return Owner(
        lab=lab.name,
        token=lab.token,
        directory=lab.directory,
        controller=connection.controller_id(),
        owner="tests",
        created=time.time(),
        machine=machine,
        made_from="x" if machine else "",
    )


def define(pool: libvirt.virStoragePool, owner: Owner, disk: str, medium: str) -> Any:
    """Define a domain of the lab that has this pool; it boots no system."""
    lab = LabHandle(owner.lab, owner.directory, owner.token)
    machine = documents.VirtualMachine(
        kind="linux",
        name=ownership.domain_name(lab, owner.machine),
        uuid=ownership.object_uuid(lab, "domain", owner.machine),
        title="of a test",
        accelerated=False,
        vcpus=1,
        memory_mib=32,
        firmware="bios",
        disk=disk,
        discs=(documents.Disc(medium),),
        console_log=f"{storage.directory_of(pool)}/{owner.machine}.console.log",
    )
    return pool.connect().defineXML(documents.domain(machine, ownership.owner_xml(owner)))


def lab_pool(connected: Any, lab: LabHandle, path: str) -> libvirt.virStoragePool:
    """The lab's pool, at this path."""
    uuid = ownership.object_uuid(lab, "pool", "")
    return storage.ensure_pool(connected, ownership.name_prefix(lab), uuid, path)


@contextmanager
def drill(folder: Path, inventory: str = LOCAL, uri: str = "qemu:///system") -> Iterator[Drill]:
    """A lab that can be created; afterwards its image is also removed from the hypervisor."""
    run_program(["qemu-img", "create", "-q", "-f", "qcow2", folder / "image.qcow2", "1G"])
    (folder / "lab.toml").write_text(inventory, encoding="utf-8")
    name = f"drill{os.urandom(3).hex()}"
    made = Drill(folder / "state", folder / "lab.toml", name=name, folder=folder)
    # Each drill has its own image, so that drills can run at the same time.
    with made.image.open("ab") as image:
        image.write(os.urandom(16))
    yield made
    connected = libvirt.open(uri)
    made.forget_image(connected)
    connected.close()
