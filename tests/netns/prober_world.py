"""A few pods round a node, in namespaces of their own that go when the world ends.

::

    a 10.1.0.2  b 10.1.0.3  c 10.1.0.4   on br0 (10.1.0.1) of node
    client 192.168.9.2                   behind node (192.168.9.1), masqueraded towards br0
    lone                                 without any link

Service 10.96.0.1:80 leads to a, b or c at random; 10.7.0.0/16 is unreachable at the node;
c drops what comes for port 8081, a drops what it sends to UDP port 8082 itself.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lab._deadline import Deadline
from lab.providers.netns import isolation, prober
from lab.providers.provider import Outcome, Probe, ProbeSettings

T = TypeVar("T")
KINDS = ("mnt", "pid", "net")
A, B, C = "10.1.0.2", "10.1.0.3", "10.1.0.4"
NODE, NODE_OUTSIDE, SERVICE, UNREACHABLE = "10.1.0.1", "192.168.9.1", "10.96.0.1", "10.7.0.1"
RESPONDER = Path(prober.__file__).with_name("responder.py")
DNS_RECORDS = {"svc.default.svc.cluster.local.": ["10.96.0.7"], "else.where.": ["10.9.9.9"]}

_PLACE = """
set -e
mount -t tmpfs tmpfs /run
mkdir /run/netns /run/resolv
echo ready
exec cat > /dev/null
"""
_BUILD = """
set -e
for name in node a b c client lone; do ip netns add $name; ip -n $name link set lo up; done
ip -n node link add br0 type bridge
ip -n node addr add 10.1.0.1/24 dev br0
ip -n node link set br0 up
number=2
for name in a b c; do
    ip -n node link add v$name type veth peer name eth0 netns $name
    ip -n node link set v$name master br0 up
    ip -n $name link set eth0 gso_max_segs 1 up
    ip -n $name addr add 10.1.0.$number/24 dev eth0
    ip -n $name route add default via 10.1.0.1
    number=$((number + 1))
done
ip -n node link add outside type veth peer name eth0 netns client
ip -n node addr add 192.168.9.1/24 dev outside
ip -n node link set outside up
ip -n client addr add 192.168.9.2/24 dev eth0
ip -n client link set eth0 up
ip -n client route add default via 192.168.9.1
ip -n node route add unreachable 10.7.0.0/16
ip netns exec node sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
ip netns exec node nft -f - <<END
table ip t {
    chain pre { type nat hook prerouting priority dstnat; policy accept;
        ip daddr 10.96.0.1 tcp dport 80 dnat to numgen random mod 3 map {
            0 : 10.1.0.2 . 8080, 1 : 10.1.0.3 . 8080, 2 : 10.1.0.4 . 8080 }
    }
    chain post { type nat hook postrouting priority srcnat; policy accept;
        ip saddr 192.168.9.0/24 oifname br0 masquerade
    }
}
END
ip netns exec c nft 'add table ip t; add chain ip t in { type filter hook input priority 0; };
    add rule ip t in meta l4proto { tcp, udp } th dport 8081 drop'
ip netns exec a nft 'add table ip t; add chain ip t out { type filter hook output priority 0; };
    add rule ip t out udp dport 8082 drop'
