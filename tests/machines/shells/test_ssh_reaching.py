"""Who is let in, who is not, and what is said of a machine that does not answer."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from processes import run_program
from ssh_server import free_port, write_key

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.machines.ssh.connection import JUMPS
from lab.machines.ssh.keys import fingerprint, make_key_pair
from lab.machines.ssh.shell import SshShell
from lab.providers.netns import isolation
from lab.shells.shell import HostKeyError, KeyFileError, Reach, UnreachableError

STRANGER = make_key_pair("stranger")


@contextmanager
def listening(answer: bytes = b"") -> Iterator[int]:
    """A port that accepts, says that much, and then nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def accept() -> None:
            try:
                while True:
                    held.append(server.accept()[0])
                    held[-1].sendall(answer)
            except OSError:
                return

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in held:
                one.close()


def reach(port: int, keyfile: Path) -> Reach:
    return Reach("guest1", "127.0.0.1", "root", keyfile, STRANGER.public, port)


@pytest.fixture
def keyfile(tmp_path):
    return write_key(tmp_path / "key", STRANGER)


# SECURITY.md: Connections are encrypted, and hosts are known beforehand.
def test_another_host_key_is_fatal_and_never_tried_again(sshd, new_shell):
    shell = new_shell(sshd.reach(host_key=STRANGER.public))
    with pytest.raises(HostKeyError) as caught:
        shell.wait(Deadline(20))
    assert fingerprint(STRANGER.public) in caught.value.happened
    assert fingerprint(sshd.host.public) in caught.value.happened
    assert sshd.log().count("Connection from") == 1
    assert "Accepted" not in sshd.log()


def test_a_host_key_of_another_type_is_fatal_too(sshd, new_shell):
    pinned = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAI"
    with pytest.raises(HostKeyError, match="no host key of type ecdsa-sha2-nistp256"):
        new_shell(sshd.reach(host_key=pinned)).run(["true"], Deadline(20))


def test_of_several_host_keys_the_pinned_one_is_asked_for(new_sshd, new_shell, tmp_path):
    other = tmp_path / "rsa"
    run_program(["ssh-keygen", "-qt", "rsa", "-b", "2048", "-N", "", "-f", other])
    sshd = new_sshd(more=f"HostKey {other}\n")
    assert new_shell(sshd.reach()).run(["echo", "in"], Deadline(20)).stdout == "in\n"
    rsa = Path(f"{other}.pub").read_text()
    assert new_shell(sshd.reach(host_key=rsa)).run(["echo", "in"], Deadline(20)).stdout == "in\n"


def test_a_key_that_is_not_let_in_is_named(sshd, new_shell, keyfile):
    shell = new_shell(sshd.reach(keyfile=keyfile))
    with pytest.raises(UnreachableError, match=f"authentication failed: key '{keyfile}' of user"):
        shell.run(["true"], Deadline(20))
    with pytest.raises(DeadlineError, match=r"last seen: .authentication failed"):
        shell.wait(Deadline(4))


def test_a_key_file_that_cannot_be_used_is_no_reason_to_wait(sshd, new_shell, tmp_path):
    with pytest.raises(KeyFileError, match="cannot be read: no such file"):
        new_shell(sshd.reach(keyfile=tmp_path / "none")).wait(Deadline(60))
    (tmp_path / "text").write_text("no key")
    with pytest.raises(KeyFileError, match="is not a private key"):
        new_shell(sshd.reach(keyfile=tmp_path / "text")).wait(Deadline(60))
    locked = tmp_path / "locked"
    run_program(["ssh-keygen", "-qt", "ed25519", "-N", "secret", "-f", locked])
    with pytest.raises(KeyFileError, match="has a passphrase"):
        new_shell(sshd.reach(keyfile=locked)).wait(Deadline(60))


def test_a_closed_port_is_reported_as_refusing(new_shell, keyfile):
    shell = new_shell(reach(free_port(), keyfile))
    with pytest.raises(UnreachableError, match="connection refused"):
        shell.run(["true"], Deadline(20))
    with pytest.raises(DeadlineError, match="last seen: 'connection refused'"):
        shell.wait(Deadline(0.6))


def test_a_silent_port_is_reported(new_shell, keyfile):
    with listening() as port, pytest.raises(DeadlineError, match="no SSH banner was received"):
        new_shell(reach(port, keyfile)).wait(Deadline(2))


def test_a_server_that_stops_after_its_banner_is_not_waited_for_longer(new_shell, keyfile):
    with listening(b"SSH-2.0-odd\r\n") as port, pytest.raises(BrokenError, match="key exchange"):
        new_shell(reach(port, keyfile)).run(["true"], Deadline(1.5))


def test_a_server_that_does_not_speak_ssh_is_reported(new_shell, keyfile):
    with (
        listening(b"HTTP/1.1 400 Bad Request\r\n" * 100) as port,
        pytest.raises(UnreachableError) as caught,
    ):
        new_shell(reach(port, keyfile)).run(["true"], Deadline(5))
    assert (
        'no SSH server answers there (Indecipherable protocol version "HTTP/1.1 400'
        in caught.value.happened
    )


