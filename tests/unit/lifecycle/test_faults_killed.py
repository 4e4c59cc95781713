"""``lab fault`` and ``lab heal``, killed wherever they touch the journal or a machine."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import small_lab
from mortal import Fuse, Killed, MortalStore

from lab.explain.faults import registry
from lab.lifecycle import compilation, open_lab
from lab.lifecycle.faults import FaultRequest, batch_commands, from_nodes, heal, put_in, script
from lab.lifecycle.open_lab import OpenLab, open_any
from lab.lifecycle.status import status
from lab.lifecycle.up import up
from lab.providers.fake.provider import FakeProvider
from lab.shells.shell import Completed

COMPILED = small_lab.compiled()


def die() -> None:
    raise Killed


class Bench:
    """A lab, and the machines on which a fault is as it is put in."""

    def __init__(self, path: Path, fault: str) -> None:
        self.path, self.fuse, self.fault = path, Fuse(die), fault
        self.broken: set[str] = set()
        self.provider = FakeProvider(runner=self.run)
        self.store = MortalStore(path, self.fuse)
        up(small_lab.request(), self.provider, self.store, str)
        site = registry.choose(registry.faults()[fault], COMPILED.intent, "testing", "", "")
        peer = site.peers[0] if site.peers else ""
        change = registry.faults()[fault].change(COMPILED.intent, site.node, peer)
        change = from_nodes(change, COMPILED.intent)
        self.does, self.undoes = (
            {(place, script(lines)) for place, lines in batch_commands(commands)}
            for commands in (change.do, change.undo)
        )

    def run(self, place: str, command: Sequence[str]) -> Completed:
        """A command's effect on a machine; this process dies before it or after it."""
        self.fuse.point()
        if (place, command[-1]) in self.does:
            self.broken.add(place)
        elif (place, command[-1]) in self.undoes:
            self.broken.discard(place)
        self.fuse.point()
        return Completed(0, "", "")

    def opened(self) -> OpenLab:
        return open_any("overlay", {"fake": self.provider}, self.store)

    def lives(self, death: int | None, action: Callable[[OpenLab], object]) -> bool:
        """Do the action; False if it was killed on the way, and another process goes on."""
        self.fuse.left, self.fuse.points = death, 0
        try:
            action(self.opened())
        except Killed:
            self.store.close()
            self.store = MortalStore(self.path, self.fuse)
            return False
        finally:
            self.fuse.left = None
        return True

    def put_in(self, death: int | None = None) -> bool:
        return self.lives(death, lambda lab: put_in(lab, FaultRequest(self.fault), str))

    def heal(self, death: int | None = None) -> bool:
        return self.lives(death, lambda lab: heal(lab, str))

    def told(self) -> list[tuple[str, bool]]:
        """The faults that ``lab status`` tells of, and whether each is wholly in."""
        found = status("overlay", {"fake": self.provider}, self.store)
        return [(fault.name, fault.whole) for fault in found.faults]


FAULTS = ("wrong-vni", "slow-link", "two-nodes-one-mac")
"""One machine; one that is asked first whether it can; two machines to heal."""


@pytest.fixture(autouse=True)
def read_small_lab(monkeypatch):
    monkeypatch.setattr(open_lab, "rebuild", lambda *_: COMPILED)
    monkeypatch.setattr(compilation, "rebuild", lambda *_: COMPILED)


@pytest.fixture(params=FAULTS)
def bench(request, tmp_path):
    made = Bench(tmp_path / "state", request.param)
    yield made
    made.store.close()


def test_a_fault_killed_at_any_point_is_shown_by_status_and_removed_by_heal(bench):
    assert bench.put_in()
    assert bench.broken == {place for place, _ in bench.does}
    assert bench.told() == [(bench.fault, True)]
    assert bench.heal()
    for death in range(1000):
        if bench.put_in(death):
            break
        told = bench.told()
        assert told in ([], [(bench.fault, False)], [(bench.fault, True)])
        assert told or not bench.broken, f"killed at point {death}: what is broken is not told"
        assert bench.heal()
        assert not bench.broken, f"killed at point {death}"
        assert bench.told() == []
    assert death >= 6


def test_heal_killed_at_any_point_is_ended_by_the_next(bench):
    for death in range(1000):
        assert bench.put_in()
        if bench.heal(death):
            break
        assert bench.told() or not bench.broken, f"killed at point {death}: it is not told"
        assert bench.heal()
        assert not bench.broken, f"killed at point {death}"
        assert bench.told() == []
    assert death >= 4
