"""Shells on this machine and on hypervisors, and sessions on a connection that breaks."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import paramiko
import pytest
from processes import run_program
from shell_contract import ShellContract

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError, UsageError
from lab.facts.objects import OBJECTS_COMMAND
from lab.facts.questions import STATE_COMMAND
from lab.facts.questions import command as question
from lab.inventory.inventory import Hypervisor
from lab.inventory.uri import parse
from lab.machines.libvirt.host import jump_of, jump_to, shell_of
from lab.machines.ssh.shell import SshShell
from lab.machines.ssh.transport import SESSIONS, SSHServer, SSHTransport, jump_server, own_keys
from lab.shells.local import LocalShell
from lab.shells.shell import Jump, command_words

SHELL = LocalShell(become=False)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("ip", "link", "show", "dev", "my card"), "'ip link show dev 'my card''"),
        (STATE_COMMAND, "'sh -c ...' (the script in lab/facts/questions.py)"),
        (question("pod"), "'sh -c ...' (the script in lab/facts/questions.py)"),
        (OBJECTS_COMMAND, "'sh -c ...' (the script in lab/facts/objects.py)"),
        (("echo", *["word"] * 99), f"'echo {'word ' * 22}word...' (499 characters)"),
        (("sh", "-c", "true\nfalse"), "'sh -c 'true\\x0afalse''"),
    ],
)
def test_a_command_in_an_error_is_its_first_words_and_where_it_is_whole(command, words):
    assert command_words(command) == words


@pytest.mark.parametrize(
    ("error", "kind", "happened", "hint"),
    [
        (BlockingIOError(11, "No"), PreflightError, "no more processes", "raise the limit"),
        (FileNotFoundError(2, "No such file", "sudo"), BrokenError, "'sudo': no such", "sudo"),
    ],
)
def test_a_program_that_cannot_be_started_is_named_and_a_used_up_limit_is(
    error, kind, happened, hint, monkeypatch
):
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(kind) as raised:
        SHELL.run(["id"], Deadline(9))
    assert happened in raised.value.happened
    assert hint in raised.value.hint


class TestLocalShell(ShellContract):
    """With each of the shells that a distribution may have as /bin/sh."""

    @pytest.fixture(params=["dash", "bash"])
    def shell(self, request, tmp_path_factory, monkeypatch):
        program = shutil.which(request.param)
        if program is None:
            pytest.skip(f"{request.param} is not installed")
        programs = tmp_path_factory.mktemp("bin")
        (programs / "sh").symlink_to(program)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        return SHELL


def test_it_becomes_root_by_sudo(new_program):
    shell = LocalShell(become=True)
    if shutil.which("sudo") is None:
        with pytest.raises(BrokenError, match="'sudo': no such file"):
            shell.run(["true"], Deadline(20))
    new_program("sudo", '[ "$1 $2" = "-n --" ] || exit 9\nshift 2\nAS=root exec "$@"')
    assert shell.run(["sh", "-c", "echo $AS"], Deadline(20)).stdout == "root\n"
    new_program("sudo", "echo 'sudo: a password is required' >&2\nexit 1")
    with pytest.raises(BrokenError, match="becoming root on this machine: sudo: a password"):
        shell.wait(Deadline(20))


def test_it_leaves_no_descriptor_and_no_child():
    def traces() -> tuple[int, set[str]]:
        children = Path("/proc/self/task").glob("*/children")
        return (
            len(list(Path("/proc/self/fd").iterdir())),
            {child for path in children for child in path.read_text().split()},
        )

    before = traces()
    SHELL.run(["true"], Deadline(20))
    assert traces() == before


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """The account's own, which is not where ``HOME`` points to."""
    account = SimpleNamespace(pw_dir=str(tmp_path))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: account)
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("LOGNAME", "me")
    (tmp_path / ".ssh").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("uri", "configured", "jump"),
    [
        ("qemu+ssh://hv1/system", {}, Jump("hv1", 22, "me")),
        ("qemu+ssh://ann@hv1:2222/system", {}, Jump("hv1", 2222, "ann")),
        (
            "qemu+ssh://[2001:db8::1]/system?keyfile=/k%20ey",
            {},
            Jump("2001:db8::1", 22, "me", Path("/k ey")),
        ),
        ("qemu+ssh://hv1/system?no_verify=1&no_tty=1", {}, Jump("hv1", 22, "me", no_verify=True)),
        ("qemu+ssh://hv1/system?no_verify=0", {}, Jump("hv1", 22, "me")),
        (
            "qemu+ssh://hv1/system",
            {"hostname": "10.0.0.1", "port": "2200", "user": "bob", "identityfile": "/id"},
            Jump("10.0.0.1", 2200, "bob", Path("/id")),
        ),
        (
            "qemu+ssh://ann@hv1:22/system?keyfile=/k",
            {"hostname": "10.0.0.1", "port": "2200", "user": "bob", "identityfile": "/id"},
            Jump("10.0.0.1", 22, "ann", Path("/k")),
        ),
    ],
)
def test_a_uri_overrides_the_ssh_configuration(uri, configured, jump):
    assert jump_of(parse(uri), configured) == jump


