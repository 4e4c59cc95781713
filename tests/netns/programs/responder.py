"""A tiny responder of the tests' own: says its name over TCP and echoes over UDP."""

from __future__ import annotations

import json
import os
import selectors
import socket
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from lab.providers.netns.namespaces import enter

IP_PKTINFO = 8
selector = selectors.DefaultSelector()
for entry in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
    enter(entry["namespace"])
    for port in entry["tcp"]:
        server = socket.create_server(("0.0.0.0", port))
        selector.register(server, selectors.EVENT_READ, entry["name"])
    for port in entry["udp"]:
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        datagrams.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        datagrams.bind(("0.0.0.0", port))
        selector.register(datagrams, selectors.EVENT_READ, entry["name"])
os.write(1, b"ready\n")
while True:
    for key, _ in selector.select():
        assert isinstance(key.fileobj, socket.socket)
        if key.fileobj.type == socket.SOCK_STREAM:
            connection, peer = key.fileobj.accept()
            connection.sendall(f"{key.data} {peer[0]}\n".encode())
            connection.close()
        else:
            _, control, _, peer = key.fileobj.recvmsg(65536, 64)
            # Answer from the address that was asked, not from the one nearest to the peer.
            asked = struct.pack("=I4s4s", 0, control[0][2][8:12], b"")
            answer = f"{key.data} {peer[0]}\n".encode()
            key.fileobj.sendmsg([answer], [(socket.IPPROTO_IP, IP_PKTINFO, asked)], 0, peer)
