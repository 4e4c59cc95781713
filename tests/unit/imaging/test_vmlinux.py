"""Kernels of a few bytes, packed as the kernel's build packs them."""

from __future__ import annotations

import gzip
import lzma
import random
import struct
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.imaging import vmlinux
from lab.imaging.vmlinux import CompressionError, unpacked

NOTE = struct.pack("<III", 4, 8, 18) + b"Xen\0" + bytes(8)
KERNEL = b"\x7fELF" + random.Random(7).randbytes(5000) + bytes(3000) + NOTE


def image(packed: bytes, size: int = len(KERNEL), version: int = 0x20F) -> bytes:
    payload = packed + struct.pack("<I", size)
    head = bytearray(4 * 512 + 100)
    head[0x1F1] = 3
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", head, 0x206, version)
    struct.pack_into("<II", head, 0x248, 100, len(payload))
    return bytes(head) + payload + b"signature"


def lz4_block(content: bytes) -> bytes:
    """Literals alone."""
    length = len(content)
    if length < 15:
        return bytes([length << 4]) + content
    more = length - 15
    return b"\xf0" + b"\xff" * (more // 255) + bytes([more % 255]) + content


def lz4(*blocks: bytes) -> bytes:
    return b"\x02\x21\x4c\x18" + b"".join(struct.pack("<I", len(one)) + one for one in blocks)


def xz(content: bytes) -> bytes:
    filters = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 1}]
    return lzma.compress(content, check=lzma.CHECK_CRC32, filters=filters)


@pytest.mark.parametrize(
    "packed",
    [
        xz(KERNEL),
        gzip.compress(KERNEL),
        lz4(lz4_block(KERNEL)),
        lz4(lz4_block(KERNEL[:4000]), lz4_block(KERNEL[4000:])),
    ],
    ids=["xz", "gzip", "lz4", "lz4 in two blocks"],
)
def test_kernel_comes_out_whole(packed):
    assert unpacked(image(packed)) == KERNEL


def test_kernel_packed_by_zstd_comes_out_whole():
    try:
        packed = subprocess.run(["zstd"], input=KERNEL, capture_output=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("zstd is not installed")
    assert unpacked(image(packed)) == KERNEL


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (bytes([0x30]) + b"abc", b"abc"),
        (bytes([0x32]) + b"abc" + struct.pack("<H", 3) + bytes([0x10]) + b"!", b"abcabcabc!"),
        (bytes([0x1F]) + b"a" + struct.pack("<H", 1) + bytes([0, 0x10]) + b"b", b"a" * 20 + b"b"),
        (
            bytes([0x1F]) + b"a" + struct.pack("<H", 1) + bytes([255, 1, 0x10]) + b"b",
            b"a" * 276 + b"b",
        ),
    ],
    ids=["literals", "copy of what is still written", "long copy", "longer copy"],
)
def test_lz4_block(block, content):
    assert vmlinux._lz4_block(block) == content


@given(st.binary(max_size=2000))
def test_lz4_literals_of_any_length(content):
    assert vmlinux._lz4_block(lz4_block(content)) == content


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (b"MZ" * 1000, "no bzImage"),
        (image(xz(KERNEL), version=0x207), "boot protocol is 0x0207"),
        (image(b"BZh9" + bytes(100)), "something that begins 425a6839"),
        (image(b"\x28\xb5\x2f\xfd" + bytes(100)), "zstd"),
        (image(xz(KERNEL), size=17), "no ELF kernel of the size"),
        (image(xz(b"MZ" + KERNEL), size=len(KERNEL) + 2), "no ELF kernel"),
        (image(xz(b"\x7fELF" + bytes(50)), size=54), "CONFIG_PVH"),
    ],
)
def test_what_cannot_be_entered_directly_is_said(broken, words):
    with pytest.raises(CompressionError, match=words):
        unpacked(broken)
