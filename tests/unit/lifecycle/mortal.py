"""A store and a provider that can be killed at every point where they have side effects."""

import json
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from lab.plan.step import Step
from lab.providers.fake.provider import FakeLab, FakeProvider
from lab.providers.provider import LabHandle
from lab.state.store import Store
from lab.topology.intent import Intent

WATCH = """
CREATE TEMP TRIGGER {table}_{event} BEFORE {event} ON {table}
WHEN NEW.state = '{state}' AND {wrong}
BEGIN SELECT RAISE(ABORT, '{table}: {state} without having been intended'); END
"""


class Killed(BaseException):
    """Simulates SIGKILL: no handler of the product catches it."""


class Fuse:
    """Counts the points where a process can die, and kills it at the chosen one."""

    def __init__(self, end: Callable[[], None]) -> None:
        self.end = end
        self.left: int | None = None
        self.points = 0

    def point(self) -> None:
        self.points += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                self.end()


class MortalStore(Store):
    """A store that can die before and after every transaction, and checks the order of writes."""

    def __init__(self, directory: Path, fuse: Fuse) -> None:
        super().__init__(directory)
        self.fuse = fuse
        for table, state in (("resources", "made"), ("steps", "done")):
            self._connection.execute(
                WATCH.format(table=table, state=state, event="INSERT", wrong="1")
            )
            self._connection.execute(
                WATCH.format(
                    table=table, state=state, event="UPDATE", wrong="OLD.state <> 'intended'"
                )
            )

    @contextmanager
    def change(self, doing: str) -> Iterator[None]:
        if self._deep:
            yield
            return
        self.fuse.point()
        with super().change(doing):
            yield
        self.fuse.point()


class MortalProvider(FakeProvider):
    """A provider that can die before, within and after every step, and around ``destroy``."""

    fuse: Fuse

    def steps(self, lab: LabHandle, intent: Intent) -> tuple[Step, ...]:
        def mortal(step: Step) -> Step:
            def run() -> None:
                self.fuse.point()
                step.run()
                self.fuse.point()

            return replace(step, run=run)

        return tuple(mortal(step) for step in super().steps(lab, intent))

    def destroy(self, lab: LabHandle, *, owner: str = "") -> tuple[str, ...]:
        self.fuse.point()
        removed = super().destroy(lab, owner=owner)
        self.fuse.point()
        return removed


def mortal_provider(fuse: Fuse, world: MutableMapping[str, FakeLab]) -> MortalProvider:
    made = MortalProvider(world=world)
    made.fuse = fuse
    return made


class FileWorld(MutableMapping[str, FakeLab]):
    """The existing labs as files, which outlive a process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    def __getitem__(self, token: str) -> FakeLab:
        try:
            document = json.loads((self.directory / token).read_text())
        except FileNotFoundError:
            raise KeyError(token) from None
        document["directory"] = Path(document["directory"])
        document["machines"] = tuple(document["machines"])
        return FakeLab(**document)

    def __setitem__(self, token: str, lab: FakeLab) -> None:
        draft = self.directory / f".{token}"
        draft.write_text(json.dumps(asdict(lab), default=str))
        draft.replace(self.directory / token)

    def __delitem__(self, token: str) -> None:
        (self.directory / token).unlink()

    def __iter__(self) -> Iterator[str]:
        return iter([path.name for path in self.directory.iterdir() if path.name[0] != "."])

    def __len__(self) -> int:
        return len(list(iter(self)))
