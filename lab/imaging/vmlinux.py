"""The kernel inside a bzImage: QEMU starts it as it is (PVH), and nothing is unpacked at boot.

Layout of a bzImage: Documentation/arch/x86/boot.rst of the kernel, "The Real-Mode Kernel Header".
"""

from __future__ import annotations

import lzma
import struct
import zlib

_SETUP_SECTS = 0x1F1
_MAGIC = 0x202
_VERSION = 0x206
_PAYLOAD = 0x248
_SECTOR = 512
_PROTOCOL = 0x0208
"""First version of the boot protocol that says where the payload is."""
_ELF = b"\x7fELF"
_LZ4 = b"\x02\x21\x4c\x18"
_XZ = b"\xfd7zXZ\x00"
_ZSTD = b"\x28\xb5\x2f\xfd"
_PVH_NOTE = struct.pack("<III", 4, 8, 18) + b"Xen\x00"
"""Header of the ELF note XEN_ELFNOTE_PHYS32_ENTRY, which says where PVH enters."""
_PVH_NOTE_32 = struct.pack("<III", 4, 4, 18) + b"Xen\x00"
_MIN_MATCH = 4
_LONG = 15


class CompressionError(Exception):
    """The payload is packed in a way that is not known here."""


def payload(image: bytes) -> bytes:
    """The packed kernel inside a bzImage.

    Raises
    ------
    CompressionError
        When it is no bzImage of protocol 2.08 (Linux 2.6.26) or newer.

    """
    if image[_MAGIC : _MAGIC + 4] != b"HdrS":
        raise CompressionError("it is no bzImage")
    (version,) = struct.unpack_from("<H", image, _VERSION)
    if version < _PROTOCOL:
        raise CompressionError(f"its boot protocol is {version:#06x}")
    offset, length = struct.unpack_from("<II", image, _PAYLOAD)
    start = ((image[_SETUP_SECTS] or 4) + 1) * _SECTOR + offset
    return image[start : start + length]


def unpacked(image: bytes) -> bytes:
    """The ELF kernel inside a bzImage; one that PVH can enter.

    Raises
    ------
    CompressionError
        When it is packed by something else than LZ4, zstd, xz or gzip, or has no PVH entry.

    """
    packed = payload(image)
    size = struct.unpack("<I", packed[-4:])[0] if len(packed) > _MIN_MATCH else 0
    if packed.startswith(_LZ4):
        kernel = _lz4(packed[:-4])
    elif packed.startswith(_XZ):
        kernel = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(packed)
    elif packed.startswith(b"\x1f\x8b"):
        kernel = zlib.decompressobj(wbits=31).decompress(packed)
    elif packed.startswith(_ZSTD):
        kernel = _zstd(packed[:-4], size)
    else:
        raise CompressionError(f"it is packed by something that begins {packed[:4].hex()}")
    if not kernel.startswith(_ELF) or len(kernel) != size:
        raise CompressionError("what it holds is no ELF kernel of the size it says")
    if _PVH_NOTE not in kernel and _PVH_NOTE_32 not in kernel:
        raise CompressionError("it was built without CONFIG_PVH")
    return kernel


def _zstd(packed: bytes, size: int) -> bytes:
    """One frame, by the library that dpkg and systemd use; Python 3.11 has none of its own."""
    import ctypes  # noqa: PLC0415  only kernels packed so need it

    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError as error:
        raise CompressionError(f"it is packed by zstd, and {error}") from error
    library.ZSTD_decompress.restype = ctypes.c_size_t
    out = ctypes.create_string_buffer(size)
    got = library.ZSTD_decompress(out, ctypes.c_size_t(size), packed, ctypes.c_size_t(len(packed)))
    if got != size:
        raise CompressionError("its zstd frame is damaged")
    return out.raw


def _lz4(packed: bytes) -> bytes:
    """Blocks of LZ4's legacy frame, each after its length."""
    out = bytearray()
    at = len(_LZ4)
    while at + 4 <= len(packed):
        (length,) = struct.unpack_from("<I", packed, at)
        at += 4
        out += _lz4_block(packed[at : at + length])
        at += length
    return bytes(out)


def _lz4_block(block: bytes) -> bytearray:
    """One block: literals, then a copy of what was written before, and so on."""
    out = bytearray()
    at = 0
    while True:
        token = block[at]
        literals, at = _length(block, at + 1, token >> 4)
        out += block[at : at + literals]
        at += literals
        if at >= len(block):
            return out
        back = block[at] | block[at + 1] << 8
        copied, at = _length(block, at + 2, token & 15)
        copied += _MIN_MATCH
        start = len(out) - back
        if back >= copied:
            out += out[start : start + copied]
        else:
            out += (out[start:] * (copied // back + 1))[:copied]


def _length(block: bytes, at: int, length: int) -> tuple[int, int]:
    """A length of four bits, with the bytes that make it longer, and where it ends."""
    if length == _LONG:
        while True:
            more = block[at]
            at += 1
            length += more
            if more != 255:  # noqa: PLR2004  the largest byte says that another one follows
                break
    return length, at
