"""One guest of a golden image on the machine's own libvirtd, and a shell on it by plain ssh."""

import fcntl
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Any

from processes import run_program

from lab._deadline import Deadline
from lab.machines.images.golden import GoldenImage
from lab.machines.images.seed import Identity, SeedCard, seed_files, seed_image
from lab.machines.libvirt import documents
from lab.machines.libvirt.ownership import Owner, owner_xml

SECONDS = 300.0
"""Seconds for an emulated boot on a busy machine; on an idle one it takes eight."""


@dataclass(frozen=True)
class Network:
    name: str
    subnet: str

    def address(self, last: int) -> IPv4Address:
        return IPv4Address(f"{self.subnet}.{last}")


@contextmanager
def nat(connected: Any, name: str, subnet: str = "10.219.77") -> Iterator[Network]:
    """A network for one run at a time; it stays in libvirt if the run is killed."""
    with Path(tempfile.gettempdir(), f"hybridlab-test-{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for network in connected.listAllNetworks():
            if network.name() == name:
                network.destroy()
        network = connected.networkCreateXML(
            f"<network><name>{name}</name><forward mode='nat'/><bridge name='{name[:14]}'/>"
            f"<mtu size='1400'/><ip address='{subnet}.1' prefix='24'/></network>"
        )
        try:
            yield Network(name, subnet)
        finally:
            network.destroy()


@dataclass(frozen=True)
class Size:
    """Resources of a guest; ``devices`` is XML of additional devices."""

    memory_mib: int = 768
    vcpus: int = 1
    cache_mib: int = 128
    """Size of QEMU's translation cache; large programs need more."""
    devices: str = ""


@dataclass
class Guest:
    domain: Any
    address: str
    key: Path
    console: Path
    started: float
    user: str = "root"
    answered: float = field(default=0.0)

    def try_ssh(self, command: str) -> subprocess.CompletedProcess[str]:
        set_to = {
            "BatchMode": "yes",
            "ConnectTimeout": "5",
            "LogLevel": "ERROR",
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": self.key.with_name("known_hosts"),
        }
        options = [f"-o{name}={value}" for name, value in set_to.items()]
        words = ["ssh", "-F", "none", "-i", self.key, *options, f"{self.user}@{self.address}"]
        return run_program([*words, command], check=False)

    def ssh(self, command: str) -> str:
        done = self.try_ssh(command)
        assert done.returncode == 0, f"{command}: {done.stderr or done.stdout}"
        return done.stdout

    def wait(self) -> None:
        tail = "no console"
        try:
            Deadline(SECONDS).wait(
                "waiting for the guest's SSH",
                lambda: self.try_ssh("true").returncode == 0,
                every=0.2,
            )
        except Exception as error:
            tail = self.console.read_text(errors="replace")[-2000:]
            raise AssertionError(f"{error}\n{tail}") from error
        self.answered = time.monotonic() - self.started

    def expect(self, words: str) -> None:
        """Wait until the console has this text."""
        Deadline(60.0).wait(
            f"waiting for {words!r} on the console",
            lambda: self.console.read_text(errors="replace")[-400:],
            until=lambda said: words in said,
            every=0.2,
        )


def key_pair(path: Path) -> tuple[str, str]:
    """Private and public text of a new key."""
    run_program(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)])
    return path.read_text(), path.with_suffix(".pub").read_text().strip()


def identity(network: Network, folder: Path, instance: str, number: int = 10) -> Identity:
    """The seed of a guest; its key and its pinned host key are in ``folder``."""
    if not (folder / "key").exists():
        key_pair(folder / "key")
    private, public = key_pair(folder / f"host-{instance}")
    address = network.address(number)
    known = folder / "known_hosts"
    known.write_text(f"{address} {' '.join(public.split()[:2])}\n")
    return Identity(
        instance=instance,
        hostname=f"node-{instance}",
        user="root",
        authorized_key=(folder / "key.pub").read_text().strip(),
        host_key=private,
        host_key_public=public,
        nics=(
            SeedCard("mgmt0", mac(number, 0), IPv4Interface(f"{address}/24"), mtu=1400),
            SeedCard("eth0", mac(number, 1), mtu=1400),
        ),
    )


def mac(number: int, card: int) -> str:
    return f"52:54:00:77:{card:02x}:{number:02x}"


def clone(image: Path, to: Path, gib: int) -> None:
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", str(image)]
    run_program([*command, str(to), f"{gib}G"])


@contextmanager
def guest(  # noqa: PLR0913, PLR0917  each differs between tests
    connected: Any,
    image: GoldenImage,
    who: Identity,
    network: Network,
    folder: Path,
    first: int = 0,
    size: Size = Size(),
) -> Iterator[Guest]:
    """A running guest; its disk stays in ``folder`` and is used again for the same folder.

    ``first``: the index of the card that has an address.
    """
    disk, seed = folder / "disk.qcow2", folder / "seed.iso"
    if not disk.exists():
        clone(image.disk, disk, image.virtual_gib)
    seed.write_bytes(seed_image(seed_files(who)))
    console = folder / f"console-{os.urandom(3).hex()}.log"
    spec = documents.VirtualMachine(
        kind="linux",
        name=f"image-test-{who.instance}",
        uuid="",
        title="",
        accelerated=False,
        vcpus=size.vcpus,
        memory_mib=size.memory_mib,
        firmware=image.firmware,
        kernel=image.kernel and str(image.kernel),
        initrd=image.initrd and str(image.initrd),
        arguments=image.arguments,
        disk=str(disk),
        discs=(documents.Disc(str(seed)),),
        console_log=str(console),
        cards=tuple(documents.Card(card.mac, network.name, card.mtu) for card in who.nics),
    )
    owner = Owner("image-test", "0", folder, "test", "test", 0.0)
    text = documents.domain(spec, owner_xml(owner))
    text = text.replace(">128</tb-cache>", f">{size.cache_mib}</tb-cache>")
    text = text.replace("<devices>", f"<devices>{size.devices}")
    started = time.monotonic()
    domain = connected.createXML(text, 2)  # VIR_DOMAIN_START_AUTODESTROY
    try:
        yield Guest(
            domain, str(who.nics[first].address.ip), folder / "key", console, started, who.user
        )
    finally:
        if domain.isActive():
            domain.destroy()


def run_to_its_end(connected: Any, disk: Path, folder: Path) -> str:
    """Boot a disk by its boot loader until the machine shuts down; return its console output."""
    own, console = folder / "own.qcow2", folder / "own.log"
    clone(disk, own, 1)
    domain = connected.createXML(
        f"<domain type='qemu'><name>image-test-own-disk</name><memory unit='MiB'>512</memory>"
        f"<vcpu>1</vcpu><os><type arch='x86_64' machine='q35'>hvm</type><boot dev='hd'/></os>"
        f"<features><acpi/></features><cpu mode='maximum'/><on_reboot>destroy</on_reboot>"
        f"<devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/>"
        f"<source file='{own}'/><target dev='vda' bus='virtio'/></disk><serial type='pty'>"
        f"<log file='{console}'/></serial><memballoon model='none'/></devices></domain>",
        2,  # VIR_DOMAIN_START_AUTODESTROY
    )
    names = lambda: [listalldomain.name() for listalldomain in connected.listAllDomains()]  # noqa: E731
    try:
        Deadline(120.0).wait(
            "waiting for the installed system to end",
            lambda: "image-test-own-disk" not in names(),
            every=0.3,
        )
    except Exception as error:
        domain.destroy()
        raise AssertionError(f"{error}\n{console.read_text(errors='replace')[-2000:]}") from error
    return console.read_text(errors="replace")
