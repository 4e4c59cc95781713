"""One state directory, one fake world and the messages: the setup of most tests."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import small_lab

from lab.lifecycle import compilation, open_lab
from lab.lifecycle.down import DownResult, down
from lab.lifecycle.open_lab import OpenLab, open_any
from lab.lifecycle.status import LabStatus, list_labs, status
from lab.lifecycle.up import UpResult, up
from lab.providers.fake.provider import FakeProvider
from lab.providers.provider import Provider
from lab.state.rows import LabRow
from lab.state.store import Store
from lab.topology.intent import Intent


class Desk:
    """One state directory, one fake world, and the messages."""

    def __init__(self, path: Path) -> None:
        self.now = 1_000_000.0
        self.store = Store(path / "state", now=lambda: self.now)
        self.provider = FakeProvider(now=lambda: self.now)
        self.providers: dict[str, Provider] = {"fake": self.provider}
        self.said: list[str] = []

    def up(self, name: str = "overlay", scenario: str = "overlay", **changes: Any) -> UpResult:
        wanted = small_lab.request(name, scenario, **changes)
        return up(wanted, self.provider, self.store, self.said.append)

    def down(self, name: str = "overlay", wait: float = 30.0) -> DownResult:
        return down(name, self.providers, self.store, self.said.append, wait=wait)

    def opened(self, name: str = "overlay") -> OpenLab:
        """The opened small lab; the text of its scenario is not read."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(open_lab, "rebuild", lambda *_: small_lab.compiled())
            return open_any(name, self.providers, self.store)

    def status(self, name: str = "overlay", intent: Intent | None = None) -> LabStatus:
        """The status of a lab with this Intent, by default the small lab's."""
        made = replace(small_lab.compiled(), intent=intent or small_lab.intent())
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(compilation, "rebuild", lambda *_: made)
            return status(name, self.providers, self.store)

    def listed(self) -> tuple[LabStatus, ...]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(compilation, "rebuild", lambda *_: small_lab.compiled())
            return list_labs(self.providers, self.store)

    def verbs(self) -> list[str]:
        """Calls of the provider since the last time; a step appears as its name."""
        calls = [call.about if call.verb == "step" else call.verb for call in self.provider.calls]
        self.provider.calls.clear()
        return calls

    def row(self, name: str = "overlay") -> LabRow:
        """The lab's row in the journal."""
        row = self.store.lab(name)
        assert row is not None
        return row

    def files(self) -> set[str]:
        return small_lab.leftovers(self.store.directory)

    def lose_state_file(self) -> None:
        self.store.close()
        for path in self.store.directory.glob("state.db*"):
            path.unlink()
        self.store = Store(self.store.directory, now=lambda: self.now)
