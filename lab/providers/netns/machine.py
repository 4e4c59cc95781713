"""Run commands in one pod or node of a running lab, and gather evidence with them."""

from __future__ import annotations

import math
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab._dataclass import dataclass
from lab._deadline import Deadline
from lab._errors import LabError
from lab._log import quantity
from lab.providers.netns import daemons, guard, holders, isolation, namespaces
from lab.providers.netns.child_calls import Tell
from lab.providers.netns.holders import HolderEntry, HolderProcess
from lab.providers.netns.isolation import (
    RESOLV_DIRECTORY,
    RESOLVER_FILE,
    search_path,
)
from lab.providers.provider import EVIDENCE_SECONDS, Evidence, LabHandle
from lab.shells.shell import Completed, command_words
from lab.topology.intent import Intent

_NOT_FOUND, _NOT_RUNNABLE, _SIGNALLED = 127, 126, 128
"""Exit codes as in a shell."""


@dataclass(frozen=True, slots=True)
class NetnsMachine:
    """A network namespace of the lab, with its own host name and, for a pod, resolver file."""

    name: str
    entry: HolderEntry
    pod: bool

    def run(self, command: Sequence[str], deadline: Deadline) -> Completed:
        """Run a command with empty standard input and return its output.

        The exit code is the command's own; 128 + N if signal N killed it, 127 if the program does
        not exist, 126 if it cannot be run. Processes it leaves behind are killed.

        Raises DeadlineError when it does not finish in time; it is killed with all processes it
        started.
        """
        action = f"running {command_words(command)} in '{self.name}'"
        results: list[Completed] = []
        self._run_apart(action, [command], deadline, results.append)
        return results[0]

    def run_each(
        self,
        commands: Sequence[Sequence[str]],
        deadline: Deadline,
        heard: Callable[[Completed], None],
    ) -> None:
        """Like :meth:`run` for several commands, entering once; ``heard`` gets each result.

        Raises DeadlineError when not all finish in time; ``heard`` has received the results of
        those that did.
        """
        action = f"running {quantity(len(commands), 'command')} in '{self.name}'"
        self._run_apart(action, commands, deadline, heard)

    def _run_apart(
        self,
        action: str,
        commands: Sequence[Sequence[str]],
        deadline: Deadline,
        heard: Callable[[Completed], None],
    ) -> None:
        where = _working_directory()

        def inside(tell: Tell) -> None:
            isolation.mount("proc", "/proc", "proc", isolation.MS_NOSUID | isolation.MS_NODEV)
            self._enter_machine(where)
            for command in commands:
                tell(run_captured(command))

        self.entry.call(action, inside, deadline, told=Completed, heard=heard, apart=True)

    def attach(self, command: Sequence[str]) -> int:
        """Run a command on this terminal, or an interactive shell if ``command`` is empty.

        Returns the exit code, as :meth:`run` does. What a command leaves behind when it ends goes
        on; if this process is ended first, the command is killed with all that it started.
        """
        words = list(command) or [os.environ.get("SHELL") or "/bin/sh"]
        action = f"running {command_words(words)} in '{self.name}'"
        where = _working_directory()
        with _lent_terminal():
            return self.entry.call(
                action, lambda _: self._run_here(words, where), Deadline(math.inf), answer=int
            )

    def command_line(self, command: Sequence[str]) -> str:
        """The equivalent shell command, with ``nsenter`` and ``ip netns exec``."""
        words = list(command) or [os.environ.get("SHELL") or "/bin/sh"]
        foreign = os.stat(f"/proc/{self.entry.pid}/ns/user") != os.stat("/proc/self/ns/user")  # noqa: PTH116  no Path needed
        user = ["--user", "--preserve-credentials"] if foreign else []
        spaces = ["--mount", "--net", "--pid", "--root"]
        go_in = ["nsenter", f"--target={self.entry.pid}", *user, *spaces]
        inside = ["ip", "netns", "exec", self.name, *words]
        own = namespaces.run_directory(self.name)
        if self.pod:
            bind = f"mount --bind {RESOLV_DIRECTORY}/{self.name} {RESOLVER_FILE}"
            inside = [
                "unshare",
                "--mount",
                "--propagation=slave",
                "sh",
                "-c",
                f"{bind} && exec {shlex.join(inside)}",
            ]
        elif os.path.isdir(f"/proc/{self.entry.pid}/root{own}"):  # noqa: PTH112  no Path needed
            bind = f"mount --bind {own} /run"
            inside[4:] = ["sh", "-c", f"{bind} && exec {shlex.join(words)}"]
        return shlex.join([*go_in, *inside])

    def _run_here(self, command: Sequence[str], where: str) -> int:
        isolation.unshare(isolation.CLONE_NEWNS | isolation.CLONE_NEWUTS)
        self._enter_machine(where)
        return _run_attached(command)

    def _enter_machine(self, where: str) -> None:
        """In new mount and UTS namespaces: enter the machine, in the caller's directory."""
        namespaces.enter_machine(self.name, pod=self.pod)
        os.environ["PATH"] = search_path()
        try:
            os.chdir(where)
        except OSError:
            os.chdir("/")


