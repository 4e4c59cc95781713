"""A whole lab on this machine's own libvirtd, as a user has it: one lab, lived through in order."""

import json
import tarfile
import time
from typing import Any

import pytest
from real_lab import SMALL, RealLab, objects

from lab._deadline import Deadline

INVENTORY = """
[hypervisors.local]
uri = "qemu:///system"
vcpus = 64
memory = "900GiB"
"""
"""Limits are for all labs of a hypervisor together; others may be up on this machine."""
MACHINES = ("master", "worker", "router", "client")


@pytest.fixture(scope="module")
def lab(connected, tmp_path_factory):
    before = objects(connected, "small-")
    inventory = tmp_path_factory.mktemp("inventory") / "lab.toml"
    inventory.write_text(INVENTORY)
    made = RealLab(tmp_path_factory.mktemp("state"), inventory)
    try:
        made.up()
        yield made
    finally:
        known = (made.state / "labs" / "small").is_dir()
        down = made.run("down", "small") if known else None
    assert down is not None
    assert "removed domain" in down.stderr
    assert objects(connected, "small-") == before
    assert not list((made.state / "labs" / "small").rglob("secrets"))


def domains(connected: Any, lab: RealLab) -> list[Any]:
    return [
        listalldomain
        for listalldomain in connected.listAllDomains()
        if str(lab.state) in listalldomain.XMLDesc()
    ]


def matrix(lab: RealLab) -> dict[str, int]:
    lab.run("test", "small")
    results = sorted((lab.state / "labs" / "small" / "runs").glob("*/result.json"))
    return json.loads(results[-1].read_text())["counts"]["verdicts"]


def test_the_matrix_is_green_on_real_machines(lab):
    counts = {verdict: count for verdict, count in matrix(lab).items() if count}
    assert set(counts) == {"pass"}, counts


def test_up_again_does_nothing(lab):
    assert "its scenario has not changed" in lab.up().stderr


def test_every_machine_is_reached_by_its_name(lab):
    for machine in MACHINES:
        assert lab.run("ssh", "small", machine, "--", "hostname").stdout.strip() == machine


def test_the_node_s_network_is_in_the_guest_s_root_namespace(lab):
    routes = lab.run("exec", "small", "master", "--", "ip", "route").stdout
    assert "dev flannel.4096" in routes
    assert "dev cni0" in routes


def test_a_pod_is_a_place_to_run_commands_in(lab):
    address = lab.run("exec", "small", "worker-p1", "--", "ip", "-4", "-brief", "address").stdout
    assert "10.244." in address


def test_the_console_shows_the_machines_boot_output(lab):
    stdout = lab.run("console", "small", "worker", "--log").stdout
    assert "hybridlab: new instance" in stdout
    assert "Multi-User System" in stdout


def test_the_console_answers_while_nobody_types(lab):
    shown = lab.on_terminal(("console", "small", "worker"), b"\r", b"root@worker", b"\x1d")
    assert b"automatic login" in shown


def test_a_screenshot_is_a_png(lab, tmp_path):
    file = tmp_path / "screen.png"
    lab.run("screenshot", "small", "worker", "-o", str(file))
    assert file.read_bytes().startswith(b"\x89PNG")


def test_plain_ssh_gets_in_by_the_configuration_that_is_printed(lab, tmp_path):
    assert lab.ssh(tmp_path, "small", "worker", "hostname") == "worker\n"


def test_evidence_has_every_machine_and_no_secret(lab, tmp_path):
    file = tmp_path / "evidence.tar.gz"
    lab.run("gather", "small", "--output", str(file))
    secrets = [
        path.read_text().splitlines()[1]
        for path in (lab.state / "labs" / "small" / "secrets").iterdir()
        if path.suffix != ".pub"
    ]
    assert len(secrets) == len(MACHINES) + 1
    with tarfile.open(file) as archive:
        names = archive.getnames()
        for member in archive.getmembers():
            content = archive.extractfile(member)
            text = content.read().decode(errors="replace") if content else ""
            assert not [secret for secret in secrets if secret in text], member.name
    for machine in MACHINES:
        for piece in ("domain.xml", "console.log", "screen.png"):
            assert any(name.endswith(f"{machine}/{piece}") for name in names), (machine, piece)


