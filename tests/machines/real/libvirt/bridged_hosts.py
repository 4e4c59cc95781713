"""Hosts of namespaces, each with a bridge and a guest on it, joined by a network: no libvirt."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from processes import run_program

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.shells.shell import Completed

PING = Path(__file__).with_name("programs") / "ping.py"
BRIDGE = "hl3fa9c2d1-clus"
"""Bridge of the network 'cluster' of the lab in these tests."""
START_SECONDS = 10.0


@dataclass(frozen=True)
class Namespace:
    """A network namespace, held by a sleeping process."""

    pid: int

    def entry(self) -> tuple[str, ...]:
        return ("nsenter", f"--target={self.pid}", "--net", "--")

    def do(self, *commands: str) -> str:
        text = ""
        for command in commands:
            done = run_program((*self.entry(), *command.split()), check=False)
            assert done.returncode == 0, f"{command}: {done.stderr}"
            text += done.stdout
        return text

    def ping(self, address: str, size: int) -> int:
        """0 with a reply, 1 without one, 2 if the packet is too large to be sent."""
        command = (*self.entry(), sys.executable, str(PING), address, str(size))
        return run_program(command, check=False).returncode


class NamespaceShell:
    """A shell on a namespace host, which records its commands."""

    def __init__(self, namespace: Namespace, *before: str) -> None:
        self._entry = (*namespace.entry(), *before)
        self.asked: list[Sequence[str]] = []

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        self.asked.append(command)
        try:
            done = run_program(
                (*self._entry, *command),
                input=stdin,
                check=False,
                timeout=deadline.left(),
                text=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DeadlineError(f"running {command}", "not done") from error
        return Completed(done.returncode, done.stdout.decode(), done.stderr.decode())

    def changes(self) -> int:
        """The number of commands that could have changed anything."""
        return sum("-batch" in command or "delete" in command for command in self.asked)


@dataclass(frozen=True)
class BridgedHost:
    """One host, and the guest on its bridge."""

    name: str
    address: str
    space: Namespace
    guest: Namespace
    guest_address: str

    def shell(self, *before: str) -> NamespaceShell:
        return NamespaceShell(self.space, *before)

    def links(self) -> set[str]:
        return {link["ifname"] for link in json.loads(self.space.do("ip -json link"))}


def impossible() -> str | None:
    """Why such hosts cannot be created here; None if they can."""
    if os.geteuid() != 0:
        return "network namespaces with bridges need root"
    probe = ("unshare", "--net", "ip", "link", "add", "x", "type", "vxlan", "id", "1")
    done = run_program((*probe, "dstport", "4789"), check=False)
    return None if done.returncode == 0 else f"no VXLAN here: {done.stderr.strip()}"


@contextmanager
def namespace() -> Iterator[Namespace]:
    """A new namespace, removed afterwards."""
    holder = subprocess.Popen(
        ("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "cat"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write(b"there\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == b"there\n"
        space = Namespace(holder.pid)
        space.do("ip link set lo up")
        yield space
    finally:
        holder.kill()
        holder.communicate()


@contextmanager
def bridged_hosts(count: int, uplink: int, mtu: int) -> Iterator[tuple[BridgedHost, ...]]:
    """Hosts; ``uplink`` is the MTU between them, ``mtu`` that of their bridges.

    The guests' cards accept larger packets, so that the network sets the limit.
    """
    with ExitStack() as stack:
        switch = stack.enter_context(namespace())
        switch.do(f"ip link add up0 mtu {uplink} type bridge", "ip link set up0 up")
        yield tuple(_host(stack, switch, number, uplink, mtu) for number in range(1, count + 1))


def _host(stack: ExitStack, switch: Namespace, number: int, uplink: int, mtu: int) -> BridgedHost:
    host, guest = stack.enter_context(namespace()), stack.enter_context(namespace())
    switch.do(
        f"ip link add p{number} mtu {uplink} type veth peer name uplink mtu {uplink} "
        f"netns {host.pid}",
        f"ip link set p{number} master up0 up",
    )
    host.do(
        f"ip address add 198.18.200.{number}/24 dev uplink",
        "ip link set uplink up",
        f"ip link add {BRIDGE} mtu {mtu} type bridge",
        f"ip link set {BRIDGE} up",
        f"ip link add tap0 mtu {mtu} type veth peer name eth0 mtu 9000 netns {guest.pid}",
        f"ip link set tap0 master {BRIDGE} up",
    )
    guest.do(f"ip address add 198.18.201.{number}/24 dev eth0", "ip link set eth0 up")
    return BridgedHost(f"h{number}", f"198.18.200.{number}", host, guest, f"198.18.201.{number}")