"""


class World:
    """The namespaces, a way in, and what runs there."""

    def __init__(self) -> None:
        apart = ["-m", "-n", "-p", "-f", "--kill-child", "--mount-proc"]
        self._foreign = os.geteuid() != 0
        if self._foreign:
            apart.insert(0, "-Ur")
        self._outer = subprocess.Popen(
            ["unshare", *apart, "sh", "-c", _PLACE],
            stdin=subprocess.PIPE,  # its end is the end of the world, should this process die
            stdout=subprocess.PIPE,
        )
        assert self._outer.stdout is not None
        assert self._outer.stdout.readline() == b"ready\n", "no namespaces to be had"
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
        self.pid = int(children.read_text(encoding="ascii"))
        spaces = Path(f"/proc/{self.pid}/ns")
        # Held open, for the kernel gives the number of one that has ended to the next.
        self._held = [os.open(spaces / kind, os.O_RDONLY | os.O_CLOEXEC) for kind in KINDS]
        self._spaces = {os.fstat(one).st_ino for one in self._held}
        self._started: list[subprocess.Popen[bytes]] = []

    def build(self) -> None:
        """Make the pods, the node and their links."""
        self.run(_BUILD)

    def command(self, *words: str) -> list[str]:
        """The words, run inside."""
        user = ["-U", "--preserve-credentials"] if self._foreign else []
        return ["nsenter", "-t", str(self.pid), *user, "-m", "-n", "-p", "--", *words]

    def run(self, script: str) -> str:
        """Run a shell script inside and return what it says."""
        done = subprocess.run(
            self.command("sh", "-c", script), check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, name: str, *words: str) -> None:
        """Start a program inside that says ``ready``; its pid there is in /run/NAME.pid."""
        # Not exec: nsenter would stop with a child that a test stops.
        script = f'"$@" & echo $! > /run/{name}.pid; wait $!'
        process = subprocess.Popen(
            self.command("sh", "-c", script, "sh", *words), stdout=subprocess.PIPE
        )
        self._started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", f"'{name}' did not start"

    def respond(self, name: str, entries: Sequence[dict[str, Any]]) -> None:
        """Start a responder."""
        self.run(f"cat > /run/{name}.json <<'END'\n{json.dumps(list(entries))}\nEND")
        words = (str(RESPONDER), f"/run/{name}.json")
        self.start(name, sys.executable, "-I", *words)

    def serve(self, name: str, namespace: str, source: str) -> None:
        """Start a server of the test's own, Python source text."""
        inside = ("ip", "netns", "exec", namespace, sys.executable, "-I", "-c", source)
        self.start(name, *inside)

    def stop(self, name: str, sign: str = "KILL") -> None:
        """End a program and wait until it is gone."""
        self.run(f"kill -{sign} $(cat /run/{name}.pid)")
        _close(self._started.pop())

    def call(self, function: Callable[[], T]) -> T:
        """Run a function inside, in a child; returns what it returns, raises what it raises."""
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            self._inside(function, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            data = file.read()
        os.waitpid(child, 0)
        kind, value = pickle.loads(data)
        if kind == "failed":
            raise value
        result: T = value
        return result

    def _inside(self, function: Callable[[], object], writer: int) -> None:
        try:
            flags = isolation.CLONE_NEWNS | isolation.CLONE_NEWNET | isolation.CLONE_NEWPID
            flags |= isolation.CLONE_NEWUSER if self._foreign else 0
            isolation.setns(os.pidfd_open(self.pid), flags)
            isolation.die_with_parent(signal.SIGKILL)
            child = os.fork()
            if child:
                os.close(writer)
                os.waitpid(child, 0)
                os._exit(0)
            isolation.die_with_parent(signal.SIGKILL)
            data = pickle.dumps(("done", function()))
        except BaseException as error:  # noqa: BLE001  carried over to the test
            data = pickle.dumps(("failed", error))
        with os.fdopen(writer, "wb") as file:
            file.write(data)
        os._exit(0)

    def probe(
        self,
        probes: Sequence[Probe],
        *,
        timeout: float = 0.5,
        in_flight: int = 64,
        progress: Callable[[int], None] = lambda _: None,
    ) -> dict[int, Outcome]:
        """Probe from inside."""
        settings = ProbeSettings(timeout, in_flight)
        return self.call(lambda: prober.probe(enter, probes, settings, progress))

    def ask(self, source: str, address: str, **facts: Any) -> Outcome:
        """The outcome of one probe."""
        return self.probe([a_probe(source, address, **facts)])[0]

    def end(self) -> None:
        """Take everything away, and see that it is gone."""
        self._outer.kill()
        for process in (self._outer, *self._started):
            _close(process)
        try:
            Deadline(5.0).wait("ending the world", self.left, until=lambda left: not left)
        finally:
            for one in self._held:
                os.close(one)

    def left(self) -> list[str]:
        """Processes that are in a namespace of the world."""
        found = []
        for entry in Path("/proc").iterdir():
            for kind in KINDS:
                try:
                    if entry.name.isdigit() and (entry / "ns" / kind).stat().st_ino in self._spaces:
                        found.append(f"{entry.name} {kind}")
                except OSError:  # ended, or not ours to look at
                    continue
        return found


def _close(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def enter(name: str) -> None:
    """Into the namespace of that name."""
    there = os.open(f"/run/netns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        isolation.setns(there, isolation.CLONE_NEWNET)
    finally:
        os.close(there)


def a_probe(source: str, address: str, **facts: Any) -> Probe:
    """A small TCP probe at the usual port, but for the facts given."""
    usual: dict[str, Any] = {
        "key": 0,
        "protocol": "tcp",
        "size": "small",
        "port": 8080,
        "mtu": 1500,
    }
    return Probe(source=source, address=address, **(usual | facts))
