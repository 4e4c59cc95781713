from __future__ import annotations

import pytest
import small_lab

from lab.lifecycle.down import DownRequest, down
from lab.lifecycle.up import up
from lab.providers.fake.provider import FakeProvider
from lab.state.store import Store


class Desk:
    """One state directory, one fake world, and what was said."""

    def __init__(self, path):
        self.now = 1_000_000.0
        self.store = Store(path / "state", now=lambda: self.now)
        self.provider = FakeProvider(now=lambda: self.now)
        self.providers = {"fake": self.provider}
        self.said = []

    def up(self, name="overlay", scenario="overlay", **changes):
        wanted = small_lab.request(name, scenario, **changes)
        return up(wanted, self.provider, self.store, self.said.append)

    def down(self, name="overlay", **changes):
        wanted = DownRequest(name, f"lab down {name}", **changes)
        return down(wanted, self.providers, self.store, self.said.append)

    def verbs(self):
        """What was asked of the provider since the last time, a step as its name."""
        calls = [call.about if call.verb == "step" else call.verb for call in self.provider.calls]
        self.provider.calls.clear()
        return calls

    def status(self, name="overlay"):
        return self.store.lab(name).status

    def files(self):
        return small_lab.leftovers(self.store.directory)

    def lose_state_file(self):
        self.store.close()
        for path in self.store.directory.glob("state.db*"):
            path.unlink()
        self.store = Store(self.store.directory, now=lambda: self.now)


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path)
    yield made
    made.store.close()
