"""Inotify instances that others take while a lab comes up: what fails says so, and nothing is left.

The limit is the user's, for the whole machine: a child takes them, and never beyond its bound.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from container_labs import CLUSTER_UP, UP, ContainerLabs, need_bundle

from lab.machines.nspawn import preflight

MOST_LIMIT = 256
"""Of a larger limit the child does not take all."""
SPARE = 8
"""Instances of the limit that the child never takes."""
HOLD = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for _ in range(int(sys.argv[1])):
    if libc.inotify_init1(os.O_CLOEXEC) < 0:
        sys.exit("the limit is reached")
print("taken", flush=True)
sys.stdin.read()
"""


@contextmanager
def taken() -> Iterator[None]:
    """All instances but the spare ones are in use meanwhile."""
    room = preflight.room()
    count = room.inotify_limit - SPARE - room.inotify_used
    words = (sys.executable, "-c", HOLD, str(max(0, count)))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "taken\n"
            yield
        finally:
            child.kill()


@pytest.fixture(autouse=True)
def small_limit():
    limit = preflight.room().inotify_limit
    if limit > MOST_LIMIT:
        pytest.skip(f"a user may have {limit} inotify instances here")


def test_a_lab_that_does_not_fit_is_refused_and_nothing_is_made(labs):
    with taken():
        stderr = labs.up(code=4).stderr
    assert "the lab needs about 12 inotify instances, " in stderr
    assert "sudo sysctl -w fs.inotify.max_user_instances=" in stderr
    assert labs.left() == set()


def up_while_taken(labs: ContainerLabs, words: tuple[str, ...], line: str) -> str:
    """What is said by a ``lab up`` that fails as nobody gets an instance after that line."""
    with labs.started(*words) as process:
        assert process.stderr is not None
        story = ""
        for said in process.stderr:
            story += said
            if said.startswith(line):
                break
        with taken():
            story += process.stderr.read()
            code = process.wait(timeout=60)
    assert code == 3, story
    return story


def test_machines_without_inotify_instances_at_boot_report_it(labs):
    said = up_while_taken(labs, UP, "  step 3 of 5: machines")
    assert "inotify instances are in use" in said
    assert "sudo sysctl -w fs.inotify.max_user_instances=" in said
    labs.up()
    labs.green("small", "-k", "pod-pod")
    labs.run("down", "small")
    assert labs.left() == set()


@pytest.mark.drill
@pytest.mark.parametrize("step", ["6 of 12: control-plane", "7 of 12: workers"])
def test_a_cluster_without_inotify_instances_during_bring_up_reports_it(labs, step):
    need_bundle()
    said = up_while_taken(labs, CLUSTER_UP, f"  step {step}")
    assert "inotify" in said
    assert "sudo sysctl -w fs.inotify.max_user_instances=" in said
    labs.run("down", "cluster")
    assert labs.left() == set()
