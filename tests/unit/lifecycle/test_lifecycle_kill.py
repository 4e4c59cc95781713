"""Real processes: SIGKILL at every point with side effects, and several commands at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from contextlib import suppress
from pathlib import Path

import pytest
import small_lab
from mortal import FileWorld, Fuse, MortalStore, mortal_provider

from lab.lifecycle.down import down
from lab.lifecycle.up import up

HERE = Path(__file__)
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{HERE.parent}:{HERE.parents[3]}",
    "PYTHONWARNINGS": "error",
}

COMMANDS = {
    "up": lambda provider, store: up(small_lab.request(), provider, store, str),
    "changed": lambda provider, store: up(
        small_lab.request(intent=small_lab.intent(without=1)), provider, store, str
    ),
    "down": lambda provider, store: down("overlay", {"fake": provider}, store, str, wait=0),
}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Place:
    """A state directory and the labs that exist, which outlive a killed process."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.state, self.world = directory / "state", FileWorld(directory / "world")

    def run(self, command: str, death: int | None = None) -> None:
        fuse = Fuse(die)
        fuse.left = death
        with MortalStore(self.state, fuse) as store:
            COMMANDS[command](mortal_provider(fuse, self.world), store)

    def lives(self, command: str, death: int) -> bool:
        """Run the command in a process of its own; False if it was killed at that point."""
        with warnings.catch_warnings(action="ignore"):  # the child needs no other thread
            child = os.fork()
        if not child:
            with suppress(BaseException):
                self.run(command, death)
                os._exit(0)
            os._exit(7)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in {0, -signal.SIGKILL}
        return code == 0

    def check(self, command: str) -> None:
        labs = self.state / "labs"
        if command == "down":
            assert not list(self.world)
            assert not labs.exists() or not list(labs.iterdir())
            return
        assert len(self.world) == 1
        with MortalStore(self.state, Fuse(str)) as store:
            found = store.lab("overlay")
            assert found is not None
            assert found.status == "up"
            assert {step.state for step in store.steps("overlay")} == {"done"}
            assert {row.state for row in store.resources("overlay")} == {"made"}


@pytest.mark.parametrize(
    ("first", "least", "then"),
    [("up", 18, "up"), ("up", 18, "down"), ("changed", 6, "up"), ("down", 6, "changed")],
)
def test_killed_at_any_point_the_next_command_works(tmp_path, first, least, then):
    for death in range(1000):
        place = Place(tmp_path / f"{death}")
        if first != "up":
            place.run("up")
        if place.lives(first, death):
            break
        place.run(then)
        place.check(then)
    assert death >= least


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
