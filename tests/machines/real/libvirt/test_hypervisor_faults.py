"""Guests that never answer, storage that fills up, strangers' names: said, and cleared away.

No guest boots further than a boot sector.
"""

import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from processes import run_program

libvirt = pytest.importorskip("libvirt", reason="libvirt-python is not installed")

from drill import SCENARIO, Drill, define, lab_pool, owner_of  # noqa: E402

from lab._deadline import Deadline  # noqa: E402
from lab._errors import BrokenError  # noqa: E402
from lab.inventory.inventory import Hypervisor  # noqa: E402
from lab.machines.libvirt import connection, domains, networks, ownership, storage  # noqa: E402
from lab.machines.libvirt.host import Host  # noqa: E402
from lab.machines.libvirt.owned import remove_lab  # noqa: E402
from lab.providers.provider import LabHandle  # noqa: E402
from lab.topology.intent import Segment  # noqa: E402

_ORIGIN = 0x7C00
_HALT = b"\xfa\xf4\xeb\xfd"  # cli; hlt; jump back to hlt


def saying(text: str) -> bytes:
    """Write the text to the first serial port, a byte at a time, and halt."""
    program = bytearray(
        b"\x31\xc0\x8e\xd8"  # ds = 0
        b"\xbe\x00\x00"  # si = text
        b"\xba\xf8\x03"  # dx = port
        b"\xac\x84\xc0\x74\x03\xee\xeb\xf8"  # al = [si++]; until it is 0: out dx, al
    )
    program += _HALT
    program[5:7] = (_ORIGIN + len(program)).to_bytes(2, "little")
    return _sector(bytes(program) + text.encode() + b"\0")


def writing() -> bytes:
    """Write to the disk continuously, 32 KiB at a time (BIOS, int 13h, ah 43h)."""
    start = b"\x31\xc0\x8e\xd8"
    loop = bytearray(
        b"\xbe\x00\x00"  # si = packet
        b"\xb8\x00\x43\xb2\x80\xcd\x13"  # write to the first disk
        b"\x81\x06\x00\x00\x40\x00"  # 64 sectors further
        b"\x83\x16\x00\x00\x00"
        b"\xeb\xe9"
    )
    packet = _ORIGIN + len(start) + len(loop)
    loop[1:3] = packet.to_bytes(2, "little")
    loop[12:14] = (packet + 8).to_bytes(2, "little")
    loop[18:20] = (packet + 10).to_bytes(2, "little")
    words = b"\x10\x00\x40\x00\x00\x00\x00\x10" + (2048).to_bytes(8, "little")
    return _sector(start + bytes(loop) + words)


def _sector(program: bytes) -> bytes:
    return program.ljust(510, b"\0") + b"\x55\xaa"


def boot_disk(sector: bytes, file: Path) -> Path:
    """A qcow2 file of 1 GiB that begins with the sector."""
    raw = file.with_suffix(".raw")
    raw.write_bytes(sector)
    with raw.open("r+b") as open_file:
        open_file.truncate(1 << 30)
    command = ("qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", raw, file)
    run_program(command)
    raw.unlink()
    return file


def silent(lab: Drill, seconds: int) -> Drill:
    """The node never answers, and is given up after so many seconds."""
    return replace(lab, extra={"BOOTLESS_SILENT": "node", "BOOTLESS_SECONDS": str(seconds)})


def test_a_guest_that_never_answers_is_reported_with_its_phase_and_console(lab):
    boot_disk(saying("Run /init as init process\r\nhalf way\r\n"), lab.image)
    stderr = silent(lab, 6).run(*lab.up_words(), code=3).stderr
    assert "waiting for machine 'node' to answer over SSH: no answer within 6 s" in stderr
    assert "the initial RAM disk was running" in stderr
    assert "| half way" in stderr
    assert f"lab down {lab.name}" in stderr
    (archive,) = (lab.state / "labs" / lab.name / "evidence").iterdir()
    with tarfile.open(archive) as content:
        consoles = [name for name in content.getnames() if name.endswith("node/console.log")]
        member = content.extractfile(consoles[0])
        assert member is not None
        assert b"half way" in member.read()
    assert "broken" in lab.run("status", lab.name, code=3).stdout
    lab.run("down", lab.name)


@pytest.mark.parametrize(
    ("text", "phase"),
    [
        ("Kernel panic - not syncing: VFS: Unable to mount root fs", "the kernel panicked"),
        ("You are in emergency mode.", "emergency mode"),
        ("ALERT!  Gave up waiting for root file system device.", "found no root file system"),
    ],
)
def test_a_guest_that_has_given_up_is_not_waited_for(lab, text, phase):
    boot_disk(saying(f"{text}\r\n"), lab.image)
    stderr = silent(lab, 100).run(*lab.up_words(), code=3).stderr
    assert "it is running but will never answer" in stderr
    assert phase in stderr


