"""Control groups, rights and devices of a system container, and which groups go with a lab."""

import os
import signal
import subprocess
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from processes import run_program

from lab.inventory.inventory import Inventory
from lab.machines.nspawn import cgroups, container, guests
from lab.machines.nspawn.cgroups import Hierarchies
from lab.machines.nspawn.container import Container
from lab.machines.nspawn.layout import NspawnLayout
from lab.machines.nspawn.provider import NspawnProvider
from lab.providers.provider import LabHandle
from lab.topology.intent import Hardware, Kubelet, MachineIntent

TOKEN = "0123"
LIMITS = Hardware("debian-12", vcpus=1, memory_mib=512, disk_gib=8)


class Written:
    """Stands for the kernel: files that groups have, and what was written, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
        self.files = files
        self.lines: list[tuple[str, str]] = []
        real = Path.mkdir

        def mkdir(path: Path, *words: object, **named: object) -> None:
            present = path.exists()
            real(path, *words, **named)
            if not present:
                for name, text in self.files.items():
                    (path / name).write_text(text)

        monkeypatch.setattr(Path, "mkdir", mkdir)
        monkeypatch.setattr(cgroups, "_write", self.write)

    def write(self, path: Path, text: str) -> None:
        self.lines.append((f"{path.parent.name}/{path.name}", text))


def parent(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_devices_are_limited_above_what_a_machine_can_reach(tmp_path, monkeypatch):
    files = {"devices.list": "a *:* rwm\n"}
    written = Written(monkeypatch, files)
    made = cgroups.make(Hierarchies(False, (parent(tmp_path, files),)), TOKEN, "worker", LIMITS)
    group = f"hybridlab-{TOKEN}"
    assert written.lines[0] == (f"{group}/devices.deny", "a")
    allowed = [text for name, text in written.lines if name == f"{group}/devices.allow"]
    assert allowed == list(cgroups.DEVICES)
    assert made == (tmp_path / group / "worker",)


def test_devices_are_limited_once_a_lab(tmp_path, monkeypatch):
    files = {"devices.list": "c 1:3 rwm\n"}
    written = Written(monkeypatch, files)
    cgroups.make(Hierarchies(False, (parent(tmp_path, files),)), TOKEN, "worker", LIMITS)
    assert written.lines == []


def test_limits_are_above_the_root_that_a_machine_sees(tmp_path, monkeypatch):
    files = {"cgroup.controllers": "cpu memory\n", "memory.max": "max", "cpu.max": "max"}
    written = Written(monkeypatch, files)
    (own,) = cgroups.make(Hierarchies(True, (parent(tmp_path, files),)), TOKEN, "worker", LIMITS)
    limited = {name: text for name, text in written.lines if name.endswith(".max")}
    assert limited == {"worker/memory.max": str(512 << 20), "worker/cpu.max": "100000 100000"}
    handed = [name for name, _ in written.lines if name.endswith("subtree_control")]
    assert [name.split("/")[0] for name in handed] == [
        tmp_path.name,
        f"hybridlab-{TOKEN}",
        "worker",
    ]
    assert {path.name for path in own.iterdir() if path.is_dir()} == {"inside", "outside"}


def test_a_machine_ends_with_all_that_is_in_its_groups_frozen_or_not(tmp_path):
    machine = tmp_path / f"hybridlab-{TOKEN}" / "worker"
    (machine / "inside/kubepods").mkdir(parents=True)
    (machine / "freezer.state").write_text("FROZEN")
    hierarchies, members = Hierarchies(False, (tmp_path,)), machine / "inside/kubepods/cgroup.procs"
    with subprocess.Popen(("sleep", "600")) as process:
        members.write_text(f"{process.pid}\n")
        assert not cgroups.end(hierarchies, TOKEN, "worker")
        assert process.wait(60) == -signal.SIGKILL
    assert (machine / "freezer.state").read_text() == "THAWED"
    members.write_text("")
    assert cgroups.end(hierarchies, TOKEN, "worker")


def test_a_command_joins_the_machine_s_groups_before_it_enters(tmp_path):
    groups = [tmp_path / "memory", tmp_path / "pids"]
    for group in groups:
        (group / "outside").mkdir(parents=True)
    words = guests.enter(1, groups)
    ours = words[: words.index("--") + 1]
    done = run_program((*ours, "echo", "$0", "a b"))
    assert done.stdout == "$0 a b\n"
    for group in groups:
        assert (group / "outside" / "cgroup.procs").read_text().strip().isdigit()


def test_a_command_has_no_right_that_the_machine_has_not():
    words = guests.enter(1, ())
    (lost,) = (word for word in words if word.startswith("--bounding-set="))
    dropped = {f"CAP_{word[1:].upper()}" for word in lost.partition("=")[2].split(",")}
    assert dropped == set(container.DROPPED)
    assert words.index("setpriv") > words.index("nsenter")


def test_a_machine_starts_again_in_a_group_that_has_nothing_of_its_life_before():
    layout = NspawnLayout({}, IPv4Network("10.219.0.0/24"), ("worker",))
    machine = MachineIntent("worker", "node", "linux", (), ())
    container = Container(LabHandle("x", Path("/l"), TOKEN), machine, layout, 0)
    text = container.script((Path("/sys/fs/cgroup/a b/worker"),), {})
    again = text[text.index("while :") :]
    assert "for group in '/sys/fs/cgroup/a b/worker'" in again
    assert again.index("rmdir") < again.index("mkdir") < again.index("inside/cgroup.procs")
    run_program(("sh", "-n"), input=text)


def test_files_of_a_prepared_bundle_lie_over_the_layer_of_its_systems_nodes_alone(tmp_path):
    layout = NspawnLayout(
        {"w": Path("/roots/w")},
        IPv4Network("10.219.0.0/24"),
        ("win",),
        prepared=tmp_path / "linux",
        layers={"w": Path("/layer")},
        prepared_for={"windows": tmp_path},
    )
    lab = LabHandle("x", Path("/l"), TOKEN)
    other = MachineIntent("win", "node", "windows", (), (), hardware=replace(LIMITS, image="w"))
    node = replace(other, kubelet=Kubelet("worker", "1.36", None))
    assert Container(lab, node, layout, 0).lower == "/layer:/roots/w"
    (tmp_path / "root").mkdir()
    assert Container(lab, node, layout, 0).lower == f"{tmp_path}/root:/layer:/roots/w"
    assert Container(lab, other, layout, 0).lower == "/layer:/roots/w"


@pytest.mark.parametrize(("cpus", "told"), [(1, "0\n"), (3, "0-2\n")])
def test_a_machine_sees_its_number_of_processors(cpus, told):
    files = container.first_process(512, cpus)
    (online,) = (text for path, text in files.items() if path.endswith("/online"))
    assert online == told


@pytest.mark.parametrize(
    ("name", "weights"),
    [("cpu.shares", ("2048", "4096", "6144")), ("cpu.weight", ("200", "400", "600"))],
)
def test_a_lab_weighs_as_much_as_a_process_for_each_of_its_processors(
    tmp_path, monkeypatch, name, weights
):
    written = Written(monkeypatch, {"cgroup.controllers": "cpu", name: "1024"})
    monkeypatch.setattr(
        cgroups, "_write", lambda path, text: (written.write(path, text), path.write_text(text))
    )
    unified = name == "cpu.weight"
    hierarchies = Hierarchies(unified, (parent(tmp_path, {"cgroup.controllers": "cpu"}),))
    for machine, vcpus in (("master", 2), ("worker", 4), ("master", 2)):  # switched on again
        cgroups.make(hierarchies, TOKEN, machine, replace(LIMITS, vcpus=vcpus))
    lines = dict(written.lines)
    groups = ("master", "worker", f"hybridlab-{TOKEN}")
    assert tuple(lines[f"{group}/{name}"] for group in groups) == weights


# SECURITY.md: A mark is a claim.
def test_a_token_that_another_user_has_written_takes_no_control_group_away(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    outside = tmp_path / "pids" / "hybridlab-abc" / "master" / "outside"
    outside.mkdir(parents=True)
    (tmp_path / "pids" / "cgroup.procs").touch()
    lab = LabHandle("small", tmp_path / "state" / "labs" / "small", "abc")
    provider = NspawnProvider(Inventory())
    assert provider.destroy(lab, owner="somebody") == ()
    assert outside.is_dir()
    assert provider.destroy(lab) == ()
    assert not outside.exists()


# SECURITY.md: A mark is a claim.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a group away")
def test_a_group_of_another_user_is_no_labs_whatever_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").touch()
    theirs = tmp_path / "user.slice" / "hybridlab-abc"
    (theirs / "busy").mkdir(parents=True)
    (theirs.parent / "holder").mkdir()
    os.chown(theirs, 65534, 65534)
    assert cgroups.tokens() == set()
    assert cgroups.remove("abc")
    assert (theirs / "busy").is_dir()
    assert (theirs.parent / "holder").is_dir()


def test_on_version_1_no_group_beside_the_labs_is_taken_away(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    for group in ("hybridlab-abc", "holder"):
        (tmp_path / "pids" / group).mkdir(parents=True)
    (tmp_path / "pids" / "cgroup.procs").touch()
    assert cgroups.remove("abc")
    assert [path.name for path in (tmp_path / "pids").iterdir() if path.is_dir()] == ["holder"]


@pytest.mark.parametrize("scope", ["system.slice/hybridlab-small-abc.scope", "session", ""])
def test_the_groups_of_a_lab_whose_holder_has_gone_are_found_on_version_2(
    scope, tmp_path, monkeypatch
):
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").touch()
    place = tmp_path / scope
    for group in ("hybridlab-abc/master/inside/hybridlab-fff", "holder"):
        (place / group).mkdir(parents=True)
    other = tmp_path / "user.slice" / "hybridlab-def" / "worker"
    other.mkdir(parents=True)
    assert cgroups.tokens() == {"abc", "def"}
    lab = LabHandle("small", tmp_path / "state" / "labs" / "small", "abc")
    assert NspawnProvider(Inventory()).destroy(lab) == ()
    assert not (place / "hybridlab-abc").exists()
    assert not (place / "holder").exists()
    assert other.is_dir()
    assert cgroups.tokens() == {"def"}