def _working_directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  no Path needed
    except FileNotFoundError:
        return "/"


def run_captured(command: Sequence[str]) -> Completed:
    """Run a command here with empty standard input; exit codes as in a shell."""
    # Files, not pipes: a background child that holds a pipe open would block the read.
    out, err = os.memfd_create("stdout"), os.memfd_create("stderr")
    code, trouble = _wait_finished(
        lambda: subprocess.Popen(list(command), stdin=subprocess.DEVNULL, stdout=out, stderr=err),  # noqa: S603  the user's own command
        command[0],
    )
    return Completed(code, _read(out), _read(err) + trouble)


def _run_attached(command: Sequence[str]) -> int:
    def run(wait: Callable[[subprocess.Popen[bytes]], int]) -> int:
        code, trouble = _wait_finished(
            lambda: subprocess.Popen(list(command), preexec_fn=_take_terminal),  # noqa: S603, PLW1509  the user's own command; this process has one thread
            command[0],
            wait,
        )
        if trouble:
            os.write(2, trouble.encode())
        return code

    return guard.guarded(run)


def _take_terminal() -> None:
    """In the command's process: create a process group, so that a shell finds its own.

    The caller's group is outside this pid namespace and has no id here.
    """
    guard.release_signals()
    if os.isatty(0):
        os.setpgid(0, 0)
        _set_foreground()
        signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # nothing here could continue it


def _set_foreground() -> None:
    """Make this process group the terminal's foreground group, even from the background."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, before)


def _wait_finished(
    start: Callable[[], subprocess.Popen[bytes]],
    name: str,
    wait: Callable[[subprocess.Popen[bytes]], int] = subprocess.Popen.wait,
) -> tuple[int, str]:
    """Run a command: exit code as in a shell, and an error message if it did not start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # inherited by the command
    try:
        process = start()
    except FileNotFoundError:
        return _NOT_FOUND, f"lab: '{name}': no such program\n"
    except OSError as error:
        return _NOT_RUNNABLE, f"lab: '{name}': {error.strerror}\n"
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = wait(process)
    return (code if code >= 0 else _SIGNALLED - code), ""


def _read(descriptor: int) -> str:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with open(descriptor, "rb") as file:
        return file.read().decode(errors="replace")


@contextmanager
def _lent_terminal() -> Iterator[None]:
    """Give the terminal and its signals to the command, and take both back afterwards."""
    ours = os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGQUIT)}
    for number in before:
        signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        if ours:
            _set_foreground()
        for number, handler in before.items():
            signal.signal(number, handler)


_SYSCTLS = """
cd /proc/sys/net && grep -s . ipv4/ip_forward ipv4/icmp_* ipv4/ip_no_pmtu_disc ipv4/ip_default_ttl \
ipv4/neigh/default/gc_thresh* ipv4/conf/*/forwarding ipv4/conf/*/rp_filter ipv4/conf/*/proxy_arp \
ipv4/conf/*/arp_ignore ipv4/conf/*/arp_announce ipv4/conf/*/send_redirects \
bridge/bridge-nf-call-iptables netfilter/nf_conntrack_count netfilter/nf_conntrack_max
"""
LOOKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("addresses.txt", ("ip", "-details", "-statistics", "address")),
    ("routes.txt", ("ip", "-details", "route", "show", "table", "all")),
    ("rules.txt", ("ip", "rule")),
    ("neighbours.txt", ("ip", "-statistics", "neighbour", "show", "nud", "all")),
    ("proxies.txt", ("ip", "neighbour", "show", "proxy")),
    ("forwarding.txt", ("bridge", "-details", "fdb", "show")),
    ("ports.txt", ("bridge", "-details", "link", "show")),
    ("nftables.txt", ("nft", "list", "ruleset")),
    ("sysctls.txt", ("sh", "-c", _SYSCTLS)),
    ("sockets.txt", ("ss", "-a", "-n", "-t", "-u", "-p")),
    ("counters.txt", ("cat", "/proc/net/snmp", "/proc/net/netstat")),
)
"""File name and command for every namespace."""


