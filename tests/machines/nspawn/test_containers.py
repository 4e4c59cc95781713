"""Machines of a lab of system containers: their record, their boot, and their share of the host."""

import os
import subprocess
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError
from lab.inventory.inventory import STOCK, Inventory
from lab.lifecycle.compilation import compile_scenario
from lab.lifecycle.nightly import jobs_of, select_jobs
from lab.lifecycle.providers import Providers, choose
from lab.machines import keyring
from lab.machines.libvirt import placement
from lab.machines.nspawn import bring_up, containers, holder, layout, networks, preflight
from lab.machines.nspawn.containers import require_own_disks
from lab.machines.nspawn.guests import PROBES_A_PROCESSOR, ContainerGuests
from lab.machines.nspawn.layout import NspawnLayout
from lab.machines.nspawn.preflight import need
from lab.machines.nspawn.provider import NspawnProvider
from lab.plan.planner import make_plan
from lab.plan.step import Step
from lab.providers.netns.holders import HolderProcess, start_time
from lab.providers.provider import LabHandle, ProbeSettings
from lab.scenario.loader import find, load
from lab.state import lock
from lab.topology import registry
from lab.topology.intent import Intent

SMALL = Path(__file__).parents[2] / "small.yaml"


def test_a_machine_that_the_scenario_has_no_more_is_made_anew(tmp_path, monkeypatch):
    intent = compile_scenario(str(SMALL), None, None, "namespaces", real=True).intent
    lab = LabHandle("x", tmp_path, "abc")
    names = (*(machine.name for machine in intent.machines), "third")
    layout.save(lab, NspawnLayout({}, IPv4Network("10.219.0.0/24"), names))
    monkeypatch.setattr(holder, "find", lambda _: SimpleNamespace(pid=1))
    monkeypatch.setattr(holder, "entry", lambda _: SimpleNamespace(pid=1))
    monkeypatch.setattr(networks, "missing", lambda *_: "")
    liveness = NspawnProvider(STOCK).liveness(lab, intent)
    assert (liveness.state, liveness.again_from) == ("broken", "images")
    assert "'third'" in liveness.detail


def test_a_machine_that_the_record_has_no_address_of_is_named(tmp_path):
    lab = LabHandle("x", tmp_path, "abc")
    guests = ContainerGuests(lab, NspawnLayout({}, IPv4Network("10.219.0.0/24"), ("worker",)), None)
    with pytest.raises(BrokenError, match="address of machine 'master': the lab's record has none"):
        guests.address("master")


def test_a_wait_ends_with_the_holder(tmp_path):
    with subprocess.Popen(["sleep", "60"]) as process:
        started = start_time(process.pid)
        assert started is not None
        holder = HolderProcess(process.pid, started, 0, "x", "abc", tmp_path)
        addresses = IPv4Network("10.219.0.0/24")
        guests = ContainerGuests(
            LabHandle("x", tmp_path, "abc"), NspawnLayout({}, addresses, ("worker",)), holder
        )
        looks: list[int] = []

        def look() -> bool:
            looks.append(1)
            if len(looks) == 2:
                process.kill()
                process.wait()
            return False

        with pytest.raises(BrokenError, match="lab 'x': its machines were ended from outside"):
            guests.site.deadline(60).wait("waiting for an API server", look)
    assert len(looks) == 2


def test_a_record_without_an_address_for_each_machine_is_none(tmp_path):
    lab = LabHandle("x", tmp_path, "abc")
    for prefix, machines, there in ((32, 1, False), (28, 6, False), (28, 5, True), (24, 244, True)):
        names = tuple(f"m{number}" for number in range(machines))
        made = NspawnLayout({}, IPv4Network(f"10.219.0.0/{prefix}"), names)
        layout.save(lab, made)
        assert layout.load(lab) == (made if there else None)
        assert not there or made.address(names[-1])


