"""Consoles, screens and states of domains, read for people and joined; installers' consoles."""

import os
import struct
import threading
import zlib
from types import SimpleNamespace

import pytest

from lab._deadline import Deadline
from lab._errors import PreflightError
from lab.inventory.inventory import Hypervisor
from lab.machines.images import recipes
from lab.machines.images.job import Installation
from lab.machines.images.recipe import Phase
from lab.machines.libvirt import connection, domains, provider
from lab.machines.libvirt.host import Host
from lab.machines.libvirt.installer import InstallationConsole, LibvirtInstaller

GRUB = "\x1b[2J\x1b[01;01HGRUB loading...\r\nBooting `Debian'\r\n"
KERNEL = "[    0.000000] Linux version 6.1.0\r\n[    0.5] ACPI: ...\r\n"
SYSTEMD = KERNEL + "[  OK  ] Reached target network.target\r\n"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("", "its console is empty"),
        ("\x00\x00\r\n", "its console is empty"),
        ("SeaBIOS (version 1.16)\r\n", "firmware"),
        (GRUB, "boot loader"),
        (KERNEL, "kernel was booting"),
        (KERNEL + "Begin: Mounting root file system ... \r\n", "initial RAM disk was running"),
        (KERNEL + "(initramfs) ", "found no root file system"),
        (KERNEL + "Kernel panic - not syncing: VFS", "kernel panicked"),
        (SYSTEMD, "starting services"),
        (SYSTEMD + "You are in emergency mode.", "emergency mode"),
        (
            SYSTEMD + "Debian GNU/Linux 12 worker1 ttyS0\r\n\r\nworker1 login: ",
            "SSH or its network",
        ),
        ("worker1 login: \r\n[ 99.0] Kernel panic - not syncing\r\n", "panicked"),
        # an earlier boot does not count
        (KERNEL + "Kernel panic - not syncing\r\n" + SYSTEMD, "starting services"),
    ],
)
def test_how_far_a_boot_has_come_stands_on_the_console(said, words):
    assert words in domains.boot_phase(said)


def test_the_tail_has_no_escape_sequences_and_no_empty_lines():
    text = domains.console_tail("one\r\n\r\n\x1b[31mtwo\x1b[0m\r\nthree\r\n", lines=2)
    assert text == "\n    | two\n    | three"


def test_a_ppm_becomes_a_png_with_the_same_pixels():
    pixels = bytes(range(18))
    png = domains.to_png(b"P6\n# by QEMU\n3 2\n255\n" + pixels)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack("!2I", png[16:24]) == (3, 2)
    at = png.index(b"IDAT")
    (length,) = struct.unpack("!I", png[at - 4 : at])
    lines = zlib.decompress(png[at + 4 : at + 4 + length])
    assert lines == b"\0" + pixels[:9] + b"\0" + pixels[9:]
    assert domains.to_png(png) == png


@pytest.mark.parametrize("picture", [b"", b"P5\n1 1\n255\n\0", b"P6\n9 9\n255\n\0\0"])
def test_what_is_no_picture_is_refused(picture):
    with pytest.raises(ValueError, match=r"unknown picture|it ends after"):
        domains.to_png(picture)


RUNNING = {"a": "running", "b": "running"}


@pytest.mark.parametrize(
    ("states", "missing", "state", "again"),
    [
        (RUNNING, (), "running", None),
        ({"a": "saved", "b": "saved"}, (), "suspended", "machines"),
        ({"a": "saved", "b": "running"}, (), "broken", "machines"),
        ({"a": "off", "b": "off"}, (), "broken", "machines"),
        ({"a": "running", "b": "missing"}, (), "broken", "machines"),
        ({"a": "running", "b": "paused"}, (), "broken", "machines"),
        ({"a": "missing", "b": "missing"}, ("network 'x'",), "absent", None),
        ({"a": "missing", "b": "missing"}, (), "broken", "machines"),
        (RUNNING, ("network 'x'",), "broken", "networks"),
    ],
)
def test_a_lab_is_judged_by_its_domains_and_networks(states, missing, state, again):
    liveness = provider.judge_states(states, missing)
    assert (liveness.state, liveness.again_from) == (state, again)


