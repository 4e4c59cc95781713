"""A lab on guests with what commands need: journal, lock, and a provider of its machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from node_lab import NodeLab

from lab._errors import LabError
from lab.facts.node import NodeFacts
from lab.lifecycle.open_lab import OpenLab
from lab.machines.agents.control import NodeMachine
from lab.machines.agents.fleet import Fleet
from lab.providers.capture import Taken
from lab.providers.fake.provider import FakeProvider
from lab.providers.provider import (
    CAPTURE,
    CLUSTER,
    MACHINES,
    LabHandle,
    Liveness,
    Outcome,
    Provider,
)
from lab.state.rows import LabRow
from lab.state.store import Store
from lab.topology.intent import Intent


class GuestProvider(FakeProvider):
    """A provider that uses its machines like the libvirt provider, without libvirt."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(name="libvirt", abilities=frozenset({MACHINES, CLUSTER, CAPTURE}))
        self._fleet = fleet

    def liveness(self, *_: object) -> Liveness:
        return Liveness("running", "")

    def machine(self, _lab: LabHandle, intent: Intent, name: str) -> NodeMachine:
        return self._fleet.machine(intent, name)

    def cluster(self, _lab: LabHandle, _intent: Intent) -> GuestCluster | None:
        return None

    def observe(self, _lab: LabHandle, *asked: Any) -> Mapping[str, NodeFacts | LabError]:
        return self._fleet.observe(*asked)

    def probe(self, _lab: LabHandle, *asked: Any) -> Mapping[int, Outcome]:
        return self._fleet.probe_all(*asked)

    def capture(self, _lab: LabHandle, *asked: Any) -> tuple[Taken, ...]:
        return self._fleet.capture(*asked)


class GuestCluster(GuestProvider):
    """The same with pods of a cluster: the Intent is known once they exist."""

    def __init__(self, fleet: Fleet, real: Intent) -> None:
        super().__init__(fleet)
        self._real = real
        self.asked = 0

    def cluster(self, _lab: LabHandle, _intent: Intent) -> GuestCluster:
        return self

    @contextmanager
    def probed(self, **_: bool) -> Iterator[Intent]:
        self.asked += 1
        yield self._real


def opened(
    lab: NodeLab, provider: object, directory: Path, intent: Intent | None = None
) -> OpenLab:
    """The lab, opened as by a command."""
    store = Store(directory)
    store.put_lab(LabRow("guests", "overlay", "", "", "libvirt", "token", "up", 1.0, 2.0, "d"))
    store.lab_directory("guests").mkdir(parents=True)
    return OpenLab(
        name="guests",
        plan=lab.plan,
        intent=intent or lab.intent,
        limits=lab.limits,
        provider=cast(Provider, provider),
        handle=LabHandle("guests", store.lab_directory("guests"), "token"),
        again="lab up overlay",
        banner="guests",
        scenario_text="",
        options={},
        store=store,
    )
