"""Consoles, screens and states, read for people."""

from __future__ import annotations

import struct
import zlib

import pytest

from lab.providers.libvirt import domains, provider

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
    ],
)
def test_how_far_a_boot_has_come_stands_on_the_console(said: str, words: str) -> None:
    assert words in domains.boot_phase(said)


def test_a_panic_after_a_login_prompt_is_a_panic() -> None:
    said = "worker1 login: \r\n[ 99.0] Kernel panic - not syncing\r\n"
    assert "panicked" in domains.boot_phase(said)


def test_what_an_earlier_boot_said_does_not_count() -> None:
    said = KERNEL + "Kernel panic - not syncing\r\n" + SYSTEMD
    assert "starting services" in domains.boot_phase(said)


def test_the_tail_has_no_escape_sequences_and_no_empty_lines() -> None:
    text = domains.console_tail("one\r\n\r\n\x1b[31mtwo\x1b[0m\r\nthree\r\n", lines=2)
    assert text == "\n    | two\n    | three"


def test_a_ppm_becomes_a_png_with_the_same_pixels() -> None:
    pixels = bytes(range(18))
    png = domains.to_png(b"P6\n# by QEMU\n3 2\n255\n" + pixels)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack("!2I", png[16:24]) == (3, 2)
    at = png.index(b"IDAT")
    (length,) = struct.unpack("!I", png[at - 4 : at])
    lines = zlib.decompress(png[at + 4 : at + 4 + length])
    assert lines == b"\0" + pixels[:9] + b"\0" + pixels[9:]


def test_a_png_stays_as_it_is() -> None:
    assert domains.to_png(b"\x89PNG\r\n\x1a\nrest") == b"\x89PNG\r\n\x1a\nrest"


@pytest.mark.parametrize("picture", [b"", b"P5\n1 1\n255\n\0", b"P6\n9 9\n255\n\0\0"])
def test_what_is_no_picture_is_refused(picture: bytes) -> None:
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
def test_a_lab_is_judged_by_its_domains_and_networks(
    states: dict[str, str], missing: tuple[str, ...], state: str, again: str | None
) -> None:
    found = provider.judge_states(states, missing)
    assert (found.state, found.again_from) == (state, again)


def test_the_first_machine_that_is_not_well_is_named() -> None:
    assert provider.judge_states({"a": "running", "b": "off", "c": "paused"}, ()).detail == (
        "b is shut off, and 1 more"
    )
