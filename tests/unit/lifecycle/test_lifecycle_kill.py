"""The same with real processes: SIGKILL at every point, and two commands at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__)
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{HERE.parent}:{HERE.parents[3]}",
    "PYTHONWARNINGS": "error",
}

DIE_EVERYWHERE = """
import os, shutil, signal, sys
from pathlib import Path
import small_lab
from mortal import FileWorld, Fuse, MortalStore, mortal_provider
from lab.lifecycle.down import DownRequest, down
from lab.lifecycle.up import up

place, first, then = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
COMMANDS = {
    "up": lambda p, s: up(small_lab.request(), p, s, str),
    "changed": lambda p, s: up(
        small_lab.request(intent=small_lab.intent(without=1)), p, s, str
    ),
    "down": lambda p, s: down(DownRequest("overlay", "lab down", wait=0), {"fake": p}, s, str),
}

def do(command, death=None):
    fuse = Fuse(lambda: os.kill(os.getpid(), signal.SIGKILL))
    fuse.left = death
    with MortalStore(place / "state", fuse) as store:
        COMMANDS[command](mortal_provider(fuse, FileWorld(place / "world")), store)
    return fuse.points

def check(command):
    world = FileWorld(place / "world")
    labs = place / "state" / "labs"
    if command == "down":
        assert not world, dict(world)
        assert not labs.exists() or not list(labs.iterdir()), list(labs.rglob("*"))
    else:
        assert len(world) == 1, dict(world)
        with MortalStore(place / "state", Fuse(lambda: None)) as store:
            assert store.lab("overlay").status == "up"
            assert {step.state for step in store.steps("overlay")} == {"done"}
            assert {row.state for row in store.resources("overlay")} == {"made"}

def begin_anew():
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    if first != "up":
        do("up")

begin_anew()
points = do(first)
for death in range(points):
    begin_anew()
    child = os.fork()
    if child == 0:
        do(first, death)
        os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), (death, status)
    try:
        do(then)
        check(then)
    except Exception as error:
        raise RuntimeError(f"killed at point {death} of {points}") from error
print(points)
"""


@pytest.mark.parametrize(
    ("first", "least", "then"),
    [("up", 18, "up"), ("up", 18, "down"), ("changed", 6, "up"), ("down", 6, "changed")],
)
def test_killed_at_any_point_the_next_command_works(tmp_path, first, least, then):
    ended = subprocess.run(
        [sys.executable, "-c", DIE_EVERYWHERE, str(tmp_path / "place"), first, then],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.stderr == ""
    assert int(ended.stdout) >= least


UP_AT_ONCE = """
import sys
from pathlib import Path
import small_lab
from mortal import FileWorld, Fuse
from lab.lifecycle.up import up
from lab.providers.fake.provider import FakeProvider
from lab.state.store import Store

place = Path(sys.argv[1])
made = []
class CountingWorld(FileWorld):
    def __setitem__(self, token, lab):
        if token not in self:
            made.append(token)
        super().__setitem__(token, lab)

provider = FakeProvider(world=CountingWorld(place / "world"))
print("ready", flush=True)
sys.stdin.readline()
with Store(place / "state") as store:
    result = up(small_lab.request(), provider, store, lambda _: None)
print(result.changed, len(made))
"""


def test_of_two_commands_that_bring_up_one_lab_at_once_one_makes_it(tmp_path):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", UP_AT_ONCE, str(tmp_path)],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60)[0].strip() for process in started]
    assert [process.returncode for process in started] == [0] * 4
    assert sorted(said) == ["False 0"] * 3 + ["True 1"]
    assert len(list((tmp_path / "world").iterdir())) == 1
