"""The bytes of a pcapng file, and that tshark reads them as they were meant."""

import json
import shutil
import struct

import pytest
from processes import run_program

from lab.explain.capture.files import CaptureInterface, Noted, pcapng
from lab.providers.capture import Direction, Frame

SYN = (
    "0a580af401040a580af4010108004500003c1c464000400607800af400040af40104"
    "89301f90a1b2c3d40000000000a002fd5c16560000020405820402080a00000001000000000103030a"
)
"""Ethernet, IPv4, TCP from 10.244.0.4 port 35120 to 10.244.1.4 port 8080."""
AT = 1_700_000_000_123_456_789


def frame(at: int = AT, direction: Direction = "out") -> Frame:
    data = bytes.fromhex(SYN)
    return Frame(at, direction, data, len(data))


def two() -> bytes:
    return pcapng(
        [
            CaptureInterface(
                "worker1:eth0", "one", [Noted(frame(AT + 5, "in"), "the question")], 3
            ),
            CaptureInterface(
                "master:eth0", "other", [Noted(frame()), Noted(frame(AT + 9, "other"))]
            ),
        ]
    )


def test_every_block_has_its_length_at_both_ends_and_is_whole_words():
    content, at, kinds = two(), 0, []
    while at < len(content):
        kind, length = struct.unpack_from("<II", content, at)
        assert length % 4 == 0
        assert struct.unpack_from("<I", content, at + length - 4) == (length,)
        kinds.append(kind)
        at += length
    assert at == len(content)
    assert kinds == [0x0A0D0D0A, 1, 1, 6, 6, 6, 5, 5]


def test_packets_of_several_interfaces_are_in_the_order_of_time():
    content, at, found = two(), 0, []
    while at < len(content):
        kind, length = struct.unpack_from("<II", content, at)
        if kind == 6:
            number, high, low = struct.unpack_from("<III", content, at + 8)
            found.append((number, (high << 32 | low) - AT))
        at += length
    assert found == [(1, 0), (0, 5), (1, 9)]


@pytest.fixture(scope="module")
def tshark():
    program = shutil.which("tshark")
    assert program, "there is no tshark: 'make develop' installs it, as tools/setup has it"
    return program


def test_tshark_reads_times_interfaces_directions_and_comments(tshark, tmp_path):
    path = tmp_path / "two.pcapng"
    path.write_bytes(two())
    wanted = ("frame.time_epoch", "frame.interface_name", "frame.packet_flags_direction")
    wanted += ("frame.comment", "tcp.dstport", "ip.src")
    done = run_program(
        [tshark, "-n", "-r", str(path), "-T", "json", *(w for one in wanted for w in ("-e", one))]
    )
    found = [
        {key: values[0] for key, values in one["_source"]["layers"].items()}
        for one in json.loads(done.stdout)
    ]
    assert [one["frame.interface_name"] for one in found] == [
        "master:eth0",
        "worker1:eth0",
        "master:eth0",
    ]
    assert found[0]["frame.time_epoch"].endswith("123456789") or "123456789" in str(found[0])
    assert "frame.comment" not in found[0]
    assert found[1]["frame.comment"] == "the question"
    assert [int(one["frame.packet_flags_direction"], 0) for one in found] == [2, 1, 1]
    assert {(one["tcp.dstport"], one["ip.src"]) for one in found} == {("8080", "10.244.0.4")}


def test_an_empty_capture_is_a_file_that_tshark_reads(tshark, tmp_path):
    path = tmp_path / "empty.pcapng"
    path.write_bytes(pcapng([CaptureInterface("worker1:eth0", "nothing passed", [])]))
    done = run_program([tshark, "-n", "-r", str(path)], check=False)
    assert (done.returncode, done.stdout) == (0, "")
