"""A terminal lent to a command on another machine, and taken back."""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from processes import run_program
from shell_contract import wait_until_gone
from ssh_server import Sshd

import lab
from lab._deadline import Deadline

PROGRAM = Path(__file__).with_name("attaching.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(lab.__file__).parents[1]), "TERM": "xterm"}


def words(sshd: Sshd, *command: str) -> list[str]:
    facts = (sshd.host.public.strip(), str(sshd.keyfile), str(sshd.port))
    return [sys.executable, str(PROGRAM), *facts, *command]


class Terminal:
    """The screen and keyboard side of a terminal, with the program on it."""

    def __init__(self, program: list[str]) -> None:
        self.pid, self.descriptor = pty.fork()
        if not self.pid:
            os.execve(program[0], program, ENVIRONMENT)
        self.seen = ""

    def until(self, text: str) -> None:
        deadline = Deadline(20)
        while text not in self.seen:
            ready, _, _ = select.select([self.descriptor], [], [], deadline.left())
            assert ready, f"{text!r} is not in {self.seen!r}"
            try:
                self.seen += os.read(self.descriptor, 4096).decode()
            except OSError as error:  # nobody holds the other end any more
                raise AssertionError(f"{text!r} is not in {self.seen!r}") from error

    def type(self, keys: str) -> None:
        os.write(self.descriptor, keys.encode())

    def local_flags(self) -> int:
        return int(termios.tcgetattr(self.descriptor)[3])

    def ended(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)


@pytest.fixture
def screen(sshd):
    answering = "while :; do if read x; then $x; else tty -s || exit; fi; done"
    script = f"stty size; tty; echo $TERM; trap 'echo INT' INT; echo ready; {answering}"
    one = Terminal(words(sshd, "sh", "-c", script))
    yield one
    if one.pid:
        os.kill(one.pid, signal.SIGKILL)
        os.waitpid(one.pid, 0)
    os.close(one.descriptor)


def test_every_key_goes_to_the_command_and_its_code_comes_back(screen):
    screen.until("ready")
    assert "/dev/pts/" in screen.seen
    assert "xterm" in screen.seen
    screen.type("\x03")
    screen.until("INT")
    screen.type("exit 7\n")
    assert screen.ended() == 7
    assert screen.local_flags() & termios.ICANON
    assert screen.local_flags() & termios.ECHO


def test_a_terminal_is_restored_when_its_process_is_terminated(screen):
    screen.until("ready")
    os.kill(screen.pid, signal.SIGTERM)
    assert screen.ended() == -signal.SIGTERM
    Deadline(10).wait("waiting", screen.local_flags, until=lambda found: found & termios.ICANON)


def test_a_connection_that_is_cut_gives_the_terminal_back(screen, sshd):
    screen.until("ready")
    sshd.cut()
    screen.until("the connection to 'guest1'")
    assert screen.ended() == 1
    assert screen.local_flags() & termios.ICANON


def test_without_a_command_there_is_a_login_shell(sshd):
    one = Terminal(words(sshd))
    try:
        one.type("echo $((40 + 2)); exit 5\n")
        one.until("42\r\n")
        assert one.ended() == 5
    finally:
        os.close(one.descriptor)


def test_without_a_terminal_streams_are_passed_on_apart(sshd):
    script = "cat; echo oops >&2; exit 9"
    every = bytes(range(256)) * 20_000
    done = run_program(
        words(sshd, "sh", "-c", script), input=every, env=ENVIRONMENT, check=False, text=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (9, every, b"oops\n")


def test_a_reader_that_has_seen_enough_ends_the_command(sshd):
    word = f"{os.getpid()}yes"
    with subprocess.Popen(
        words(sshd, "yes", word),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == f"{word}\n".encode()
        process.stdout.close()
        process.wait(20)
    wait_until_gone(f"yes {word}")


def test_a_command_that_ends_with_255_is_not_a_lost_connection(sshd):
    done = run_program(words(sshd, "sh", "-c", "exit 255"), env=ENVIRONMENT, check=False)
    assert done.returncode == 255
