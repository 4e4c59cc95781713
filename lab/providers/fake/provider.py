"""The in-memory provider: labs are entries in a mapping, and every probe works."""

from __future__ import annotations

import itertools
import shlex
import time
from collections.abc import (
    Callable,
    Collection,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError, PreflightError, UsageError, did_you_mean
from lab.facts.node import NodeFacts
from lab.plan.step import Step
from lab.providers.provider import (
    Ability,
    Evidence,
    LabHandle,
    Liveness,
    Machine,
    Mark,
    Outcome,
    Pods,
    Probe,
    ProbeSettings,
    Provider,
)
from lab.providers.setup import ProviderSetup
from lab.shells.shell import Completed
from lab.topology.intent import Intent

LATENCY_MS = 0.2
"""Latency of every exchange; the order of magnitude between namespaces."""


@dataclass(frozen=True, slots=True)
class FakeLab:
    """One existing lab."""

    name: str
    token: str
    directory: Path
    holder: int
    """A number in place of the holder's process id; new each time the lab is created."""
    born: float
    """Seconds since 1970."""
    machines: tuple[str, ...] = ()
    broken: str = ""
    """Why it is broken; empty if it is not."""
    owner: str = ""
    """The owner, if it is another user."""


Runner = Callable[[str, Sequence[str]], Completed]


@dataclass(frozen=True, slots=True)
class Call:
    """One call to the provider."""

    verb: str
    lab: str
    about: str = ""


@dataclass
class Faults:
    """Failures to simulate; none by default."""

    refuse: str = ""
    """The reason with which preflight refuses; empty to accept."""
    fail_step: str | None = None
    """Name of the step that fails before doing anything."""


def _done(_: str, __: Sequence[str]) -> Completed:
    return Completed(0, "", "")


@dataclass
class FakeMachine:
    """A machine whose commands return what ``runner`` returns; by default all succeed."""

    name: str
    runner: Runner = _done

    def run(self, command: Sequence[str], deadline: Deadline) -> Completed:  # noqa: ARG002  nothing takes time here
        """Return the runner's result."""
        return self.runner(self.name, command)

    def attach(self, command: Sequence[str]) -> int:
        """Return the runner's exit code; the terminal is not used."""
        return self.runner(self.name, command).code

    def command_line(self, command: Sequence[str]) -> str:
        """A line that names the machine and the command; it cannot be run."""
        return shlex.join(["on", self.name, *command])


@dataclass
class FakeProvider(Provider):
    """A :class:`~lab.providers.provider.Provider` whose machines are entries in a mapping.

    ``world``: the existing labs, by token. ``faults``: failures to simulate. ``runner``: returns
    the results of commands on its machines. ``now``: the wall clock.

    Attributes
    ----------
    calls
        The calls it received, in order.
    """

    world: MutableMapping[str, FakeLab] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    runner: Runner = _done
    now: Callable[[], float] = time.time
    calls: list[Call] = field(default_factory=list)
    name: str = "fake"
    pods: Pods = "namespaces"
    abilities: frozenset[Ability] = frozenset()
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def banner(self, intent: Intent | None) -> str:
        """Say that nothing is real."""
        machines = len(intent.machines) if intent else 0
        return f"{self.name}: {machines} machines in memory, no packet is sent"

    def labs_at_once(self, intents: Sequence[Intent]) -> int:
        """All of them."""
        return max(1, len(intents))

    def preflight(self, lab: LabHandle, intent: Intent) -> None:
        """Raise PreflightError if ``faults.refuse`` is set."""
        del lab
        self.calls.append(Call("preflight", intent.scenario))
        if self.faults.refuse:
            raise PreflightError(
                f"checking for scenario '{intent.scenario}'", self.faults.refuse, "another machine"
            )

    def steps(self, lab: LabHandle, intent: Intent) -> tuple[Step, ...]:
        """The steps ``holder``, ``machines``, ``network``, ``services``, like a real provider."""
        names = tuple(machine.name for machine in intent.machines)
        wiring = tuple(replace(machine, translation=None) for machine in intent.machines)
        services = tuple(machine.translation for machine in intent.machines)
        return (
            self._step(lab, "holder", (lab.name, lab.token), lambda: self._hold(lab)),
            self._step(lab, "machines", names, lambda: self._furnish(lab, names)),
            self._step(lab, "network", wiring, lambda: self._require(lab)),
            self._step(lab, "services", services, lambda: self._require(lab)),
        )

    def liveness(self, lab: LabHandle, intent: Intent) -> Liveness:
        """Running if the lab's entry exists and is not broken."""
        self.calls.append(Call("liveness", lab.name))
        fake_lab = self.world.get(lab.token)
        if fake_lab is None:
            return Liveness("absent", f"nothing carries the token of lab '{lab.name}'")
        if fake_lab.broken:
            return Liveness("broken", fake_lab.broken)
        return Liveness("running", f"holder {fake_lab.holder}, {len(intent.machines)} machines")

    def destroy(self, lab: LabHandle, *, owner: str = "") -> tuple[str, ...]:
        """Remove the lab's entry."""
        self.calls.append(Call("destroy", lab.name))
        fake_lab = self.world.get(lab.token)
        if fake_lab is None or fake_lab.owner != owner:
            return ()
        del self.world[lab.token]
        return (_words(fake_lab),)

    def marks(self, *, all_users: bool = False) -> tuple[Mark, ...]:
        """One mark per entry."""
        now = self.now()
        return tuple(
            Mark(lab.name, lab.token, lab.directory, _words(lab), now - lab.born, lab.owner)
            for lab in self.world.values()
            if all_users or not lab.owner
        )

    def machine(self, lab: LabHandle, intent: Intent, name: str) -> Machine:
        """The pod or machine of that name. UsageError if there is none."""
        known = intent.places()
        if name not in known:
            raise _no_machine(lab.name, name, tuple(known))
        return FakeMachine(name, self._run)

    def probe(
        self,
        lab: LabHandle,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,  # noqa: ARG002  nothing takes time here
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        """Every probe from a machine or pod is answered. BrokenError if the lab does not exist."""
        self.calls.append(Call("probe", lab.name, f"{len(probes)} probes"))
        self._require(lab)
        progress(len(probes))
        return {probe.key: _outcome(intent, probe) for probe in probes}

    def observe(
        self,
        lab: LabHandle,
        intent: Intent,
        places: Mapping[str, Collection[str]],
        deadline: Deadline,  # noqa: ARG002  nothing takes time here
    ) -> Mapping[str, NodeFacts | LabError]:
        """An error for every machine: there is nothing to observe. BrokenError if no such lab."""
        self.calls.append(Call("observe", lab.name, f"{len(places)} machines"))
        self._require(lab)
        nothing = BrokenError("looking at a machine in memory", "it has no network")
        return {name: nothing for name in places if intent.machine(name)}

    def evidence(self, lab: LabHandle, intent: Intent) -> Iterator[Evidence]:
        """The entry, and for each machine of the intent whether the entry has it."""
        self.calls.append(Call("evidence", lab.name))
        fake_lab = self.world.get(lab.token)
        entry = _words(fake_lab) if fake_lab else f"nothing carries the token of lab '{lab.name}'"
        yield Evidence("holder.txt", f"{entry}\n".encode())
        made = fake_lab.machines if fake_lab else ()
        for machine in intent.machines:
            state = "there" if machine.name in made else "not there"
            yield Evidence(f"{machine.name}/state.txt", f"{state}\n".encode())

    def _step(self, lab: LabHandle, name: str, made_of: object, run: Callable[[], object]) -> Step:
        def recorded() -> None:
            self.calls.append(Call("step", lab.name, name))
            if name == self.faults.fail_step:
                raise BrokenError(f"running step '{name}'", "the faults make it fail")
            run()

        return Step(name, sha256(repr(made_of).encode()).hexdigest(), recorded)

    def _hold(self, lab: LabHandle) -> None:
        if lab.token not in self.world:
            number = next(self._numbers)
            self.world[lab.token] = FakeLab(lab.name, lab.token, lab.directory, number, self.now())

    def _furnish(self, lab: LabHandle, names: tuple[str, ...]) -> None:
        self.world[lab.token] = replace(self._require(lab), machines=names)

    def _require(self, lab: LabHandle) -> FakeLab:
        fake_lab = self.world.get(lab.token)
        if fake_lab is None or fake_lab.broken:
            state = fake_lab.broken if fake_lab else "nothing carries its token"
            raise BrokenError(
                f"looking for the machines of lab '{lab.name}'",
                state,
                f"'lab status {lab.name}' says how to bring it up again",
            )
        return fake_lab

    def _run(self, name: str, command: Sequence[str]) -> Completed:
        self.calls.append(Call("run", name, shlex.join(command)))
        return self.runner(name, command)


def _words(lab: FakeLab) -> str:
    return f"entry {lab.holder} (holder)"


def _outcome(intent: Intent, probe: Probe) -> Outcome:
    known = intent.places()
    if probe.source not in known:
        return Outcome.failed(probe.key, "error", f"there is no '{probe.source}'")
    machine, pod = known[probe.source]
    source = pod.address.partition("/")[0] if pod else machine.address()
    backends = tuple(
        pod.name
        for each in intent.machines
        for pod in each.pods
        if pod.address.partition("/")[0] == probe.address
    )
    return Outcome(probe.key, "ok", "", source, backends, None, LATENCY_MS)


def _no_machine(lab: str, name: str, known: tuple[str, ...]) -> UsageError:
    return UsageError(
        f"looking for '{name}' in lab '{lab}'",
        "it has no machine or pod of that name",
        f"{did_you_mean(name, known)} there are {', '.join(known)}".strip(),
    )


def make(setup: ProviderSetup) -> Provider:
    """Make a provider without labs; it needs no inventory."""
    del setup
    return FakeProvider()