def transcript(command: Sequence[str], done: Completed) -> str:
    """A command and its output, as in a terminal. Pure."""
    text = f"{command_prompt(command)}\n{done.stdout}"
    if done.code or done.stderr:
        text += f"{done.stderr}# exit code {done.code}\n"
    return text


def command_prompt(command: Sequence[str]) -> str:
    """The command with a shell prompt."""
    return f"$ {shlex.join(command)}"


def gather_evidence(lab: LabHandle, intent: Intent) -> Iterator[Evidence]:
    """The holder, then every machine, then every pod, then the daemons' files.

    Machines come before pods because they say more and a large lab may run out of time. Each
    namespace takes at most ``EVIDENCE_SECONDS``. Evidence that cannot be read gives the reason.
    """
    try:
        holder = holders.find_holder(lab)
    except (LabError, OSError) as error:
        yield Evidence("holder.txt", f"looking for the holder: {error}\n".encode())
        return
    if holder is None:
        yield Evidence("holder.txt", b"no holder process carries the lab's token\n")
        return
    yield Evidence("holder.txt", _describe_holder(holder, intent).encode())
    pods = {pod.name for machine in intent.machines for pod in machine.pods}
    present = namespaces.list_from_outside(holder.pid)
    for name in sorted(namespaces.namespace_names(intent), key=pods.__contains__):
        if name not in present:
            yield Evidence(f"{name}/missing.txt", b"there is no such namespace\n")
            continue
        yield from _namespace(lab, name, tuple(_list_questions(intent, name)), pod=name in pods)
    for path, content in daemons.daemon_files(holder.pid, intent):
        yield Evidence(path, content)


def _describe_holder(holder: HolderProcess, intent: Intent) -> str:
    present = namespaces.list_from_outside(holder.pid)
    missing = [name for name in namespaces.namespace_names(intent) if name not in present]
    lines = [
        f"process: {holder.pid}, running for {holder.age():.1f} s",
        f"namespaces: {len(present)}; missing: {', '.join(missing) or 'none'}",
        f"responder: {'' if daemons.responder_is_alive(holder.pid) else 'not '}running",
    ]
    for file in ("status", "mounts"):
        lines += ["", f"$ cat /proc/{holder.pid}/{file}", _text(Path(f"/proc/{holder.pid}/{file}"))]
    return "\n".join(lines) + "\n"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").rstrip()
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _list_questions(intent: Intent, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for machine in intent.machines:
        for daemon in machine.daemons if machine.name == name else ():
            for look in daemon.looks:
                words = (word for word in look if not word.startswith("--"))
                file = "-".join(words).replace("/", "-")
                yield f"{daemon.name}/{file}.txt", look


def _namespace(
    lab: LabHandle, name: str, commands: tuple[tuple[str, tuple[str, ...]], ...], *, pod: bool
) -> Iterator[Evidence]:
    resolver = (("resolv.conf", ("cat", f"{RESOLV_DIRECTORY}/{name}")),) if pod else ()
    looks = (*LOOKS, *resolver, *commands)
    results: list[Completed] = []
    trouble = ""
    try:
        machine = NetnsMachine(name, holders.enter_holder(lab), pod=False)
        machine.run_each(
            [command for _, command in looks], Deadline(EVIDENCE_SECONDS), results.append
        )
    except (LabError, OSError) as error:
        trouble = str(error)
    for (file, command), done in zip(looks, results, strict=False):
        yield Evidence(f"{name}/{file}", transcript(command, done).encode())
    for file, command in looks[len(results) :]:
        yield Evidence(f"{name}/{file}", f"{command_prompt(command)}\n{trouble}\n".encode())
