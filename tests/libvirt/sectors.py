"""Guests of one boot sector, which write to the serial port or fill their disk."""

from __future__ import annotations

import subprocess
from pathlib import Path

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


def disk(sector: bytes, file: Path) -> Path:
    """A qcow2 file of 1 GiB that begins with the sector."""
    raw = file.with_suffix(".raw")
    raw.write_bytes(sector)
    with raw.open("r+b") as open_file:
        open_file.truncate(1 << 30)
    command = ("qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", raw, file)
    subprocess.run(command, check=True)
    raw.unlink()
    return file