def test_a_host_of_the_users_ssh_configuration_is_followed(home):
    (home / ".ssh" / "config").write_text(
        "Host hv1\n  HostName 192.0.2.7\n  User bob\n  IdentityFile ~/.ssh/lab\n"
        "  UserKnownHostsFile ~/.ssh/racks\n"
    )
    jump = jump_to(Hypervisor(name="one", uri="qemu+ssh://hv1/system"))
    ssh = home / ".ssh"
    assert jump == Jump("192.0.2.7", 22, "bob", ssh / "lab", ssh / "racks")


def test_host_keys_are_read_from_sshs_file_regardless_of_home(home):
    (home / ".ssh" / "known_hosts").write_text("hv1 ssh-ed25519 AAAA\n")
    assert jump_server(Jump("hv1", 22, "me")).host_keys == ("ssh-ed25519 AAAA",)


def test_the_users_keys_are_those_of_ssh_regardless_of_home(home, monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key = home / ".ssh" / "id_ed25519"
    run_program(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key])
    with own_keys("logging in", jump_server(Jump("hv1", 22, "me"))) as shown:
        assert [said for said, _ in shown] == [f"'{key}'"]


def test_a_host_behind_another_is_refused_in_words(home):
    (home / ".ssh" / "config").write_text("Host hv1\n  ProxyJump gate\n")
    with pytest.raises(UsageError, match="has 'proxyjump' for host 'hv1'"):
        shell_of(Hypervisor(name="one", uri="qemu+ssh://hv1/system"))
    (home / ".ssh" / "config").write_text("Host hv1\n  ProxyJump none\n")
    assert isinstance(shell_of(Hypervisor(name="one", uri="qemu+ssh://hv1/system")), SshShell)


def test_this_machine_is_asked_directly():
    assert isinstance(shell_of(Hypervisor(name="one", uri="qemu:///system")), LocalShell)
    assert jump_to(Hypervisor(name="one", uri="qemu:///system")) is None


def test_tls_carries_no_shell_and_names_what_does():
    with pytest.raises(UsageError, match="provides no shell") as caught:
        shell_of(Hypervisor(name="one", uri="qemu+tls://hv1/system"))
    assert "qemu+ssh://root@hv1/system" in caught.value.hint


class Broken:
    """A channel whose transport is gone, as paramiko's tells when it writes its good-bye."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error

    def close(self) -> None:
        if self.error is not None:
            raise self.error


class Transport:
    """One that opens every channel."""

    def __init__(self, channel: Broken) -> None:
        self.channel = channel

    def open_channel(self, *_: object, timeout: float) -> Broken:
        assert timeout > 0
        return self.channel


@pytest.mark.parametrize(
    "error", [None, EOFError(), OSError("gone"), paramiko.SSHException("gone")], ids=repr
)
def test_a_session_gives_its_room_back_however_its_connection_ended(error):
    link = SSHTransport(
        cast("SSHServer", None), cast("paramiko.Transport", Transport(Broken(error)))
    )
    for _ in range(SESSIONS + 1):
        link.done(link.open("running a command", Deadline(5.0)))
    link.channel("connecting", "direct-tcpip", ("192.0.2.1", 22), Deadline(5.0)).close()


def test_an_interrupted_command_frees_its_session_too():
    transport = Transport(Broken(KeyboardInterrupt()))
    link = SSHTransport(cast("SSHServer", None), cast("paramiko.Transport", transport))
    for _ in range(SESSIONS + 1):
        channel = link.open("running a command", Deadline(5.0))
        with pytest.raises(KeyboardInterrupt):
            link.done(channel)
