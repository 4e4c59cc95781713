"""One ICMP echo that must not be fragmented: ``ping.py ADDRESS BYTES`` (of the IP packet).

Exit 0 with a reply, 1 without one in a second, 2 when the packet is too large to be sent.
"""

import errno
import os
import socket
import struct
import sys
import time

IP_MTU_DISCOVER, IP_PMTUDISC_PROBE = 10, 3
"""linux/in.h. PROBE: DF is set, and the cached path MTU is ignored."""
HEADERS = 28
"""Bytes of the IPv4 and ICMP echo headers."""
SECONDS = 1.0


def checksum(message: bytes) -> int:
    """The checksum of RFC 1071."""
    total = sum(struct.unpack(f"!{len(message) // 2}H", message))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def main(address: str, size: int) -> int:
    """Send the echo and wait for its reply."""
    body = bytes(size - HEADERS)
    number = os.getpid() & 0xFFFF
    blank = struct.pack("!BBHHH", 8, 0, 0, number, 1)
    sent = struct.pack("!BBHHH", 8, 0, checksum(blank + body + bytes(size % 2)), number, 1) + body
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        raw.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
        try:
            raw.sendto(sent, (address, 0))
        except OSError as why:
            if why.errno != errno.EMSGSIZE:
                raise
            return 2
        ends = time.monotonic() + SECONDS
        while (left := ends - time.monotonic()) > 0:
            raw.settimeout(left)
            try:
                reply = raw.recv(65535)[20:]
            except TimeoutError:
                break
            if reply[0] == 0 and struct.unpack("!H", reply[4:6])[0] == number:
                return 0 if len(reply) == len(sent) else 1
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
