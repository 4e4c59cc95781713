"""What root in a node cannot do to the host, and that a node has what its plan says and no more.

Root that mounts a /proc of its own is not held by any of this: docs/how-to/system-containers.md.
"""

import errno
import json
import os
import signal
import time
from pathlib import Path

import pytest
from processes import run_program

ATTEMPTS = Path(__file__).with_name("programs") / "attempts.py"
BY_SSH, BY_EXEC = "ssh", "exec"


@pytest.fixture(scope="module")
def lab(labs):
    labs.up()
    yield labs
    labs.run("down", "small")


@pytest.fixture(scope="module", params=[BY_SSH, BY_EXEC])
def attempted(lab, request):
    """What a program of root's in the worker could do, however root came there."""
    text = json.dumps({"host_file": str(ATTEMPTS), "disks": opened_here()})
    words = ("python3", "-", text)
    done = run_program(
        lab.command(request.param, "small", "worker", "--", *words),
        env=lab.environment(),
        input=ATTEMPTS.read_text(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def opened_here() -> list[str]:
    """Block devices that the host's root may open, as ``major:minor``."""
    found = []
    for path in sorted(Path("/sys/dev/block").iterdir()):
        device = Path("/dev") / path.resolve().name
        try:
            os.close(os.open(device, os.O_RDONLY | os.O_NONBLOCK))
        except OSError:
            continue
        found.append(path.name)
    return found


# SECURITY.md: A system container protects the host from accidents, not from a malicious root.
@pytest.mark.parametrize(
    ("attempt", "came_of_it"),
    [
        ("settings", []),
        ("opened for writing", []),
        ("clock", errno.EPERM),
        ("files of the kernel", {}),
        ("needed", {}),  # what Kubernetes needs of devices is there
        ("host file", errno.ENOENT),
        ("handle", errno.EPERM),
        ("kernel log", {"read": 0, "write": errno.EPERM}),
        ("memory", 512 << 10),
        ("processors", 1),
        ("sees a test", False),
    ],
)
def test_what_root_in_a_node_tries_ends_as_it_should(attempted, attempt, came_of_it):
    assert attempted[attempt] == came_of_it


def test_no_module_can_be_loaded(attempted):
    assert attempted["module"] in {errno.EPERM, errno.ENOSYS}


def test_no_process_of_the_host_is_there_to_be_killed(attempted):
    assert attempted["processes"] < 60


def test_no_disk_can_be_opened(attempted):
    if not attempted["disks"]:
        pytest.skip("this machine has no block device that root may open")
    assert set(attempted["disks"].values()) == {errno.EPERM}


def test_memory_and_kvm_cannot_be_opened(attempted):
    assert set(attempted["devices"].values()) == {errno.EPERM}


def test_the_list_of_devices_cannot_be_made_longer(attempted):
    assert attempted["devices allowed"] != 0


def test_more_memory_than_planned_cannot_be_used(lab):
    take = "import os; taken = bytearray(os.urandom(1)) * (600 << 20)"
    lab.run("exec", "small", "worker", "--", "python3", "-c", take, code=128 + signal.SIGKILL)


def test_more_processors_than_planned_cannot_be_used(lab):
    """Two that compute for a second get one processor's time between them."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("this machine has one processor")
    spin = "import time; end = time.monotonic() + 1\nwhile time.monotonic() < end: pass"
    both = f"for i in 1 2; do python3 -c '{spin}' & done; wait; times | tail -1"
    began = time.monotonic()
    stdout = lab.run("exec", "small", "worker", "--", "sh", "-c", both).stdout
    user = sum(seconds(word) for word in stdout.split())
    assert user < 1.5 * (time.monotonic() - began)


def seconds(told: str) -> float:
    """``0m1.250000s``, as ``times`` of a shell has it."""
    minutes, _, rest = told.partition("m")
    return 60 * int(minutes) + float(rest.rstrip("s"))
