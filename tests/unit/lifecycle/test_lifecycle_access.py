"""Consoles, pictures, and ways into machines for other programs; refused where there are none."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import small_lab
from click.testing import CliRunner, Result
from fake_computers import BLANK, FakeComputers
from ruamel.yaml import YAML

from lab._errors import BrokenError, UsageError
from lab.cli.main import command
from lab.cli.output import write_file
from lab.lifecycle import api
from lab.machines.access import inventory
from lab.machines.ssh.keys import known_hosts, ssh_config
from lab.machines.ssh.shell import SshShell
from lab.providers.provider import Liveness
from lab.shells.shell import Jump, Reach, UnreachableError

MACHINES = ("console", "screenshot", "ssh")


@pytest.fixture(autouse=True)
def _opened(desk, monkeypatch, tmp_path):
    monkeypatch.setattr(api, "open_any", desk.opened)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def computers(desk):
    provider = FakeComputers(now=lambda: desk.now, said={"worker1": "login: \n"})
    desk.provider = provider
    desk.providers = {"fake": provider}
    desk.up()
    return provider


def lab(*words: str) -> Result:
    return CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize("verb", MACHINES)
def test_machines_that_are_no_computers_have_none_of_it(desk, verb):
    desk.up()
    with pytest.raises(UsageError, match="are not real machines") as caught:
        lab(verb, "overlay", "worker1")
    assert "lab shell" in caught.value.hint
    for whole in ("ssh-config", "ansible-inventory"):
        with pytest.raises(UsageError, match="are not real machines"):
            lab(whole, "overlay")


@pytest.mark.usefixtures("computers")
@pytest.mark.parametrize("verb", MACHINES)
def test_a_wrong_machine_is_refused_with_the_nearest_and_a_pod_as_one(verb):
    with pytest.raises(UsageError, match="no machine 'worker2'") as caught:
        lab(verb, "overlay", "worker2")
    assert "did you mean 'worker1'? the machines are worker1, win1," in caught.value.hint
    with pytest.raises(UsageError, match="'worker1-p1' is a pod on 'worker1'") as caught:
        lab(verb, "overlay", "worker1-p1")
    assert caught.value.hint == "lab shell overlay worker1-p1"


def test_the_console_is_attached_or_its_output_is_printed(computers):
    assert lab("console", "overlay", "worker1", "--log").stdout == "login: \n"
    assert lab("console", "overlay", "worker1").return_value == 0
    assert [call.verb for call in computers.calls[-2:]] == ["console_log", "console"]


@pytest.mark.usefixtures("computers")
def test_a_picture_goes_into_a_file_or_to_standard_output(tmp_path):
    assert lab("screenshot", "overlay", "worker1").stdout == "overlay-worker1.png\n"
    assert (tmp_path / "overlay-worker1.png").read_bytes() == BLANK
    lab("screenshot", "overlay", "worker1", "-o", "one.png")
    assert (tmp_path / "one.png").read_bytes() == BLANK
    assert lab("screenshot", "overlay", "worker1", "-o", "-").stdout_bytes == BLANK
    with pytest.raises(UsageError, match=r"'none/one\.png' cannot be written: no such file"):
        lab("screenshot", "overlay", "worker1", "-o", "none/one.png")


def test_a_pipe_that_becomes_a_link_meanwhile_is_written_into_and_the_link_is_not_followed(
    tmp_path, monkeypatch
):
    pipe, other = tmp_path / "pipe", tmp_path / "other"
    other.write_text("precious")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    looks: list[str] = []

    def swap_after(name, look):
        def swapped(path, *others, **more):
            try:
                return look(path, *others, **more)
            finally:
                looks.extend([name] * (path in {pipe, pipe.name}))
                if looks in (["open"], ["stat", "stat"]) and not os.path.islink(pipe):  # noqa: PTH114
                    os.unlink(pipe)  # noqa: PTH108
                    os.symlink(other, pipe)  # noqa: PTH211

        return swapped

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", swap_after("open", os.open))
        patched.setattr(Path, "stat", swap_after("stat", Path.stat))
        write_file(pipe, b"picture", "testing")
    assert os.read(reader, 100) == b"picture"
    assert other.read_text() == "precious"
    os.close(reader)


@pytest.mark.parametrize("verb", ["ssh", "exec", "shell"])
def test_a_machine_of_a_sleeping_lab_is_refused_with_the_command_that_wakes_it(
    verb, computers, monkeypatch
):
    def refused(*_):
        raise UnreachableError("logging in", "connecting to 10.0.0.2: No route to host")

    monkeypatch.setattr(SshShell, "attach", refused)
    if verb != "ssh":
        monkeypatch.setattr(computers, "machine", refused)
    asleep = Liveness("suspended", "the memory of all 2 machines is saved on disk")
    monkeypatch.setattr(computers, "liveness", lambda *_: asleep)
    words = ("worker1",) if verb == "shell" else ("worker1", "--", "true")
    with pytest.raises(BrokenError, match="the lab is suspended: the memory of all 2") as caught:
        lab(verb, "overlay", *words)
    assert caught.value.hint.startswith("'lab up overlay")
    assert caught.value.hint.endswith("' resumes it")
    if verb == "ssh":
        monkeypatch.setattr(computers, "liveness", lambda *_: Liveness("broken", "worker1 is off"))
        with pytest.raises(UnreachableError, match="No route to host"):
            lab(verb, "overlay", *words)


def test_a_lab_whose_machines_are_gone_has_no_way_in(computers):
    computers.world.clear()
    with pytest.raises(BrokenError, match="nothing carries its token"):
        lab("ssh-config", "overlay")


@pytest.mark.usefixtures("computers")
def test_the_ssh_configuration_is_printed_and_kept_until_the_lab_goes(desk):
    printed = lab("ssh-config", "overlay")
    directory = desk.store.lab_directory("overlay") / "ssh"
    assert (directory / "config").read_text() == printed.stdout
    assert "Host overlay-worker1\n  HostName 127.0.0.1\n" in printed.stdout
    assert "overlay-worker1 ssh-ed25519 AAAA\n" in (directory / "known_hosts").read_text()
    for file in directory.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    desk.down()
    assert not directory.exists()


@pytest.mark.usefixtures("computers")
def test_the_ansible_inventory_is_yaml_and_has_every_machine(desk):
    document = YAML(typ="safe").load(lab("ansible-inventory", "overlay").stdout)["all"]
    assert set(document["hosts"]) == {machine.name for machine in small_lab.intent().machines}
    assert document["hosts"]["worker1"] == {"ansible_host": "overlay-worker1"}
    assert document["children"]["windows"]["hosts"] == {"win1": None}
    assert set(document["children"]["nodes"]["hosts"]) == {"worker1", "win1"}
    config = desk.store.lab_directory("overlay") / "ssh" / "config"
    assert document["vars"]["ansible_ssh_common_args"] == f"-F {config}"
    assert config.exists()


def reach(name: str = "worker1", **changes: object) -> Reach:
    facts = Reach(name, "10.0.0.2", "root", Path("/labs/o o/100%/key"), "ssh-ed25519 AAAA c")
    return replace(facts, **changes)  # type: ignore[arg-type]


def test_roles_are_groups_another_user_becomes_root_and_windows_speaks_powershell():
    reaches = [reach("worker1", user="admin"), reach("win1", user="Administrator")]
    document = inventory("o", small_lab.plan(), small_lab.intent(), reaches, Path("/a b/config"))[
        "all"
    ]
    assert document["vars"]["ansible_ssh_common_args"] == "-F '/a b/config'"
    assert document["hosts"]["worker1"] == {"ansible_host": "o-worker1", "ansible_become": True}
    assert document["hosts"]["win1"] == {
        "ansible_host": "o-win1",
        "ansible_connection": "ssh",
        "ansible_shell_type": "powershell",
    }
    assert set(document["children"]) == {"linux", "windows", "nodes", "control_plane", "worker"}


def test_a_configuration_is_written_for_ssh_to_read():
    text = ssh_config("o", [reach(port=2222)], Path("/labs/known"))
    assert text == (
        "Host o-worker1\n"
        "  HostName 10.0.0.2\n"
        "  HostKeyAlias o-worker1\n"
        "  Port 2222\n"
        "  User root\n"
        '  IdentityFile "/labs/o o/100%%/key"\n'
        "  IdentitiesOnly yes\n"
        '  UserKnownHostsFile "/labs/known"\n'
        "  GlobalKnownHostsFile /dev/null\n"
        "  StrictHostKeyChecking yes\n"
        "  ServerAliveInterval 15\n"
    )
    assert known_hosts("o", [reach()]) == "o-worker1 ssh-ed25519 AAAA\n"


def test_a_host_gone_through_is_written_once():
    jump = Jump("hv1", 2200, "ann", Path("/k"), Path("/h"))
    trusted = Jump("hv2", no_verify=True)
    reaches = [reach("a", jump=jump), reach("b", jump=jump), reach("c", jump=trusted), reach("d")]
    blocks = dict(
        block.split("\n", 1) for block in ssh_config("o", reaches, Path("/n")).split("\n\n")
    )
    assert list(blocks) == [f"Host o-{name}" for name in "abcd"] + ["Host o.jump1", "Host o.jump2"]
    assert "  ProxyJump o.jump1" in blocks["Host o-b"]
    assert "ProxyJump" not in blocks["Host o-d"]
    assert blocks["Host o.jump1"].splitlines() == [
        "  HostName hv1",
        "  Port 2200",
        "  User ann",
        '  IdentityFile "/k"',
        '  UserKnownHostsFile "/h"',
        "  StrictHostKeyChecking yes",
    ]
    assert blocks["Host o.jump2"].splitlines()[3:] == [
        "  UserKnownHostsFile /dev/null",
        "  StrictHostKeyChecking no",
    ]


@pytest.mark.parametrize("verb", ["exec", "shell"])
def test_a_machine_is_looked_into_though_the_lab_around_it_is_broken(verb, computers, monkeypatch):
    broken = Liveness("broken", "worker2: NotReady")
    monkeypatch.setattr(computers, "liveness", lambda *_: broken)
    words = ("worker1",) if verb == "shell" else ("worker1", "--", "true")
    assert lab(verb, "overlay", *words).return_value == 0
