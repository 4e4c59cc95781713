"""lab doctor on a real libvirtd: what it finds, and that it leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypervisors
import pytest
from processes import run_program

libvirt = pytest.importorskip("libvirt", reason="libvirt-python is not installed")


from lab._deadline import Deadline  # noqa: E402  after the skip
from lab._errors import PreflightError  # noqa: E402
from lab.inventory.inventory import Hypervisor  # noqa: E402
from lab.machines.libvirt import connection, host  # noqa: E402
from lab.machines.libvirt import storage as scratch  # noqa: E402


def traces(connected: Any, storage: Path) -> set[str]:
    """What there is of tiny guests and their disks."""
    objects = (*connected.listAllStoragePools(), *connected.listAllDomains())
    named = {one.name() for one in objects if _is_of(one, storage)}
    return named | {str(path) for path in storage.rglob("*")}


@pytest.fixture
def storage():
    """A directory that QEMU may look into, whoever it runs as."""
    made = Path(tempfile.mkdtemp(prefix="hybridlab-doctor-", dir="/var/tmp"))
    made.chmod(0o755)
    yield made
    made.rmdir()


@pytest.fixture
def hypervisor(storage):
    return Hypervisor(name="local", uri="qemu:///system", storage=str(storage))


@pytest.fixture
def connected(hypervisor, storage):
    try:
        connection_ = connection.connect(hypervisor)
    except PreflightError as error:
        pytest.skip(f"no libvirtd: {error.happened}")
    yield connection_
    assert traces(connection_, storage) == set()
    connection_.close()


def test_a_way_to_run_guests_is_found_and_nothing_is_left(connected, hypervisor):
    proven = host.probe_acceleration(connected, hypervisor)
    assert proven.kind in {"kvm", "tcg"}
    assert f"a tiny guest runs with {proven.kind.upper()}" in proven.detail


def test_word_of_the_inventory_is_taken(connected, hypervisor):
    trusted = Hypervisor(name="local", uri=hypervisor.uri, storage="/nowhere", acceleration="kvm")
    assert host.probe_acceleration(connected, trusted).kind == "kvm"


def test_guest_whose_firmware_does_not_finish_is_reported(connected, hypervisor, monkeypatch):
    monkeypatch.setattr(host, "_LAST", b"what no firmware says")
    monkeypatch.setattr(host, "_TRIAL_SECONDS", {"kvm": 3.0, "tcg": 3.0})
    with pytest.raises(PreflightError) as caught:
        host.probe_acceleration(connected, hypervisor)
    text = "no guest runs with TCG: its firmware begins, then nothing for 3 s"
    assert text in caught.value.happened
    assert caught.value.exit_code == 4


KILLED = """
import sys
from lab.inventory.inventory import Hypervisor
from lab.machines.libvirt import connection, host
hypervisor = Hypervisor(name="local", uri="qemu:///system")
host._LAST = b"what no firmware says"
host.probe_acceleration(connection.connect(hypervisor), hypervisor)
"""


def test_killed_trial_leaves_no_guest(connected):
    def guests() -> set[str]:
        names = {listalldomain.name() for listalldomain in connected.listAllDomains()}
        return {name for name in names if name.startswith("hybridlab-trial-")} - before

    before: set[str] = set()
    before = guests()
    victim = subprocess.Popen([sys.executable, "-c", KILLED])
    try:
        Deadline(30).wait("waiting for a guest", guests)
    finally:
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    Deadline(30).wait("waiting for the guest to go", guests, until=lambda found: not found)


LEFT = """
import os, sys
from lab.inventory.inventory import Hypervisor
from lab.machines.libvirt import connection, storage
hypervisor = Hypervisor(name="local", uri="qemu:///system", storage=sys.argv[1])
with storage.scratch_pool(connection.connect(hypervisor), hypervisor):
    os.kill(os.getpid(), 9)
"""


def test_scratch_pool_of_a_killed_process_goes_with_the_next_one(
    connected, hypervisor, storage, monkeypatch
):
    run_program([sys.executable, "-c", LEFT, str(storage)], check=False)
    assert traces(connected, storage)
    monkeypatch.setitem(scratch._ABANDONED_SECONDS, "trial", -1.0)
    with scratch.scratch_pool(connected, hypervisor):
        pass


def _is_of(one: Any, storage: Path) -> bool:
    try:
        return str(storage) in one.XMLDesc()
    except libvirt.libvirtError:  # it went while we looked
        return False


def doctor(file: Path, inventory: str, code: int) -> dict[tuple[str, str], Any]:
    """What ``lab doctor`` says of an inventory, by subject and check."""
    file.write_text(inventory)
    words = ("--inventory", str(file), "--provider", "libvirt", "--json")
    done = run_program(
        [sys.executable, "-m", "lab", "doctor", *words],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return {(one["subject"], one["check"]): one for one in json.loads(done.stdout)}


@pytest.mark.usefixtures("connected")
def test_command_examines_every_hypervisor(storage, tmp_path):
    inventory = (
        f'[storage]\npath = "{storage}"\n[hypervisors.here]\nuri = "qemu:///system"\n'
        'address = "192.0.2.1"\n[hypervisors.gone]\nuri = "qemu+unix:///system?socket=/none"\n'
        'address = "192.0.2.2"\n'
    )
    diagnoses = doctor(tmp_path / "two.toml", inventory, 4)
    assert diagnoses["hypervisor 'here'", "connection"]["level"] == "ok"
    assert diagnoses["hypervisor 'here'", "acceleration"]["level"] in {"ok", "warn"}
    assert diagnoses["hypervisor 'here'", "storage"]["level"] == "ok"
    gone = diagnoses["hypervisor 'gone'", "connection"]
    assert gone["level"] == "fail"
    assert gone["hint"]


def inventory_of(hosts: tuple[hypervisors.Hypervisor, ...], mtu: int) -> str:
    return "".join(replace(hypervisor, mtu=mtu).entry() for hypervisor in hosts)


def test_two_hypervisors_reach_each_other_with_packets_that_fit(two_hypervisors, tmp_path):
    inventory = inventory_of(two_hypervisors, two_hypervisors[0].mtu)
    diagnoses = doctor(tmp_path / "lab.toml", inventory, 0)
    for hypervisor in two_hypervisors:
        subject = f"hypervisor '{hypervisor.name}'"
        seen = diagnoses[subject, "shell"]["seen"]
        assert seen == "a shell works; the other hypervisors are reachable"
        assert diagnoses[subject, "mtu"]["level"] == diagnoses[subject, "clock"]["level"] == "ok"


def test_a_too_small_mtu_between_two_hypervisors_is_reported_for_both(two_hypervisors, tmp_path):
    first, second = two_hypervisors
    diagnoses = doctor(tmp_path / "lab.toml", inventory_of(two_hypervisors, first.mtu + 100), 4)
    subject = f"hypervisor '{first.name}'"
    assert f"does not reach '{second.name}'" in diagnoses[subject, "shell"]["seen"]
    hint = diagnoses[subject, "mtu"]["hint"]
    assert hint == f"set mtu = {first.mtu} in [hypervisors.{first.name}]"
