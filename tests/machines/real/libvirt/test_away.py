"""Hypervisors that cannot be reached, or no more: bounded, clear, and nothing left in the end."""

import socket
from dataclasses import replace

import pytest

libvirt = pytest.importorskip("libvirt", reason="libvirt-python is not installed")

from drill import Drill, drill  # noqa: E402
from hypervisors import Hypervisor as Machine  # noqa: E402

from lab._deadline import Deadline  # noqa: E402
from lab._errors import PreflightError  # noqa: E402
from lab.inventory.inventory import Hypervisor  # noqa: E402
from lab.machines.libvirt import connection  # noqa: E402

pytestmark = pytest.mark.drill


def refusal(uri: str) -> PreflightError:
    with pytest.raises(PreflightError, match="connecting to hypervisor 'away'") as raised:
        connection.connect(Hypervisor(name="away", uri=uri))
    return raised.value


def test_a_silent_daemon_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "_OPEN_SECONDS", 0.5)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "sock"))
        silent.listen()
        error = refusal(f"qemu+unix:///system?socket={tmp_path}/sock")
    assert "did not respond within 0.5 s" in error.happened


def test_a_missing_daemon_is_reported_with_how_to_start_it(tmp_path):
    assert "libvirtd" in refusal(f"qemu+unix:///system?socket={tmp_path}/none").hint


@pytest.fixture
def machine(two_hypervisors):
    return two_hypervisors[0]


def test_a_refused_key_is_reported(machine, two_hypervisors):
    other = two_hypervisors[1].directory / "key"
    error = refusal(machine.uri.replace(f"{machine.directory}/key", str(other)))
    assert "Permission denied" in error.happened
    assert "keyfile=" in error.hint


def test_an_unknown_host_key_is_reported(machine, tmp_path):
    forgetful = tmp_path / "ssh"
    forgetful.write_text('#!/bin/sh\nexec ssh -o UserKnownHostsFile=/dev/null "$@"\n')
    forgetful.chmod(0o755)
    error = refusal(f"{machine.uri}&command={forgetful}")
    assert "Host key verification failed" in error.happened
    assert "ssh-keyscan" in error.hint


def test_a_host_that_is_off_is_reported_in_time(machine):
    machine.unplug()
    try:
        deadline = Deadline(60)
        error = refusal(machine.uri)
        assert deadline.left() > 0
        assert "check that the host is running" in error.hint
    finally:
        machine.plug()


@pytest.fixture
def lab(machine, tmp_path):
    entry = f'{machine.entry()}acceleration = "tcg"\nparallel_boots = 1\n'
    with drill(tmp_path, entry, machine.uri) as found:
        yield found
        found.run("gc", "--yes", "--older-than", "0s")
        connected = libvirt.open(machine.uri)
        assert found.left(connected) == set()
        connected.close()


def silent(lab: Drill) -> Drill:
    return replace(lab, extra={"BOOTLESS_SILENT": "node", "BOOTLESS_SECONDS": "300"})


def await_machine(machine: Machine, lab: Drill) -> None:
    Deadline(90).wait(
        "waiting for a guest there",
        lambda: f"guest={lab.name}-" in machine.run("ps", "-eo", "args"),
        every=0.3,
    )


def test_a_vanished_hypervisor_is_reported_and_down_lists_what_is_left_there(machine, lab):
    try:
        with silent(lab).started(*lab.up_words()) as up:
            await_machine(machine, lab)
            machine.unplug()
            said, _ = up.communicate(timeout=180)
        assert up.returncode == 3, said
        assert "on hypervisor 'host1'" in said
        down = lab.run("down", lab.name, code=3).stderr
        assert "(node, router, client)) that may be on hypervisor 'host1' remain there" in down
        assert f"lab down {lab.name}" in down
    finally:
        machine.plug()
    assert "removed domain" in lab.run("down", lab.name).stderr


def test_a_libvirtd_that_dies_while_machines_boot_is_reported_and_up_continues(machine, lab):
    with silent(lab).started(*lab.up_words()) as up:
        await_machine(machine, lab)
        before = machine.run("pgrep", "-x", "libvirtd").split()
        machine.run("kill", "-KILL", *before)
        Deadline(60).wait(
            "waiting for another libvirtd",
            lambda: machine.run("sh", "-c", "pgrep -x libvirtd || true").split(),
            until=lambda now: bool(now) and now != before,
            every=0.3,
        )
        up.terminate()
        said, _ = up.communicate(timeout=120)
    assert up.returncode in {3, 143}, said
    assert "Traceback" not in said
    lab.run(*lab.up_words())
    assert "is up" in lab.run("status", lab.name).stdout
    lab.run("down", lab.name)
