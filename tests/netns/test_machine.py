"""Commands in pods and nodes: output, exit codes, names, resolver files, and their end."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lab._deadline import Deadline
from lab._errors import BrokenError, UsageError
from lab.providers.netns import namespaces
from lab.providers.netns.machine import NetnsMachine
from lab.topology.intent import Resolver

Machines = Callable[[str], NetnsMachine]


@pytest.fixture
def machine(overlay):
    def of(name: str) -> NetnsMachine:
        return overlay.provider.machine(overlay.lab, overlay.intent, name)

    return of


def test_output_is_kept_apart_and_exact(machine):
    done = machine("worker1-p1").run(["sh", "-c", "printf a; printf b >&2; exit 3"], Deadline(10))
    assert (done.code, done.stdout, done.stderr) == (3, "a", "b")


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["cat"], 0, ""),  # standard input is empty
        (["sh", "-c", "kill -KILL $$"], 137, ""),
        (["sh", "-c", "kill -TERM $$"], 143, ""),
        (["no-such-program"], 127, "lab: 'no-such-program': no such program\n"),
        (["/etc"], 126, "lab: '/etc': Permission denied\n"),
    ],
)
def test_exit_codes_are_those_of_a_shell(machine, command, code, said):
    done = machine("worker1-p1").run(command, Deadline(10))
    assert (done.code, done.stderr) == (code, said)


def test_a_pod_has_its_own_name_network_and_resolver(machine, overlay):
    done = machine("worker1-p1").run(
        ["sh", "-c", "hostname; cat /etc/resolv.conf; ls /sys/class/net"], Deadline(10)
    )
    resolver = overlay.intent.machine("worker1").pods[0].resolver
    assert done.stdout == f"worker1-p1\n{namespaces.resolver_text(resolver)}eth0\nlo\n"


def test_a_node_keeps_this_machines_resolver_and_a_windows_pod_has_its_rules(machine):
    ours = Path("/etc/resolv.conf").read_text(encoding="utf-8")
    assert machine("worker1").run(["cat", "/etc/resolv.conf"], Deadline(10)).stdout == ours
    done = machine("win1-p1").run(["cat", "/etc/resolv.conf"], Deadline(10))
    assert done.stdout == namespaces.resolver_text(
        Resolver("10.96.0.10", ("default.svc.cluster.local",), 1)
    )


def test_path_and_working_directory_are_kept(machine, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    done = machine("worker1").run(["sh", "-c", 'pwd; echo "$PATH"'], Deadline(10))
    assert done.stdout.startswith(f"{tmp_path}\n{os.environ['PATH']}")  # sbin may follow


def test_what_it_leaves_running_does_not_hold_it_up(machine, overlay):
    done = machine("worker1-p1").run(["sh", "-c", "sleep 64.25 & echo gone"], Deadline(10))
    assert done.stdout == "gone\n"
    Deadline(5).wait(
        "the sleeper to end",
        lambda: overlay.entry.call("x", lambda _: _count("64.25"), Deadline(5), answer=int),
        until=lambda count: count == 0,
    )


def _count(word: str) -> int:
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += word.encode() in path.read_bytes().split(b"\0")
    return found


@pytest.mark.parametrize("name", ["worker1-p1", "win1", "client"])
def test_the_printed_line_does_the_same_by_hand(machine, name):
    command = ["sh", "-c", "cat /etc/resolv.conf; ip -brief address"]
    by_hand = subprocess.run(
        machine(name).command_line(command), shell=True, capture_output=True, text=True, check=True
    )
    assert by_hand.stdout == machine(name).run(command, Deadline(10)).stdout
    assert "netns exec" in machine(name).command_line(command)


def test_attach_gives_the_terminal_and_the_exit_code(overlay):
    """In a process of its own, on a pseudo terminal: what is typed reaches the pod's shell."""
    child, terminal = pty.fork()
    if not child:
        try:
            machine = overlay.provider.machine(overlay.lab, overlay.intent, "worker1-p1")
            os._exit(machine.attach(["sh"]))
        finally:
            os._exit(99)
    os.write(terminal, b"test -t 0 && hostname && exit 7\n")
    said = b""
    try:
        while chunk := os.read(terminal, 4096):
            said += chunk
    except OSError:  # how a pseudo terminal says that its last user has gone
        pass
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert b"worker1-p1\r\n" in said
    assert b"annot" not in said
    assert os.waitstatus_to_exitcode(status) == 7


def test_a_wrong_name_is_answered_with_the_nearest(overlay):
    with pytest.raises(UsageError, match=r"did you mean 'worker1-p1'\? there are ") as raised:
        overlay.provider.machine(overlay.lab, overlay.intent, "worker1p1")
    assert "looking for 'worker1p1' in lab 'lab'" in str(raised.value)


def test_a_lab_that_is_not_up_has_no_machines(overlay, new_lab):
    with pytest.raises(BrokenError, match="its holder is not running") as raised:
        overlay.provider.machine(new_lab("down"), overlay.intent, "worker1")
    assert "'lab status down'" in raised.value.hint


def test_words_with_spaces_survive_the_printed_line(machine):
    line = machine("worker1").command_line(["printf", "%s|", "a b", "c'd"])
    assert shlex.split(line)[-4:] == ["printf", "%s|", "a b", "c'd"]
    assert subprocess.check_output(line, shell=True, text=True) == "a b|c'd|"