def test_a_blocked_tunnel_turns_its_cells_and_up_again_does_not_hide_it(lab):
    rule = "add table ip fault; add chain ip fault out { type filter hook output priority 0; }"
    drop = "add rule ip fault out udp dport 4789 drop"
    lab.run("ssh", "small", "worker", "--", "nft", f"{rule}; {drop}")
    text = "pod-pod/master-p1/worker-p1/tcp-small"
    failed = lab.run("test", "small", "-k", text, code=1)
    assert "pod-pod" in failed.stdout
    lab.run("ssh", "small", "worker", "--", "nft", "delete table ip fault")
    lab.run("test", "small", "-k", text)


def test_a_suspended_lab_goes_on_where_it_was(lab, connected):
    boot = lab.run("ssh", "small", "worker", "--", "cat", "/proc/sys/kernel/random/boot_id").stdout
    assert "suspended: 4 machines" in lab.run("suspend", "small").stdout
    assert not [domain for domain in domains(connected, lab) if domain.isActive()]
    assert "is suspended" in lab.run("status", "small", code=3).stdout
    assert "already suspended" in lab.run("suspend", "small").stdout
    story = lab.up().stderr
    assert "resumed" in story
    assert "booted" not in story
    again = lab.run("ssh", "small", "worker", "--", "cat", "/proc/sys/kernel/random/boot_id").stdout
    assert again == boot
    guest = float(lab.run("ssh", "small", "worker", "--", "date", "+%s").stdout)
    assert abs(guest - time.time()) < 30, "the clock stood still with the memory"
    lab.run("test", "small", "-k", "pod-pod")


def test_after_a_reboot_of_the_hypervisor_the_lab_is_put_back(lab, connected):
    for domain in domains(connected, lab):
        if domain.isActive():
            domain.destroy()
    stdout = lab.run("status", "small", code=3).stdout
    assert "broken" in stdout
    assert "shut off" in stdout
    lab.run("test", "small", code=3)
    assert "booted" in lab.up().stderr
    lab.run("test", "small", "-k", "pod-pod")


def test_a_machine_whose_kernel_panicked_is_started_again_alone(lab):
    crash = "echo c > /proc/sysrq-trigger"
    lab.run("exec", "small", "client", "--", "systemd-run", "--on-active=1", "sh", "-c", crash)
    Deadline(120).wait(
        "the kernel to panic",
        lambda: lab.run("console", "small", "client", "--log").stdout[-3000:],
        until=lambda said: "Kernel panic" in said,
        every=1,
    )
    lab.run("status", "small", code=3)
    story = lab.up().stderr
    assert "client: restarted, its system had halted" in story
    assert story.count("restarted") == story.count("booted") == 1
    lab.run("test", "small", "-k", "pod-external")


def test_a_machine_that_was_removed_by_hand_alone_is_made_again(lab, connected):
    (gone,) = (domain for domain in domains(connected, lab) if domain.name().endswith("-client"))
    gone.destroy()
    gone.undefine()
    assert "client is missing" in lab.run("status", "small", code=3).stdout
    story = lab.up().stderr
    assert [line for line in story.splitlines() if "booted" in line] == [
        line for line in story.splitlines() if line.startswith("client: booted")
    ]
    lab.run("test", "small", "-k", "pod-external")


def test_one_more_pod_changes_the_network_alone(lab, tmp_path):
    more = tmp_path / "small.yaml"
    more.write_text(SMALL.read_text().replace("pods_per_node: 1", "pods_per_node: 2"))
    story = lab.up(more).stderr
    assert "continuing lab 'small': its input has changed" in story
    assert "step 5 of 6: network" in story
    assert "step 4 of 6" not in story
    assert "booted" not in story
    lab.run("test", "small", "-k", "hairpin")
    lab.up()
