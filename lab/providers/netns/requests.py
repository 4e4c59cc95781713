"""Operations that no netlink message does: requests to a device (ioctl).

Numbers are those of linux/if_tun.h, linux/sockios.h and linux/ethtool.h.
"""

from __future__ import annotations

import array
import fcntl
import os
import socket
import struct
from functools import singledispatch

from lab._errors import BrokenError
from lab.providers.netns.operations import ChecksumOff, Request, TapAdd

TUN = "/dev/net/tun"
_SET_INTERFACE, _SET_PERSISTENT, _SET_INDEX = 0x400454CA, 0x400454CB, 0x400454DA
_TAP, _NO_PACKET_INFORMATION = 0x0002, 0x1000
_SET_ADDRESS, _ETHERNET = 0x8924, 1
_TOOL, _SET_TX_CHECKSUM = 0x8946, 0x17

_NAME_FLAGS = struct.Struct("16sH22x")
_NAME_ADDRESS = struct.Struct("16sH6s16x")
_NAME_POINTER = struct.Struct("16sP16x")


def do(operation: Request, namespace: str) -> None:
    """Do it in the network namespace that the thread is in.

    Raises
    ------
    BrokenError
        Naming the operation that was refused, its namespace and the reason.

    """
    try:
        _do(operation)
    except OSError as error:
        file = f"{error.filename}: " if error.filename else ""
        raise BrokenError(
            f"{operation.describe()} in namespace '{namespace}'", f"{file}{error.strerror}"
        ) from error


@singledispatch
def _do(operation: Request) -> None:
    raise TypeError(f"no request for {operation!r}")


@_do.register
def _(operation: TapAdd) -> None:
    name = operation.name.encode()
    tap = os.open(TUN, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(tap, _SET_INDEX, struct.pack("i", operation.index))
        fcntl.ioctl(tap, _SET_INTERFACE, _NAME_FLAGS.pack(name, _TAP | _NO_PACKET_INFORMATION))
        fcntl.ioctl(tap, _SET_PERSISTENT, 1)
        address = bytes.fromhex(operation.mac.replace(":", ""))
        fcntl.ioctl(tap, _SET_ADDRESS, _NAME_ADDRESS.pack(name, _ETHERNET, address))
    finally:
        os.close(tap)


@_do.register
def _(operation: ChecksumOff) -> None:
    wanted = array.array("I", (_SET_TX_CHECKSUM, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        where = wanted.buffer_info()[0]
        fcntl.ioctl(channel, _TOOL, _NAME_POINTER.pack(operation.device.encode(), where))
