"""What may stand for a lab's name, and what the shell offers for each word."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from lab_command import Lab

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def mine(lab, tmp_path):
    """A scenario file whose lab is called otherwise than it."""
    path = tmp_path / "a dir" / "mine.yaml"
    path.parent.mkdir()
    text = (ROOT / "scenarios/overlay.yaml").read_text(encoding="utf-8")
    path.write_text(text.replace("name: overlay", "name: of-mine"), encoding="utf-8")
    lab.run("up", str(path), "--only", "linux")
    return path


def offered(lab: Lab, *words: str) -> list[str]:
    """What bash is offered for the last word."""
    environment = {"COMP_WORDS": " ".join(("lab", *words)), "COMP_CWORD": str(len(words))}
    run = "import sys; sys.argv[0] = 'lab'; from lab.cli.main import main; main()"
    done = lab.call([sys.executable, "-c", run], _LAB_COMPLETE="bash_complete", **environment)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_a_scenario_file_stands_for_the_lab_that_was_made_from_it(lab, mine):
    assert "lab 'of-mine' is up" in lab.run("status", str(mine)).stdout
    cell = "pod-pod/master-p1/worker1-p1/tcp-small"
    assert "1 pass" in lab.run("test", str(mine), "-k", cell).stdout
    assert lab.run("exec", str(mine), "worker1", "echo", "there").stdout == "there\n"
    assert "--node master" in lab.run("fault", "--list", str(mine)).stdout

    lab.run("up", str(mine), "--name", "another", "--only", "linux")
    assert "lab 'of-mine' is up" in lab.run("status", str(mine)).stdout, "its own name is meant"
    lab.run("down", "of-mine")
    assert "lab 'another' is up" in lab.run("status", str(mine)).stdout
    lab.run("up", str(mine), "--name", "third", "--only", "linux")
    told = lab.run("down", str(mine), code=2).stderr
    assert "several labs were made from it: another, third" in told
    lab.run("down", "third")

    mine.write_text("broken: [", encoding="utf-8")
    lab.run("down", str(mine))
    shutil.copy(ROOT / "scenarios/overlay.yaml", mine)
    assert "there is no lab named 'overlay'" in lab.run("test", str(mine), code=2).stderr


def test_the_shell_offers_what_the_lab_has(lab, mine):
    assert offered(lab, "shell", str(mine).replace(" ", "\\ "), "router") == ["router"]
    assert offered(lab, "shell", "of") == ["of-mine"]
    assert offered(lab, "shell", "of-mine", "worker1") == ["worker1", "worker1-p1", "worker1-p2"]
    assert offered(lab, "exec", "of-mine", "cl") == ["client"]
    assert offered(lab, "ssh", "of-mine", "worker1") == ["worker1"]
    assert "worker2-p2" in offered(lab, "explain", "of-mine", "w")
    assert "worker1:to-worker2-p1" in offered(lab, "explain", "of-mine", "client", "worker1:")
    cells = [
        f"pod-pod/master-p1/worker1-p1/{end}"
        for end in ("tcp-small", "tcp-large", "udp-small", "udp-large")
    ]
    assert sorted(offered(lab, "capture", "of-mine", "pod-pod/master-p1/worker1-p1")) == sorted(
        cells
    )
    assert sorted(offered(lab, "test", "of-mine", "-k", cells[0][:-9])) == sorted(cells)
    assert offered(lab, "fault", "of-mine", "wrong-v") == ["wrong-vni"]
    assert offered(lab, "fault", "of-mine", "route-missing", "--node", "w") == [
        "worker1",
        "worker2",
    ]
    peers = ("fault", "of-mine", "route-missing", "--node", "worker1", "--peer")
    assert offered(lab, *peers, "w") == ["worker2"]
    assert offered(lab, "test", "of-mine", "-m", "hair") == ["hairpin"]
    assert offered(lab, "run", "overlay", "-m", "win") == ["windows"]
    assert offered(lab, "test", "of-mine", "-m", "dns\\ and\\ lar") == ["dns and large"]
    assert offered(lab, "heal", "of-mine", "") == []
    lab.run("fault", "of-mine", "wrong-vni", "--node", "worker1")
    assert offered(lab, "heal", "of-mine", "") == ["wrong-vni"]
    lab.run("heal", "of-mine")
    lab.run("test", "of-mine", "-k", cells[0])
    assert [Path(lab.run("report", "of-mine").stdout).parent.name] == offered(
        lab, "report", "of-mine", ""
    )
    assert offered(lab, "repro", "of") == ["of-mine"]
    assert offered(lab, "up", "overlay", "--provider", "n")[0] == "netns"
    assert offered(lab, "plan", "overlay", "--provider", "lib") == ["libvirt"]
    assert offered(lab, "up", "overlay", "--provider", "fa") == []


def test_what_no_lab_can_be_called_is_not_offered(lab):
    for name in (b"one", b"\xff", b"two\nplain,three", b"\x1b[31mred", b"$(touch struck)", b"a b"):
        os.makedirs(os.path.join(os.fsencode(lab.state), b"labs", name))  # noqa: PTH103, PTH118
    assert offered(lab, "down", "") == ["one"]
    assert offered(lab, "shell", "nobody", "") == []
    assert offered(lab, "fault", "nobody", "x", "--node", "") == []


def test_a_shell_on_namespaces_names_the_owner_of_the_files(lab):
    lab.run("up", "overlay", "--only", "linux")
    told = lab.run("shell", "overlay", "worker1").stderr
    assert "note: this shell is in the network of 'worker1'; the files are this machine's" in told


def test_the_first_words_of_a_bring_up_are_plain(lab):
    told = lab.run("up", "overlay", "--only", "linux").stderr.splitlines()
    at = told.index("starting lab 'overlay'")
    assert told[at + 1] == "  step 1 of 5: holder"


def test_what_is_emulated_is_said_once_by_up_test_and_report(lab):
    for words in (("up", "overlay"), ("test", "overlay", "-m", "hairpin"), ("report", "overlay")):
        done = lab.run(*words)
        lines = f"{done.stdout}{done.stderr}".splitlines()
        said = [line for line in lines if "emulated" in line and str(lab.state) not in line]
        assert len(said) == 1, words
        assert all(name in said[0] for name in ("netns", "win1", "win2"))
