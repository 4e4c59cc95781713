"""A lab of system containers, lived through in order: no cluster, pods are namespaces."""

import os
import signal
from pathlib import Path

import pytest
from processes import run_program

from lab._deadline import Deadline
from lab.machines.nspawn import containers

MACHINES = ("master", "worker", "router", "client")
STARTED = ("stat", "-c", "%Y", "/proc/1")
SECONDS = 120.0


@pytest.fixture(scope="module")
def lab(labs):
    labs.up()
    yield labs
    labs.run("down", "small")
    assert labs.left() == set()


def test_the_matrix_is_green(lab):
    lab.green("small")


def test_up_again_does_nothing(lab):
    assert "its scenario has not changed" in lab.up().stderr


def test_every_machine_is_reached_by_its_name(lab):
    for machine in MACHINES:
        assert lab.run("ssh", "small", machine, "--", "hostname").stdout.strip() == machine


def test_plain_ssh_gets_in_by_the_configuration_that_is_printed(lab, tmp_path):
    assert lab.ssh(tmp_path, "small", "worker", "hostname") == "worker\n"


def test_the_console_log_is_the_journal(lab):
    assert "Multi-User System" in lab.run("console", "small", "worker", "--log").stdout


def test_a_screenshot_is_refused_with_what_there_is(lab, tmp_path):
    stderr = lab.run("screenshot", "small", "worker", "-o", str(tmp_path / "x.png"), code=2).stderr
    assert "no screen" in stderr
    assert "lab console small worker --log" in stderr


# SECURITY.md: System containers share one kernel.
def test_a_machine_runs_on_the_hosts_kernel(lab):
    stdout = lab.run("exec", "small", "worker", "--", "uname", "-r").stdout
    assert stdout.strip() == os.uname().release


def test_a_fault_is_named_and_healed(lab):
    lab.run("fault", "small", "tunnel-udp-dropped", "--node", "worker")
    stdout = lab.run("explain", "small", "master-p1", "worker-p1", code=1).stdout
    assert "tunnel-udp-dropped" in stdout
    assert "worker" in stdout
    lab.run("heal", "small")
    assert "works" in lab.run("explain", "small", "master-p1", "worker-p1").stdout


def test_pods_are_compared_with_what_the_lab_made(lab):
    said = lab.run("explain", "small", "master-p1", "worker-p1").stdout
    assert "not compared" not in said
    inside = ("exec", "small", "worker-p1", "--", "sysctl", "-q", "-w")
    lab.run(*inside, "net.ipv4.tcp_keepalive_time=7000")
    said = lab.run("explain", "small", "master-p1", "worker-p1").stdout
    assert "pod worker-p1, setting net/ipv4/tcp_keepalive_time: 7000; it should be: 7200" in said
    lab.run(*inside, "net.ipv4.tcp_keepalive_time=7200")


def test_a_capture_follows_a_probe_there_and_back(lab):
    stdout = lab.run("capture", "small", "master-p1", "worker-p1").stdout
    assert "worker flannel.4096" in stdout


def test_a_suspended_lab_goes_on_where_it_was(lab):
    before = lab.run("exec", "small", "worker", "--", *STARTED).stdout
    assert "suspended: 4 machines" in lab.run("suspend", "small").stdout
    assert "is suspended" in lab.run("status", "small", code=3).stdout
    for command in ("exec", "ssh"):
        refused = lab.run(command, "small", "worker", "--", "true", code=3).stderr
        assert "the lab is suspended" in refused
    story = lab.up().stderr
    assert story.count("resumed") == 4
    assert "booted" not in story
    assert lab.run("exec", "small", "worker", "--", *STARTED).stdout == before
    lab.green("small", "-k", "pod-pod")


def test_a_machine_that_reboots_comes_back_with_a_network_of_its_own(lab):
    before = containers.leaders(lab.holder())["worker"]
    lab.run("exec", "small", "worker", "--", "systemctl", "--no-block", "reboot")
    Deadline(SECONDS).wait(
        "the worker to be up again",
        lambda: containers.leaders(lab.holder()).get("worker"),
        until=lambda now: now not in {None, before},
        every=0.1,
    )
    lab.up()
    lab.green("small", "-k", "pod-pod")


def test_a_power_cut_of_one_machine_is_reported_and_repaired(lab):
    os.kill(containers.leaders(lab.holder())["worker"].pid, signal.SIGKILL)
    Deadline(SECONDS).wait(
        "the worker to be off",
        lambda: containers.leaders(lab.holder()),
        until=lambda leaders: "worker" not in leaders,
    )
    assert "worker is off" in lab.run("status", "small", code=3).stdout
    lab.run("exec", "small", "worker", "--", "true", code=3)
    assert "booted worker" in lab.up().stderr
    lab.green("small", "-k", "pod-pod")


def test_a_machine_that_outlives_its_systemd_nspawn_is_ended_before_it_boots(
    lab,
):
    before = containers.leaders(lab.holder())["worker"]
    status = Path(f"/proc/{before.pid}/status").read_text()
    os.kill(int(status.partition("PPid:\t")[2].split()[0]), signal.SIGKILL)
    Deadline(SECONDS).wait(
        "its systemd-nspawn to end",
        lambda: containers.leaders(lab.holder()),
        until=lambda leaders: "worker" not in leaders,
    )
    assert before.runs()
    assert "booted worker" in lab.up().stderr
    assert not before.runs()
    lab.green("small", "-k", "pod-pod")


def test_a_suspended_lab_whose_holder_is_killed_is_switched_on_again(lab):
    lab.run("suspend", "small")
    os.kill(lab.holder(), signal.SIGKILL)
    assert "booted master, worker, router, client" in lab.up().stderr
    lab.green("small", "-k", "pod-pod")


def test_what_machines_have_written_outlives_a_power_cut_of_them_all(lab):
    lab.run("exec", "small", "worker", "--", "touch", "/root/kept")
    os.kill(lab.holder(), signal.SIGKILL)
    assert "its machines are off" in lab.run("status", "small", code=3).stdout
    lab.up()
    lab.run("exec", "small", "worker", "--", "test", "-e", "/root/kept")
    lab.green("small", "-k", "pod-pod")


def test_evidence_has_every_machine_and_no_secret(lab, tmp_path):
    file = tmp_path / "evidence.tar.gz"
    lab.run("gather", "small", "--output", str(file))
    listed = run_program(("tar", "tzf", file)).stdout
    for machine in MACHINES:
        assert f"{machine}/nspawn.log" in listed
    whole = run_program(("tar", "xzOf", file), text=False).stdout
    assert b"PRIVATE KEY" not in whole
