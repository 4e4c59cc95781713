"""A CD that a BIOS boots: one sector of program, which writes to the first serial port."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pycdlib

_ORIGIN = 0x7C00
_HALT = b"\xfa\xf4\xeb\xfd"  # cli; hlt; jump back to hlt
_RESET = b"\xb0\xfe\xe6\x64\xeb\xfe"  # the keyboard controller pulls the processor's reset line
_SAY = bytearray(
    b"\x31\xc0\x8e\xd8"  # ds = 0
    b"\xbe\x00\x00"  # si = text
    b"\xba\xf8\x03"  # dx = port
    b"\xac\x84\xc0\x74\x03\xee\xeb\xf8"  # al = [si++]; until it is 0: out dx, al
)
THEN = {"halt": _HALT, "reset": _RESET}


def program(text: str, then: str = "halt") -> bytes:
    """Write the text, and then halt, or reset the machine."""
    code = bytearray(_SAY) + THEN[then]
    code[5:7] = (_ORIGIN + len(code)).to_bytes(2, "little")
    return (bytes(code) + text.encode("ascii") + b"\0").ljust(2048, b"\0")


def disc(path: Path, text: str, then: str = "halt") -> Path:
    """Write the CD to this path."""
    content = program(text, then)
    iso = pycdlib.PyCdlib()
    iso.new(vol_ident="BOOT_DISC")
    iso.add_fp(io.BytesIO(content), len(content), "/BOOT.;1")
    iso.add_eltorito("/BOOT.;1", boot_load_size=4)
    iso.write(str(path))
    iso.close()
    return path


def lines(*said: str) -> str:
    """Lines with the line ends of a Windows guest."""
    return "".join(f"{line}\r\n" for line in said)


def disk(path: Path, text: str, then: str = "halt") -> Path:
    """A disk of 1 GiB that a BIOS boots, like that of a golden image."""
    raw = path.with_suffix(".raw")
    sector = program(text, then).rstrip(b"\0") + b"\0"
    assert len(sector) <= 510, "the text is too long for one sector"
    raw.write_bytes(sector.ljust(510, b"\0") + b"\x55\xaa")
    with raw.open("r+b") as file:
        file.truncate(1 << 30)
    command = ("qemu-img", "convert", "-q", "-f", "raw", "-O", "qcow2", raw, path)
    subprocess.run(command, check=True)
    raw.unlink()
    return path
