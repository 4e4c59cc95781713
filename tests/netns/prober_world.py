"""A few pods around a node, in namespaces that end with the world.

::

    a 10.1.0.2  b 10.1.0.3  c 10.1.0.4   on br0 (10.1.0.1) of node
    client 192.168.9.2                   behind node (192.168.9.1)
    lone                                 without any link

10.7.0.0/16 is unreachable at the node; c drops packets to port 8081, a drops its own packets to
UDP port 8082.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lab._deadline import Deadline
from lab.providers.netns import holders, namespaces, prober
from lab.providers.provider import LabHandle, Outcome, Probe, ProbeSettings

T = TypeVar("T")
A, B, C = "10.1.0.2", "10.1.0.3", "10.1.0.4"
NODE_OUTSIDE, UNREACHABLE = "192.168.9.1", "10.7.0.1"
RESPONDER = Path(prober.__file__).with_name("responder.py")
DNS_RECORDS = {"svc.default.svc.cluster.local.": ["10.96.0.7"], "else.where.": ["10.9.9.9"]}

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
ip netns exec c nft 'add table ip t; add chain ip t in { type filter hook input priority 0; };
    add rule ip t in meta l4proto { tcp, udp } th dport 8081 drop'
ip netns exec a nft 'add table ip t; add chain ip t out { type filter hook output priority 0; };
    add rule ip t out udp dport 8082 drop'
"""


class World:
    """The namespaces, held by a lab's holder, and the programs in them."""

    def __init__(self, lab: LabHandle) -> None:
        self._lab = lab
        self._entry = holders.start_holder(lab, sys.executable)
        self._started: list[subprocess.Popen[bytes]] = []

    def build(self) -> None:
        """Make the pods, the node and their links."""
        self.run(_BUILD)

    def command(self, *words: str) -> list[str]:
        """The command line to run ``words`` inside."""
        user = ["-U", "--preserve-credentials"] if os.geteuid() else []
        return ["nsenter", "-t", str(self._entry.pid), *user, "-m", "-n", "-p", "--", *words]

    def run(self, script: str) -> str:
        """Run a shell script inside and return its output."""
        done = subprocess.run(
            self.command("sh", "-c", script), check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, name: str, *words: str) -> None:
        """Start a program inside, which prints ``ready``; its pid there is in /run/NAME.pid."""
        # Not exec: nsenter stops when its child is stopped by a test.
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
        """Start a server from Python source text."""
        inside = ("ip", "netns", "exec", namespace, sys.executable, "-I", "-c", source)
        self.start(name, *inside)

    def stop(self, name: str, sign: str = "KILL") -> None:
        """End a program and wait until it has ended."""
        self.run(f"kill -{sign} $(cat /run/{name}.pid)")
        _close(self._started.pop())

    def call(self, function: Callable[[], T], answer: type[T]) -> T:
        """Run a function inside, in a child process; return its result or raise its exception."""
        deadline = Deadline(120)
        return self._entry.call("running a test", lambda _: function(), deadline, answer=answer)

    def probe(
        self,
        probes: Sequence[Probe],
        *,
        timeout: float = 0.5,
        in_flight: int = 64,
        report: Callable[[Sequence[Outcome]], None] = lambda _: None,
    ) -> dict[int, Outcome]:
        """Send probes from inside."""
        settings = ProbeSettings(timeout, in_flight)
        return self.call(
            lambda: prober.probe(namespaces.enter, probes, settings, report), dict[int, Outcome]
        )

    def ask(self, source: str, address: str, **facts: Any) -> Outcome:
        """The outcome of one probe."""
        return self.probe([a_probe(source, address, **facts)])[0]

    def end(self) -> None:
        """Remove everything."""
        holders.destroy_holders(self._lab, "")
        for process in self._started:
            _close(process)


def _close(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def a_probe(source: str, address: str, **facts: Any) -> Probe:
    """A small TCP probe at the usual port, with some fields changed."""
    usual: dict[str, Any] = {
        "key": 0,
        "protocol": "tcp",
        "size": "small",
        "port": 8080,
        "mtu": 1500,
    }
    return Probe(source=source, address=address, **(usual | facts))
