"""What answers in every pod and machine of a lab: one process with sockets in all namespaces.

Started inside the lab's holder as ``python -I -m lab.providers.netns.responder CONFIG.json``,
or ``python -I .../responder.py CONFIG.json`` where the package is not installed. The file holds
a list of objects::

    {"namespace": "worker1-p1",        under /run/netns, or an absolute path
     "name": "worker1-p1",             said in every answer
     "tcp": [8080], "udp": [8080],     HTTP and echo
     "dns": {"name.": ["address"]},    or null; names in lower case; answered on UDP and TCP 53
     "forward": {"to": "address", "but": "domain."},   or null; who is asked for other names
     "health": {"32000": ["web", 1]}}  or null; TCP port to Service and local backends

It says ``ready`` once on its standard output when all sockets listen, lets go of it, and serves
until SIGTERM. What goes wrong is said on standard error; if a socket cannot be opened it ends
with exit code 1 and without ``ready``.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple  # dataclasses costs 10 ms at the start

if not __package__:  # run by path
    sys.path.insert(0, os.path.abspath(__file__).removesuffix("/lab/providers/netns/responder.py"))  # noqa: PTH100  pathlib is slow to import here

from lab.providers.netns import answers, forwarding, serving, syscalls

NETNS_DIRECTORY = "/run/netns"
DNS_PORT = 53
_DATAGRAM = socket.SOCK_DGRAM
_MORE_DESCRIPTORS = 2 * serving.CONNECTIONS_LIMIT
_SO_RCVBUFFORCE = 33
_DEFER_SECONDS = 5
"""How long the kernel keeps a silent client to itself; its own timers round it up."""


class AnsweringNamespace(NamedTuple):
    """One namespace, and what answers there."""

    namespace: str
    name: str
    tcp: tuple[int, ...]
    udp: tuple[int, ...]
    dns: Mapping[str, Sequence[str]] | None
    health: Mapping[str, tuple[str, int]]
    forward: Mapping[str, str] | None = None

    def sockets(self) -> int:
        """How many sockets it takes."""
        own = len(self.tcp) + len(self.udp) + len(self.health) + (self.forward is not None)
        return own + 2 * (self.dns is not None)


def read_config(text: str) -> tuple[AnsweringNamespace, ...]:
    """Read the configuration; ValueError or KeyError if it is not as the module says."""
    entries: list[dict[str, Any]] = json.loads(text)
    return tuple(
        AnsweringNamespace(
            one["namespace"],
            one["name"],
            tuple(one["tcp"]),
            tuple(one["udp"]),
            one.get("dns"),
            one.get("health") or {},
            one.get("forward"),
        )
        for one in entries
    )


def allow_descriptors(wanted: int) -> None:
    """Raise the limit of open files to ``wanted``, or as near to it as one may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    except (ValueError, OSError):  # only root may go beyond the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def listen(server: serving.SocketServer, endpoints: Sequence[AnsweringNamespace]) -> None:
    """Open every socket in its namespace; the calling thread ends where it began.

    Raises
    ------
    OSError
        Naming the namespace, and the socket if it is the socket that failed.

    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for endpoint in endpoints:
            _enter(os.path.join(NETNS_DIRECTORY, endpoint.namespace))  # noqa: PTH118  as above
            _open(server, endpoint)
    finally:
        syscalls.setns(home, syscalls.CLONE_NEWNET)
        os.close(home)


def _enter(path: str) -> None:
    there = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        syscalls.setns(there, syscalls.CLONE_NEWNET)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(there)


def _open(server: serving.SocketServer, endpoint: AnsweringNamespace) -> None:
    name = endpoint.name.encode()
    for port in endpoint.tcp:
        server.add_stream(_stream(endpoint, port), answers.http(name))
    for port in endpoint.udp:
        server.add_datagrams(_datagrams(endpoint, port), answers.echo(name))
    for number, (service, local) in endpoint.health.items():
        server.add_stream(_stream(endpoint, int(number)), answers.health_check(service, local))
    if endpoint.dns is not None:
        elsewhere = _elsewhere(server, endpoint)
        answer = answers.dns_stream(endpoint.dns, elsewhere)
        server.add_stream(_stream(endpoint, DNS_PORT), answer)
        datagram = answers.dns_datagram(endpoint.dns, elsewhere)
        server.add_datagrams(_datagrams(endpoint, DNS_PORT), datagram)


def _elsewhere(
    server: serving.SocketServer, endpoint: AnsweringNamespace
) -> answers.Elsewhere | None:
    if endpoint.forward is None:
        return None
    sock = socket.socket(socket.AF_INET, _DATAGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    sock.connect((endpoint.forward["to"], DNS_PORT))
    forwarder = forwarding.Forwarder(sock)
    server.add_listener(sock, forwarder.hear)
    return answers.Elsewhere(forwarder.ask, endpoint.forward["but"])


def _stream(endpoint: AnsweringNamespace, port: int) -> socket.socket:
    sock = _bound(endpoint, socket.SOCK_STREAM, port)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _DEFER_SECONDS)
    sock.listen(serving.BACKLOG)
    return sock


def _datagrams(endpoint: AnsweringNamespace, port: int) -> socket.socket:
    sock = _bound(endpoint, socket.SOCK_DGRAM, port)
    sock.setsockopt(socket.IPPROTO_IP, serving.IP_PKTINFO, 1)
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, serving.UDP_BUFFER_BYTES)
    except PermissionError:  # a plain user's holder: as much as the machine's rmem_max allows
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, serving.UDP_BUFFER_BYTES)
    return sock


def _bound(endpoint: AnsweringNamespace, kind: int, port: int) -> socket.socket:
    where = f"{'UDP' if kind == socket.SOCK_DGRAM else 'TCP'} port {port}"
    try:
        sock = socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("0.0.0.0", port))  # noqa: S104  all addresses of the pod's own namespace
    except OSError as error:
        place = f"{where} in namespace '{endpoint.namespace}'"
        raise OSError(error.errno, error.strerror, place) from None
    return sock


def main(arguments: Sequence[str]) -> int:
    """Open everything, say so, and serve."""
    with serving.SocketServer() as server:
        try:
            _prepare(server, arguments[0])
        except (OSError, ValueError, KeyError, IndexError) as error:
            print(f"responder: cannot start: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
        _say_ready()
        server.serve()
    return 0


def _prepare(server: serving.SocketServer, config: str) -> None:
    """Open every socket of the configuration file."""
    with open(config, encoding="utf-8") as file:  # noqa: PTH123  pathlib is slow to import here
        endpoints = read_config(file.read())
    allow_descriptors(sum(one.sockets() for one in endpoints) + _MORE_DESCRIPTORS)
    listen(server, endpoints)


def _say_ready() -> None:
    os.write(1, b"ready\n")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