def test_a_machine_that_comes_up_late_is_waited_for(sshd, new_shell):
    sshd.end()
    late = threading.Timer(0.5, sshd.start)
    late.start()
    shell = new_shell(sshd.reach())
    shell.wait(Deadline(20))
    late.join()
    assert shell.run(["echo", "up"], Deadline(20)).stdout == "up\n"


@pytest.fixture
def behind(tmp_path):
    """Namespaces of a client, a host and a guest; the guest is reached from the host alone."""
    names = tuple(f"hl-ssh-{tmp_path.name[-8:]}-{kind}".lower() for kind in ("c", "h", "g"))
    client, host, guest = names

    def ip(line: str) -> None:
        run_program(["ip", *line.split()])

    try:
        for name in names:
            ip(f"netns add {name}")
        ip(f"-n {host} link add near type veth peer name eth0 netns {client}")
        ip(f"-n {host} link add far type veth peer name eth0 netns {guest}")
        for name, device, address in (
            (client, "eth0", "192.0.2.2/24"),
            (host, "near", "192.0.2.1/24"),
            (host, "far", "198.51.100.1/24"),
            (guest, "eth0", "198.51.100.2/24"),
        ):
            ip(f"-n {name} addr add {address} dev {device}")
            ip(f"-n {name} link set {device} up")
        yield client, host, guest
    finally:
        for name in names:
            run_program(["ip", "netns", "del", name], check=False)


@contextmanager
def sockets_of(namespace: str) -> Iterator[None]:
    """Sockets of this thread are made in that namespace."""
    with (
        Path("/proc/thread-self/ns/net").open() as back,
        Path(f"/run/netns/{namespace}").open() as there,
    ):
        isolation.setns(there.fileno(), isolation.CLONE_NEWNET)
        try:
            yield
        finally:
            isolation.setns(back.fileno(), isolation.CLONE_NEWNET)


def test_a_guest_behind_a_host_is_reached_through_it(behind, new_sshd, new_shell, tmp_path):
    client, host, guest = behind
    jump = new_sshd("host", address="192.0.2.1", inside=("ip", "netns", "exec", host))
    far = new_sshd("guest", address="198.51.100.2", inside=("ip", "netns", "exec", guest))
    through = jump.jump(tmp_path / "known_hosts")
    shell = new_shell(far.reach(jump=through))
    two = new_shell(far.reach(jump=through))
    with sockets_of(client):
        with pytest.raises(UnreachableError):
            new_shell(far.reach()).run(["true"], Deadline(3))
        shell.wait(Deadline(20))
        two.wait(Deadline(20))
    assert guest in shell.run(["ip", "netns", "identify"], Deadline(20)).stdout
    assert len(shell.run(["head", "-c", "8388608", "/dev/zero"], Deadline(60)).stdout) == 1 << 23
    assert jump.log().count("Accepted publickey") == 1
    shell.close()
    assert two.run(["echo", "still"], Deadline(20)).stdout == "still\n"
    two.close()
    assert not JUMPS._shared
    Deadline(5).wait("waiting", jump.connections, until=lambda left: not left)


def test_a_missing_guest_is_distinguished_from_its_host(sshd, new_shell, tmp_path):
    through = sshd.jump(tmp_path / "known_hosts")
    shell = new_shell(replace(reach(free_port(), sshd.keyfile), jump=through))
    with pytest.raises(
        UnreachableError, match=r"'127\.0\.0\.1' refused a channel to 127\.0\.0\.1 port"
    ):
        shell.run(["true"], Deadline(20))
    assert not JUMPS._shared


def test_a_host_that_is_not_known_is_refused_with_its_fingerprint(sshd, new_shell, tmp_path):
    through = replace(sshd.jump(tmp_path / "known_hosts"), known_hosts=tmp_path / "none")
    shell = new_shell(sshd.reach(jump=through))
    with pytest.raises(HostKeyError, match=r"is unknown: it is not in '.*/none'") as caught:
        shell.run(["true"], Deadline(20))
    assert fingerprint(sshd.host.public) in caught.value.happened
    trusting = new_shell(sshd.reach(jump=replace(through, no_verify=True)))
    assert trusting.run(["echo", "in"], Deadline(20)).stdout == "in\n"


def test_a_host_that_dies_is_connected_to_again(new_sshd, new_shell, tmp_path):
    jump, far = new_sshd("host"), new_sshd("guest")
    shell = new_shell(far.reach(jump=jump.jump(tmp_path / "known_hosts")))
    shell.wait(Deadline(20))
    jump.end()
    jump.start()
    assert shell.run(["echo", "on"], Deadline(20)).stdout == "on\n"


def test_one_shell_of_many_threads_connects_once(sshd):
    shell = SshShell(sshd.reach())
    threads = [threading.Thread(target=shell.wait, args=(Deadline(20),)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shell.close()
    assert sshd.log().count("Accepted publickey") == 1
