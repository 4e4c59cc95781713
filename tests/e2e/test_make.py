"""The face: what `make` does before and around `lab`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = """#!/bin/sh
# A Python that knows as much of venv and pip as tools/setup asks of it.
case "$*" in
*"-m venv"*)
    mkdir -p .venv/bin && cp "$0" .venv/bin/python
    [ -e interrupt ] && kill -9 $PPID && exit 1
    touch .venv/pip ;;
*"-m pip"*)
    [ -e .venv/pip ] || { echo "No module named pip" >&2; exit 1; }
    printf '#!/bin/sh\\nprintf "%%s|" "$@"; echo\\n' >.venv/bin/lab && chmod +x .venv/bin/lab ;;
esac
"""
"""The `lab` that it installs prints its words."""


@pytest.fixture
def clone(tmp_path):
    """A clone with a stub for Python, and so without any download."""
    copied = (
        "Makefile",
        "pyproject.toml",
        "requirements.txt",
        "requirements-libvirt.txt",
        "requirements-nspawn.txt",
        "requirements-dev.txt",
    )
    scenarios = (f"scenarios/{path.name}" for path in (ROOT / "scenarios").glob("*.yaml"))
    for name in (*copied, "tools/setup", "tools/hypervisor", "tools/daemons", *scenarios):
        target = tmp_path / "clone" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    stub = tmp_path / "python"
    stub.write_text(PYTHON)
    stub.chmod(0o755)
    return tmp_path / "clone"


def call(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=clone,
        env={**os.environ, "PYTHON": str(clone.parent / "python"), "SETUP": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_interrupted_set_up_is_done_anew_by_the_next_one(clone):
    (clone / "interrupt").touch()
    assert call(clone, "tools/setup", "run").returncode == -signal.SIGKILL
    (clone / "interrupt").unlink()
    done = call(clone, "tools/setup", "run")
    assert done.returncode == 0, done.stderr
    again = call(clone, "tools/setup", "run")
    assert (again.returncode, again.stderr) == (0, "")


@pytest.mark.parametrize("path", ["mine.yaml", "a dir/my file.yaml"])
def test_lab_of_a_scenario_file_is_called_by_its_file(clone, path):
    done = call(clone, "make", "--silent", "lab-up", f"SCENARIO={path}")
    assert done.stdout == f"up|--|{path}|\ntest|--|{path}|\n", done.stderr
    done = call(clone, "make", "--silent", "lab-down", f"SCENARIO={path}", "NAME=other")
    assert done.stdout == "down|--|other|\n"


HOSTILE = (
    "x'; touch struck; '",
    'x"; touch struck; "',
    "$(touch struck)",
    "$(shell touch struck)",
    "${shell touch struck}",
    "$$(touch struck)",
    "`touch struck`",
    "x; touch struck",
    "x & touch struck",
    "x\ntouch struck",
    "x\n\ttouch struck",
    "x # $(warning struck)",
    "two words",
    "*",
    "\\",
    "--help",
)
TARGETS = {
    "SCENARIO": ("lab-up", "up|--|{0}|\ntest|--|{0}|\n"),
    "NAME": ("lab-up", "up|--name|{0}|--|overlay|\ntest|--|{0}|\n"),
    "PROVIDER": ("lab-up", "up|--provider|{0}|--|overlay|\ntest|--|overlay|\n"),
    "ONLY": ("lab-up", "up|--only|{0}|--|overlay|\ntest|--|overlay|\n"),
    "PODS": ("lab-up", "up|--pods|{0}|--|overlay|\ntest|--|overlay|\n"),
    "TEST": ("lab-up", "up|--|overlay|\ntest|--|overlay|\n"),
    "SETUP": ("lab-test", "test|--|overlay|\n"),
    "OUTPUT": ("nightly", "nightly|--output|{0}|--|\n"),
    "SCENARIOS": ("nightly", "nightly|--|{1}|\n"),
    "FAULTS": ("explain-drill", ""),
    "CELL": ("lab-test", "test|--|overlay|\n"),
    "LAB": ("lab-test", "test|--|overlay|\n"),
    "LABEL": ("lab-test", "test|--|overlay|\n"),
    "OTHERS": ("lab-test", "test|--|overlay|\n"),
    "VARIABLES": ("lab-test", "test|--|overlay|\n"),
    "PYTHONDONTWRITEBYTECODE": ("lab-test", "test|--|overlay|\n"),
    "MAKEFILE_LIST": ("lab-test", "test|--|overlay|\n"),
    "QUICK": ("test", ""),
    "variable": ("lab-test", "test|--|overlay|\n"),
    "SEED": ("explain-drill", ""),
    "ROUNDS": ("explain-drill", ""),
    "RANDOM": ("explain-drill", ""),
}
"""Variables of the Makefile and one that it does not know, a target, and what `lab` gets: the
value, or its words."""


@pytest.mark.parametrize(
    "share", [pytest.param(4, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("written", ["on the command line", "in the environment"])
@pytest.mark.parametrize("variable", TARGETS)
def test_a_value_is_passed_on_as_it_is_and_never_run(clone, variable, written, share):
    """Of the values each variable is given another quarter; those of every quarter expand."""
    assert call(clone, "tools/setup", "develop").returncode == 0
    target, expected = TARGETS[variable]
    turn = [*TARGETS].index(variable) + written.startswith("in")
    for value in HOSTILE[turn % share :: share]:
        before = (f"{variable}={value}",) if written == "in the environment" else ()
        after = () if before else (f"{variable}={value}",)
        done = call(clone, "env", *before, "make", "--silent", target, *after)
        assert done.stdout == expected.format(value, "|".join(value.split())), done.stderr
        assert "struck" not in done.stderr.replace(value, "")
        assert not list(clone.rglob("struck"))
        helped = call(clone, "env", *before, "make", "help", *after)
        assert helped.returncode == 0
        assert not list(clone.rglob("struck"))


def test_make_alone_lists_the_ten_targets_that_people_use(clone):
    listed = call(clone, "make", "--silent").stdout.partition("\n\n")[0].splitlines()
    assert len(listed) == 10
    every = call(clone, "make", "--silent", "help-all").stdout.splitlines()
    assert set(listed) < set(every)
    assert len(every) > 30


def test_scenarios_of_a_drill_are_no_options(clone):
    assert call(clone, "tools/setup", "develop").returncode == 0
    (clone / ".venv/bin/python").write_text('#!/bin/sh\nshift\nprintf "%s|" "$@"\n')
    done = call(clone, "make", "--silent", "explain-drill", "SCENARIOS=--help x", "SEED=-1")
    assert done.stdout == "--seed|-1|--|--help|x|", done.stderr


def test_shipped_scenario_and_a_name_of_ones_own(clone):
    assert call(clone, "make", "--silent", "lab-up").stdout == "up|--|overlay|\ntest|--|overlay|\n"
    done = call(clone, "make", "--silent", "lab-up", "NAME=x", "TEST=0", "ONLY=linux")
    assert done.stdout == "up|--name|x|--only|linux|--|overlay|\n"


@pytest.mark.parametrize("variable", ["scenario", "name", "provider"])
def test_a_variable_in_lower_case_is_refused(clone, variable):
    done = call(clone, "make", "--silent", "lab-up", f"{variable}=$(shell touch struck)")
    assert (done.returncode, done.stdout) == (2, "")
    assert "variables are in capitals: SCENARIO=overlay" in done.stderr
    assert not list(clone.rglob("struck"))


def test_night_of_all_scenarios_or_of_some(clone):
    assert call(clone, "make", "--silent", "nightly").stdout == "nightly|--|\n"
    some = ("SCENARIOS=a b.yaml", "PROVIDER=netns", "OUTPUT=a dir", "ONLY=linux")
    done = call(clone, "make", "--silent", "nightly", *some)
    assert done.stdout == ("nightly|--provider|netns|--only|linux|--output|a dir|--|a|b.yaml|\n"), (
        done.stderr
    )


WITHOUT_DAEMONS = 'mount -t tmpfs none /usr/sbin && exec "$@"'
"""Most daemons are in /usr/sbin; an empty one is a machine that has none of them."""


@pytest.mark.parametrize(
    ("words", "needed", "spared"),
    [
        ("nightly", "bird2 keepalived openvswitch-switch haproxy dnsmasq-base", ""),
        ("nightly SCENARIOS=overlay,calico-bgp", "bird2", "keepalived haproxy"),
        ("nightly-setup SCENARIOS=k8s-libvirt-1-2-2", "haproxy", "bird2"),
        ("lab-up SCENARIO=upstream-vrrp", "bird2 keepalived", "haproxy"),
        ("nightly SCENARIO=upstream-vrrp SCENARIOS=kubeinit", "haproxy", "bird2"),
    ],
)
def test_daemons_of_the_scenarios_are_asked_for(clone, words, needed, spared):
    names = [word.replace(",", " ") for word in words.split()]
    inside = ("unshare", "--map-root-user", "--mount", "sh", "-c", WITHOUT_DAEMONS, "sh")
    done = call(clone, *inside, "make", "--silent", *names, "PROVIDER=netns")
    assert "system packages are missing" in done.stderr, done.stderr
    listed = set(done.stderr.split())
    assert set(needed.split()) <= listed
    assert not listed & set(spared.split())


@pytest.mark.parametrize("target", ["nightly", "nightly-setup", "lab-up"])
@pytest.mark.parametrize(
    ("inventory", "words", "on_machines"),
    [
        ('[hypervisors.a]\nuri = "qemu+ssh://h/system"\n', (), True),
        ('[hypervisors.a]\nuri = "qemu+ssh://h/system"\n', ("PROVIDER=netns",), False),
        ('# uri = "qemu+ssh://h/system"\n', (), False),
        ("", ("PROVIDER=netns",), False),
    ],
)
def test_what_real_machines_need_is_installed_where_labs_come_up_on_them(
    clone, target, inventory, words, on_machines
):
    (clone / "lab.toml").write_text(inventory)
    own = ("env", "--unset=HYBRIDLAB_INVENTORY", "--unset=XDG_CONFIG_HOME", f"HOME={clone}")
    named = ("SCENARIO=overlay", "SCENARIOS=overlay")
    done = call(clone, *own, "make", "--silent", target, *named, *words)
    asked = "requirements-libvirt.txt" in done.stderr or "libvirt-dev" in done.stderr
    assert asked == on_machines, done.stderr
