"""OpenSSH itself takes the configuration that is written for it."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from processes import run_program

from lab.machines.ssh.keys import known_hosts, make_key_pair, ssh_config
from lab.shells.shell import Reach


@pytest.fixture
def directory(tmp_path):
    """With all in its name that a configuration file may trip over."""
    made = tmp_path / 'a lab\'s 100% "dir" \\ %h'
    made.mkdir()
    return made


def written(directory: Path, reaches: Sequence[Reach]) -> Path:
    known, config = directory / "known_hosts", directory / "config"
    known.write_text(known_hosts("overlay", reaches))
    config.write_text(ssh_config("overlay", reaches, known))
    return config


def ssh(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["ssh", "-F", config, "-o", "BatchMode=yes", *words]
    return run_program(command, check=False)


def test_ssh_reads_every_option_as_it_is_meant(sshd, directory):
    config = written(directory, [sshd.reach(keyfile=directory / "key")])
    shown = ssh(config, "-G", "overlay-guest1")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    for line in (
        "hostname 127.0.0.1",
        f"port {sshd.port}",
        "user root",
        "hostkeyalias overlay-guest1",
        "stricthostkeychecking true",
        "identitiesonly yes",
        f"identityfile {directory}/key".replace("%", "%%"),
    ):
        assert line in lines, shown.stdout


def test_ssh_logs_in_by_the_alias(sshd, directory):
    key = directory / "key"
    key.touch(mode=0o600)
    key.write_text(sshd.client.private)
    config = written(directory, [sshd.reach(keyfile=key)])
    done = ssh(config, "overlay-guest1", "echo in")
    assert (done.returncode, done.stdout) == (0, "in\n"), done.stderr


def test_ssh_goes_through_a_host_that_is_known(new_sshd, tmp_path):
    jump, far = new_sshd("host"), new_sshd("guest")
    through = jump.jump(tmp_path / "known")
    config = written(tmp_path, [far.reach(jump=through)])
    done = ssh(config, "overlay-guest1", "echo in")
    assert (done.returncode, done.stdout) == (0, "in\n"), done.stderr
    assert "Accepted publickey" in jump.log()


def test_ssh_refuses_another_host_key(sshd, directory):
    config = written(directory, [sshd.reach(host_key=make_key_pair("other").public)])
    done = ssh(config, "overlay-guest1", "true")
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr
