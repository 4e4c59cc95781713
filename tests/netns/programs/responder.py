"""A tiny responder of the tests' own: says its name over TCP and echoes over UDP."""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
from pathlib import Path

from lab.providers.netns.namespaces import enter

selector = selectors.DefaultSelector()
for entry in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
    enter(entry["namespace"])
    for port in entry["tcp"]:
        server = socket.create_server(("0.0.0.0", port))
        selector.register(server, selectors.EVENT_READ, entry["name"])
    for port in entry["udp"]:
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
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
            _, peer = key.fileobj.recvfrom(65536)
            key.fileobj.sendto(f"{key.data} {peer[0]}\n".encode(), peer)
