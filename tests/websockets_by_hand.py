"""The server's side of a WebSocket (RFC 6455), for doubles of API servers and kubelets."""

import base64
import hashlib

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, 1.3."""


def frame(content: bytes, kind: int = 2) -> bytes:
    """A whole frame."""
    length = len(content)
    if length < 126:
        size = bytes([length])
    else:
        size = b"\x7e" + length.to_bytes(2, "big") if length < 65_536 else (
            b"\x7f" + length.to_bytes(8, "big")
        )  # fmt: skip
    return bytes([0x80 | kind]) + size + content


def switched(key: bytes) -> bytes:
    """The answer to a client's request to switch, which has sent ``key``."""
    accepted = base64.b64encode(hashlib.sha1(key + _GUID).digest())
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\nSec-WebSocket-Accept: "
        + accepted
        + b"\r\n\r\n"
    )
