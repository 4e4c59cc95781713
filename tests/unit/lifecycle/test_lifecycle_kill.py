"""Kills at every point with side effects, several commands at once, and every order of commands."""

import os
import signal
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import small_lab
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from mortal import FileWorld, Fuse, Killed, MortalStore, mortal_provider

from lab._errors import UsageError
from lab.lifecycle.down import down
from lab.lifecycle.gc import GcRequest, gc
from lab.lifecycle.up import up
from lab.providers.fake.provider import FakeLab

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
            row = store.lab("overlay")
            assert row is not None
            assert row.status == "up"
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


NAMES = st.sampled_from(["one", "two"])
CHANGES = st.sampled_from([0, 1])
DEATHS = st.one_of(st.none(), st.integers(0, 30))


def unheard(_: str) -> None:
    """What is said is for other tests."""


def raise_killed() -> None:
    raise Killed


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.state = Path(self.place.name) / "state"
        self.fuse = Fuse(raise_killed)
        self.world: dict[str, FakeLab] = {}
        self.provider = mortal_provider(self.fuse, self.world)
        self.store = MortalStore(self.state, self.fuse)
        self.forgotten: set[str] = set()

    def teardown(self) -> None:
        self.store.close()
        self.place.cleanup()

    def lives(self, death: int | None, action: Callable[[], object]) -> bool:
        """Do the action; False if it was killed on the way."""
        self.fuse.left = death
        try:
            action()
        except Killed:
            self.store.close()
            self.store = MortalStore(self.state, self.fuse)
            return False
        finally:
            self.fuse.left = None
        return True

    def holders(self, name: str) -> list[FakeLab]:
        return [lab for lab in self.world.values() if lab.name == name]

    @rule(name=NAMES, change=CHANGES, death=DEATHS)
    def bring_up(self, name: str, change: int, death: int | None) -> None:
        wanted = small_lab.request(name, intent=small_lab.intent(without=change))
        if not self.lives(death, lambda: up(wanted, self.provider, self.store, unheard)):
            return
        assert len(self.holders(name)) == 1
        assert not self.holders(name)[0].broken
        row = self.store.lab(name)
        assert row is not None
        assert row.status == "up"
        steps = self.store.steps(name)
        assert [step.name for step in steps] == ["holder", "machines", "network", "services"]
        assert {step.state for step in steps} == {"done"}
        assert {row.state for row in self.store.resources(name)} == {"made"}
        again = up(wanted, self.provider, self.store, unheard)
        assert not again.changed

    @rule(name=NAMES, death=DEATHS)
    def take_down(self, name: str, death: int | None) -> None:
        def action() -> None:
            down(name, {"fake": self.provider}, self.store, unheard)

        try:
            lived = self.lives(death, action)
        except UsageError:
            assert not self.holders(name)
            return
        if lived:
            assert not self.holders(name)
            assert name not in {row.name for row in self.store.labs()}
            assert not (self.state / "labs" / name).exists()

    @rule(older_than=st.sampled_from([None, -1.0, 1e9]), death=DEATHS)
    def collect(self, older_than: float | None, death: int | None) -> None:
        known = {row.token for row in self.store.labs()}

        def action() -> None:
            gc(GcRequest(older_than, yes=True), {"fake": self.provider}, self.store, unheard)

        before = set(self.world)
        if self.lives(death, action):
            assert set(self.world) <= known
            if older_than == -1.0:
                assert not self.world
                assert self.store.labs() == ()
        if older_than != -1.0:
            assert before & known == set(self.world) & known

    @precondition(lambda self: self.world)
    @rule()
    def lose_machines(self) -> None:
        self.world.clear()

    @precondition(lambda self: self.world)
    @rule()
    def lose_journal(self) -> None:
        self.store.close()
        for path in self.state.glob("state.db*"):
            path.unlink()
        self.store = MortalStore(self.state, self.fuse)
        self.forgotten |= set(self.world)

    @invariant()
    def no_lab_has_two_holders(self) -> None:
        for name in ("one", "two"):
            assert len(self.holders(name)) <= 1

    @invariant()
    def what_is_there_was_written_down_first(self) -> None:
        known = {row.token for row in self.store.labs()}
        assert set(self.world) <= known | self.forgotten

    @invariant()
    def who_died_left_no_lock(self) -> None:
        for lock in self.state.glob("labs/*/lock"):
            assert lock.is_file()


Life.TestCase.settings = settings(
    max_examples=60, stateful_step_count=12, suppress_health_check=list(HealthCheck)
)
TestLife = Life.TestCase