def test_a_guest_that_shuts_down_while_it_boots_is_reported(lab, connected):
    with silent(lab, 100).started(*lab.up_words()) as command:
        domain = started_domain(connected, lab)
        domain.destroy()
        said, _ = command.communicate(timeout=60)
    assert command.returncode == 3, said
    assert "its domain is shut off" in said
    assert "node is shut off" in lab.run("status", lab.name, code=3).stdout


def started_domain(connected: Any, lab: Drill) -> Any:
    """The node's domain, once it runs."""

    def look() -> Any:
        running = (
            domain
            for domain in connected.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_RUNNING)
            if domain.name().startswith(f"{lab.name}-") and domain.name().endswith("-node")
        )
        return next(running, None)

    return Deadline(60).wait("waiting for the node's domain", look)


def with_nics(lab: Drill, *wanted: str) -> tuple[str, ...]:
    file = lab.folder / "nics.yaml"
    cards = "".join(f"\n      - network: {one}" for one in wanted)
    file.write_text(f"{SCENARIO.read_text()}    nics:{cards}\n")
    return lab.up_words(file)


def test_a_card_on_a_network_that_is_not_there_is_refused_before_anything_is_made(lab, connected):
    stderr = lab.run(*with_nics(lab, "nowhere-at-all"), code=4).stderr
    assert "looking for network 'nowhere-at-all', which machine 'node' has a card on" in stderr
    assert "hypervisor 'local' has none of that name" in stderr
    assert lab.left(connected) == set()


def test_a_card_on_a_network_that_does_not_run_is_refused_and_one_that_runs_is_plugged_in(
    lab, connected
):
    name = f"{lab.name}net"
    network = connected.networkDefineXML(f"<network><name>{name}</name></network>")
    try:
        stderr = lab.run(*with_nics(lab, name), code=4).stderr
        assert f"virsh net-start {name}" in stderr
        network.create()
        lab.run(*with_nics(lab, name, name))
        assert started_domain(connected, lab).XMLDesc().count(f"network='{name}'") == 2
        lab.run("down", lab.name)
        assert network.isActive()
    finally:
        if network.isActive():
            network.destroy()
        network.undefine()


def test_more_than_fits_is_refused_with_what_is_free(lab, connected):
    file = lab.folder / "huge.yaml"
    file.write_text(SCENARIO.read_text().replace("512MiB", "1100GiB"))
    stderr = lab.run(*lab.up_words(file), code=4).stderr
    assert "no hypervisor has room" in stderr
    assert "'local' has free:" in stderr
    assert lab.left(connected) == set()


@pytest.fixture
def host(connected, tmp_path):
    del connected
    return Host(Hypervisor(name="local", uri="qemu:///system", storage=str(tmp_path)))


@pytest.fixture
def handle(host, tmp_path):
    handle = LabHandle("faults", tmp_path / "labs" / "faults", os.urandom(8).hex())
    yield handle
    remove_lab(host, handle.token)


@pytest.mark.parametrize("running", [True, False])
def test_a_foreign_bridge_is_reported_and_left_alone(host, handle, running):
    bridge = ownership.bridge_name(handle, "cluster")
    stranger = host.connected.networkDefineXML(
        f"<network><name>faults-stranger</name><bridge name='{bridge}'/></network>"
    )
    try:
        if running:
            stranger.create()
        segment = Segment("cluster", "10.9.0.0/24", 1400)
        with pytest.raises(BrokenError, match="in use") as raised:
            networks.ensure_segment(host.connected, handle, owner_of(handle), segment)
        assert bridge in raised.value.hint
        assert networks.find(host.connected, handle, "cluster") is None
        assert stranger.isActive() == running
    finally:
        if stranger.isActive():
            stranger.destroy()
        stranger.undefine()


@pytest.fixture
def full(tmp_path, host, handle):
    """The lab's pool, on a file system of 8 MiB."""
    path = Path(storage.lab_path(str(tmp_path), handle.token))
    path.mkdir(parents=True)
    run_program(["mount", "-t", "tmpfs", "-o", "size=8m", "none", path])
    yield lab_pool(host.connected, handle, str(path))
    for domain, owner in connection.owned(host.connected.listAllDomains()):
        if owner.token == handle.token:
            domains.remove(domain)
    run_program(["umount", path])


def test_a_guest_that_fills_the_storage_is_paused_and_status_shows_why(handle, full, tmp_path):
    golden = boot_disk(writing(), tmp_path / "golden.qcow2")
    disk = storage.clone(full, "a.qcow2", str(golden), 1 << 30)
    medium = storage.write(full, "a.seed", b"\0" * 512)
    domain = define(full, owner_of(handle, "a"), disk, medium)
    domain.create()
    Deadline(60).wait(
        "waiting for the disk to be full",
        lambda: domains.state(domain),
        until=lambda s: s == "full",
    )
    run_program(["mount", "-o", "remount,size=12m", storage.directory_of(full)])
    assert domains.start(domain) == "full"
    Deadline(60).wait(
        "waiting for it to be full again",
        lambda: domains.state(domain),
        until=lambda s: s == "full",
    )
