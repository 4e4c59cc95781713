"""Guests without virtual machines, for the tests of agents.

A set of namespaces that ends with its first process has the segments, as bridges; each
guest is a network, mount, pid and UTS namespace in it with its own /run, and with network
cards as in a machine definition: one for each interface, and ``mgmt0``.
"""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from processes import run_program

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.shells.shell import Completed
from lab.topology.intent import Intent, Interface, MachineIntent

MARK = "HYBRIDLAB_TEST_WORLD"
"""Environment variable of every process in a world. (Namespace numbers are reused.)"""
MANAGEMENT_GATEWAY = "198.18.0.1"
_FIRST = (
    "import os, signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execvp('cat', ['cat'])"
)
"""Process 1 must reap children like an init; with SIGCHLD ignored, the kernel does it."""
_PLACE = (
    "mount -t tmpfs tmpfs /run && echo ready && "
    f'exec {shlex.quote(sys.executable)} -ISc "{_FIRST}" > /dev/null'
)
_GUEST = 'hostname "$0" && ' + _PLACE


class World:
    """The segments, and the guests on them."""

    def __init__(self) -> None:
        self.foreign = os.geteuid() != 0
        self.mark = secrets.token_hex(8)
        apart = [*(["-Ur"] if self.foreign else []), "-m", "-n", "-p", "-u", "-f"]
        words = ["unshare", *apart, "--kill-child", "--mount-proc", "sh", "-c", _PLACE]
        self._outer = self._started(words)
        self.pid = _deepest(self._outer.pid)
        self.guests: dict[str, Guest] = {}
        self.run("ip link set lo up; ip link add management type bridge")
        self.run(f"ip addr add {MANAGEMENT_GATEWAY}/24 dev management; ip link set management up")

    def run(self, script: str) -> str:
        """Run a shell script in the namespace of the segments, and return its output."""
        done = run_program(
            entering(self.pid, foreign=self.foreign, words=["sh", "-ec", script]),
            check=False,
            env=self.environment(),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def plug(
        self,
        intent: Intent,
        names: Callable[[Interface], str],
        only: Collection[str] | None,
    ) -> None:
        """A guest for every machine, or for some, with its cards connected by these names."""
        for segment in intent.segments:
            self.run(
                f"ip link add {segment.name} type bridge; ip link set {segment.name} up;"
                f"echo 0 > /proc/sys/net/bridge/bridge-nf-call-iptables"
            )
        for number, machine in enumerate(intent.machines):
            if only is None or machine.name in only:
                self.guests[machine.name] = self._guest(machine, number, names)

    def _guest(
        self, machine: MachineIntent, number: int, names: Callable[[Interface], str]
    ) -> Guest:
        apart = ["unshare", "-m", "-n", "-p", "-u", "-f", "--kill-child", "--mount-proc"]
        words = [*apart, "sh", "-c", _GUEST, machine.name]
        process = self._started(entering(self.pid, foreign=self.foreign, words=words))
        guest = Guest(machine.name, process, _deepest(process.pid), self)
        for place, card in enumerate(machine.interfaces):
            self._card(guest, f"p{number}-{place}", names(card), card.segment, card.mac)
        self._card(guest, f"m{number}", "mgmt0", "management", f"52:54:00:00:00:{number:02x}")
        guest.shell(
            f"ip link set lo up; ip addr add 198.18.0.{number + 10}/24 dev mgmt0;"
            f"ip link set mgmt0 up; ip route add default via {MANAGEMENT_GATEWAY}"
        )
        return guest

    def _card(self, guest: Guest, port: str, name: str, segment: str, mac: str) -> None:
        self.run(f"ip link add {port} type veth peer name far{port}; ip link set {port} up")
        self.run(f"ip link set {port} master {segment}")
        # From outside the guest's pid namespace, but inside its user namespace.
        inner = _inner_pid(guest.pid, self.pid)
        self.run(f"ip link set far{port} address {mac}; ip link set far{port} netns {inner}")
        guest.shell(f"ip link set far{port} name {name}")

    def end(self) -> None:
        """Remove everything, and check that it is gone."""
        self._outer.kill()
        for process in (self._outer, *(guest.process for guest in self.guests.values())):
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
        Deadline(10.0).wait("ending the guests", self.left, until=lambda left: not left)

    def left(self) -> list[str]:
        """Processes that were started in or for the world."""
        found = []
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it has ended, or cannot be inspected
                if self.mark.encode() in entry.read_bytes():
                    found.append(entry.parent.name)
        return found

    def environment(self) -> dict[str, str]:
        """The environment of processes in the world."""
        return {**os.environ, MARK: self.mark}

    def _started(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment()
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", "no namespaces to be had"
        return process


class Guest:
    """One guest, and a shell on it: a :class:`lab.shells.shell.Shell`."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], pid: int, world: World) -> None:
        self.name, self.process, self.pid, self.world = name, process, pid, world
        self.reachable = True
        self.said: list[bytes] = []
        self.agent: subprocess.Popen[bytes] | None = None
        self.python = str(Path(sys.executable).parent)

    def shell(self, script: str) -> str:
        """Run a shell script on the guest, and return its output."""
        done = self.run(["sh", "-ec", script], Deadline(20))
        assert done.code == 0, done.stderr
        return done.stdout

    def run(self, command: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        lines: list[bytes] = []
        done = self.stream(command, deadline, lines.append, stdin)
        return Completed(done.code, b"".join(lines).decode(), done.stderr)

    def stream(
        self,
        command: Sequence[str],
        deadline: Deadline,
        heard: Callable[[bytes], None],
        stdin: bytes = b"",
    ) -> Completed:
        if not self.reachable:
            raise BrokenError(f"reaching machine '{self.name}'", "connection refused")
        words = entering(self.pid, foreign=self.world.foreign, words=command)
        environment = self.world.environment()
        environment["PATH"] = f"{self.python}:{environment['PATH']}"
        with subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        ) as process:
            self.agent = process
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdin.write(stdin)
            process.stdin.close()
            try:
                for line in process.stdout:
                    self.said.append(line)
                    heard(line)
            except BaseException:  # a shell ends a command with its channel
                self.kill_agent()
                process.kill()
                raise
            try:
                code = process.wait(max(0.1, deadline.left()))
            except subprocess.TimeoutExpired:
                process.kill()
                raise DeadlineError(f"running a command on '{self.name}'", "not done") from None
            return Completed(code, "", process.stderr.read().decode())

    def put(self, content: bytes, path: str, mode: int, deadline: Deadline) -> None:
        script = f'cat > "$0.part" && chmod {mode:o} "$0.part" && mv "$0.part" "$0"'
        done = self.run(["sh", "-ec", script, path], deadline, content)
        assert done.code == 0, done.stderr

    def get(self, path: str, deadline: Deadline) -> bytes:
        return self.run(["cat", path], deadline).stdout.encode()

    def wait(self, deadline: Deadline) -> None:
        """Do nothing: the guest is ready from the start."""

    def attach(self, command: Sequence[str]) -> int:
        return self.run(command, Deadline(20)).code

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def kill_agent(self) -> None:
        """SIGKILL the agent itself, but not its children; it may have ended already."""
        assert self.agent is not None
        with suppress(FileNotFoundError, ProcessLookupError, IndexError):
            os.kill(_deepest_first(self.agent.pid), signal.SIGKILL)


def entering(pid: int, *, foreign: bool, words: Sequence[str]) -> list[str]:
    """The command line to run ``words`` in the namespaces of a process."""
    user = ["-U", "--preserve-credentials"] if foreign else []
    return ["nsenter", "-t", str(pid), *user, "-m", "-n", "-p", "-u", "--", *words]


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _deepest(pid: int) -> int:
    while children := _children(pid):
        pid = children[0]
    return pid


def _deepest_first(pid: int) -> int:
    """The first Python process among its descendants: the agent, not its starter."""
    while "python" not in Path(f"/proc/{pid}/comm").read_text():
        pid = _children(pid)[0]
    return pid


def _inner_pid(pid: int, outer: int) -> int:
    """The id of a process in the pid namespace of another."""
    depth = len(_numbers(outer))
    return _numbers(pid)[depth - 1]


def _numbers(pid: int) -> list[int]:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return [int(word) for word in line.split()[1:]]
    raise AssertionError(pid)