def test_the_first_machine_that_is_not_well_is_named():
    assert provider.judge_states({"a": "running", "b": "off", "c": "paused"}, ()).detail == (
        "b is shut off, and 1 more"
    )


ENOUGH_SECONDS = 20.0
NOTHING = -2


class Stream:
    """A console that always says the same, and takes as many bytes at a time as it is told to."""

    def __init__(self, says: bytes | int, takes: int) -> None:
        self.says = says
        self.takes = takes
        self.taken = b""

    def recv(self, _count: int) -> bytes | int:
        return self.says

    def send(self, typed: bytes) -> int:
        self.taken += typed[: max(0, self.takes)]
        return self.takes


@pytest.mark.parametrize(
    ("says", "takes", "typed", "taken"),
    [
        pytest.param(b"noise", 1, (b"\x1d",), b"", id="never stops talking"),
        pytest.param(NOTHING, NOTHING, (b"help me", b"\x1d"), b"", id="takes no input"),
        pytest.param(NOTHING, 1, (b"id\r", b"\x1d"), b"id\r", id="takes a byte at a time"),
    ],
)
def test_no_machine_keeps_its_user_on_its_console(says, takes, typed, taken):
    stream = Stream(says, takes)
    keyboard, hand = os.pipe()
    screen = os.open(os.devnull, os.O_WRONLY)
    copying = threading.Thread(target=domains._copy, args=(stream, keyboard, screen), daemon=True)
    copying.start()
    for keys in typed:
        os.write(hand, keys)
        copying.join(0.5)
    copying.join(ENOUGH_SECONDS)
    for one in (keyboard, hand, screen):
        os.close(one)
    assert not copying.is_alive()
    assert stream.taken == taken


PHASES = (
    Phase(name="partitioning", sees=r"[Pp]artition"),
    Phase(name="copying", sees=r"Copying \d+ files"),
    Phase(name="finishing", sees=r"Finish"),
)


@pytest.mark.parametrize(
    ("heard", "phases"),
    [
        pytest.param(
            (
                b"Starting\r\nPartitioning /dev/vda\r\n",
                b"partition 2\r\nCopying 7 files\r\nCopying 8 files\r\n",
                b"Partition table again\r\n",
            ),
            [["partitioning"], ["copying"], []],
            id="once and in their order",
        ),
        pytest.param((b"Finishing\n",), [["finishing"]], id="one that was never seen"),
        pytest.param((b"Partition disks?",), [["partitioning"]], id="a line that is not ended"),
        pytest.param(
            (b"\x1b[1mCopy", b"ing 7\x1b[0m fil", b"es\n"), [[], [], ["copying"]], id="in pieces"
        ),
    ],
)
def test_phases_are_reported_as_the_console_shows_them(heard, phases):
    told = InstallationConsole(PHASES, "all done")
    assert [told.hear(piece) for piece in heard] == phases
    assert told.phase == next(of_piece[0] for of_piece in reversed(phases) if of_piece)


def test_the_end_is_seen_in_pieces_and_the_tail_is_text():
    told = InstallationConsole(PHASES, "all done")
    told.hear(b"caf\xc3")
    told.hear(b"\xa9 all do")
    assert not told.is_done
    told.hear(b"ne")
    assert told.is_done
    assert "café" in told.tail


def test_installer_of_another_architecture_is_refused(tmp_path, monkeypatch):
    class Elsewhere:
        def getInfo(self) -> list[str]:  # noqa: N802  libvirt's own name
            return ["aarch64"]

    monkeypatch.setattr(connection, "connect", lambda _: Elsewhere())
    monkeypatch.setattr(connection, "load", lambda: SimpleNamespace(libvirtError=OSError))
    host = Host(Hypervisor(name="far", uri="qemu:///system"))
    recipe = recipes.load("debian-12-iso")
    assert recipe.iso is not None
    installation = Installation(recipe, recipe.iso, (), tmp_path, tmp_path, "", Deadline(1))
    with pytest.raises(PreflightError, match="it is for x86_64, but hypervisor 'far' is aarch64"):
        LibvirtInstaller(host).install(installation, tmp_path / "disk", print, print)