def test_a_question_that_is_never_answered_is_asked_again(monkeypatch):
    asked = []

    def boot_state(machine: str, deadline: Deadline) -> str:
        asked.append(machine)
        if len(asked) == 1:
            time.sleep(deadline.left())
            raise DeadlineError("asking", "no answer")
        return "running"

    monkeypatch.setattr(bring_up, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(containers, "log", lambda *_: "switched on\n")
    guests: Any = SimpleNamespace(patience=1, boot_state=boot_state)
    made = bring_up.NspawnBringUp
    made._wait(SimpleNamespace(), guests, None, "worker", Deadline(2))  # type: ignore[arg-type]
    assert len(asked) == 2


def test_a_machine_that_is_off_for_good_is_not_waited_for(monkeypatch):
    text = "switched on\nExecutable format error\nsystemd-nspawn ended with 1\n"

    def boot_state(*_: object) -> Any:
        raise BrokenError("entering machine 'worker'", "it is switched off")

    monkeypatch.setattr(containers, "log", lambda *_: text)
    guests: Any = SimpleNamespace(patience=1, boot_state=boot_state)
    made = bring_up.NspawnBringUp
    with pytest.raises(BrokenError, match="Executable format error") as failed:
        made._wait(SimpleNamespace(), guests, None, "worker", Deadline(60))  # type: ignore[arg-type]
    assert not isinstance(failed.value, DeadlineError)


def test_a_machine_that_was_switched_on_again_is_waited_for():
    assert not containers.has_ended("systemd-nspawn ended with 1\nswitched on\n")


def test_an_exhausted_resource_is_named_before_machines_that_did_not_boot_give_it_back(monkeypatch):
    off: list[str] = []

    def never_boots(*_: object) -> None:
        raise DeadlineError("booting machine 'worker'", "not done within 90 s")

    monkeypatch.setattr(
        preflight, "room", lambda: preflight.NspawnRoom(128, 100 if off else 128, 1024)
    )
    for module, name in (
        (containers, "require_own_disks"),
        (containers, "switch_on"),
        (networks, "bridges"),
        (holder, "hierarchies"),
    ):
        monkeypatch.setattr(module, name, lambda *_: {})
    monkeypatch.setattr(containers, "leaders", lambda _: {})
    monkeypatch.setattr(containers, "switch_off", lambda *words: off.append(words[-1]))
    monkeypatch.setattr(holder, "entry", lambda _: SimpleNamespace(pid=0))
    lab: Any = SimpleNamespace(
        lab=None,
        intent=SimpleNamespace(segments=()),
        _containers=lambda: (SimpleNamespace(name="worker"),),
        _remove_outdated=lambda *_: None,
        _prepare=lambda *_: None,
        _guests=lambda: nullcontext(SimpleNamespace(patience=1)),
        _wait=never_boots,
    )
    step = Step("machines", "", partial(bring_up.NspawnBringUp._machines, lab))
    with pytest.raises(BrokenError) as failed:
        bring_up.NspawnBringUp._run(step)
    assert failed.value.happened == (
        "not done within 90 s; 128 of 128 inotify instances are in use: "
        "programs of the lab get none"
    )
    assert off == ["worker"]


def test_a_link_in_the_place_of_the_disks_is_refused(tmp_path):
    lab = LabHandle("small", tmp_path, "0" * 16)
    require_own_disks(lab)
    (tmp_path / "machines").symlink_to(tmp_path)
    with pytest.raises(BrokenError, match="is a link"):
        require_own_disks(lab)


@pytest.mark.parametrize(
    ("cluster", "asked", "at_once"),
    [
        (True, 10_000, PROBES_A_PROCESSOR * (os.cpu_count() or 1)),
        (True, 3, 3),
        (False, 10_000, 10_000),
    ],
)
def test_a_cluster_s_probes_are_shared_among_this_machine_s_processors(
    tmp_path, monkeypatch, *, cluster, asked, at_once
):
    monkeypatch.setattr("lab.machines.nspawn.preflight.is_emulated", lambda: False)
    layout = NspawnLayout(
        {}, IPv4Network("10.219.0.0/24"), ("master",), "x" if cluster else "", None
    )
    guests = ContainerGuests(LabHandle("lab", tmp_path, "token"), layout, None)
    asked_for = ProbeSettings(timeout=1.0, in_flight=asked)
    assert guests._slower(asked_for, cluster=cluster) == ProbeSettings(1.0, at_once)


def linux_intent(name: str) -> Intent:
    scenario = load(find(name))
    linux = tuple(group for group in scenario.nodes if group.os == "linux")
    return registry.intent(make_plan(scenario.replace(nodes=linux)))


@pytest.mark.parametrize(
    ("scenario", "instances"),
    [
        ("overlay", 27 + 2 * 13 + 2 * 3),
        ("upstream-vrrp", 3 * 27 + 13 + 2 * 3),
        ("kubeinit", 3 * 27 + 13 + 3 * 3),
    ],
)
def test_every_node_counts_by_what_runs_on_it(scenario, instances):
    assert need(linux_intent(scenario)).inotify == instances


def test_a_lab_with_too_few_inotify_instances_is_refused_by_their_name():
    (refusal,) = preflight.judge(preflight.NspawnNeed(73, 0), preflight.NspawnRoom(128, 91, 0))
    assert "needs about 73 inotify instances, 91 are in use" in refusal.seen


def test_labs_that_are_coming_up_count_with_what_they_will_take():
    (refusal,) = preflight.judge(preflight.NspawnNeed(39, 0), preflight.NspawnRoom(128, 61, 0, 30))
    assert "61 are in use, 30 more will be by labs that are coming up" in refusal.seen
    assert not [*preflight.judge(preflight.NspawnNeed(37, 0), preflight.NspawnRoom(128, 61, 0, 30))]


def test_a_lab_lacks_what_it_takes_less_what_it_has():
    assert preflight.pending({"a": 39, "b": 39, "c": 39}, {"a": 9, "b": 41, "": 50}) == 30 + 0 + 39


def test_a_control_plane_without_a_kubelet_counts_as_one_program_of_the_two():
    assert need(linux_intent("hard-way")).inotify == 3 * 13 + 3 * 13 + 2 * 3


def test_without_a_cluster_every_machine_is_a_plain_one():
    intent = replace(linux_intent("overlay"), kubernetes=None)
    assert need(intent).inotify == 5 * 3


def test_without_root_neither_a_bundle_nor_a_package_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # where there is no bundle
    wanted = compile_scenario("overlay", "linux", None, "kubernetes", real=True)
    with pytest.raises(PreflightError, match="system containers need root") as refused:
        NspawnProvider(Inventory()).steps(LabHandle("overlay", tmp_path, "0123"), wanted.intent)
    assert "--provider netns" in refused.value.hint
    assert [diagnosis.check for diagnosis in preflight.examine(tmp_path)] == ["root"]


def test_packages_of_the_extra_are_checked_before_a_lab_is_begun(monkeypatch, tmp_path):
    monkeypatch.setattr(preflight, "lacking_root", lambda: None)
    monkeypatch.setattr(preflight, "find_spec", lambda name: None if name == "paramiko" else name)
    (packages,) = (
        diagnosis
        for diagnosis in preflight.examine(tmp_path)
        if diagnosis.check == "Python packages"
    )
    assert (packages.level, packages.seen) == ("fail", "'paramiko' not installed")
    assert packages.hint == "pip install 'hybridlab[nspawn]'"


def test_a_warning_of_the_oom_killer_has_a_hint(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "can_lower_oom_score", lambda: False)
    diagnoses = [
        diagnosis for diagnosis in preflight.examine(tmp_path) if diagnosis.check == "OOM scores"
    ]
    assert all("CAP_SYS_RESOURCE" in diagnosis.hint for diagnosis in diagnoses)
    assert len(diagnoses) == (os.geteuid() == 0)


def test_a_night_is_bounded_by_the_labs_that_its_provider_can_have(monkeypatch):
    room = preflight.NspawnRoom(inotify_limit=1024, inotify_used=24, memory_mib=1 << 20)
    monkeypatch.setattr(preflight, "room", lambda: room)
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    jobs = jobs_of(("overlay", "services"), ())
    nspawn = choose(Providers(), "nspawn")
    whole, _ = select_jobs(jobs, nspawn, None, None)
    assert [job.unfit for job in whole] == ["", ""]
    judged, fitting = select_jobs(jobs, nspawn, "linux", None)
    assert [job.unfit for job in judged] == ["", ""]
    assert fitting == 1000 // (27 + 2 * 13 + 2 * 4)


@pytest.mark.parametrize(
    ("free_inotify", "memory_mib", "jobs"),
    [(122, 9_000, 2), (121, 9_000, 1), (0, 9_000, 1), (1_000, 899, 1), (1_000, 2_700, 3)],
)
def test_labs_at_once_of_containers_are_bounded_by_memory_and_inotify_instances(
    free_inotify, memory_mib, jobs
):
    needs = (preflight.NspawnNeed(20, 900), preflight.NspawnNeed(61, 300))
    room = preflight.NspawnRoom(128 + free_inotify, 128, memory_mib)
    assert preflight.labs_at_once(needs, room) == jobs


@pytest.mark.timeout(20)
def test_a_pipe_in_a_labs_directory_holds_nobody_up(tmp_path):
    lab = LabHandle("a", tmp_path, "11")
    for name in ("layout.json", "lock", "pins/win1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        os.mkfifo(tmp_path / name)
    assert placement.load_layout(lab) is None
    assert layout.load(lab) is None
    assert keyring.pins(lab, "win1") is None
    assert lock.holder(tmp_path) is None
