"""The provider in memory: every lab an entry, every probe a look at the Intent."""

from __future__ import annotations

import itertools
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError, PreflightError, UsageError
from lab.cluster.observers.facts import NodeFacts
from lab.guests.shell import Completed
from lab.providers.fake.directory import Directory
from lab.providers.fake.reach import outcome
from lab.providers.fake.world import FakeLab
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
    Step,
)
from lab.topology.cost import Cost, cost
from lab.topology.intent import Intent

Answer = Callable[[Intent, Probe], Outcome | None]
Runner = Callable[[str, Sequence[str]], Completed]


@dataclass(frozen=True, slots=True)
class Call:
    """One thing that was asked of the provider."""

    verb: str
    lab: str
    about: str = ""


@dataclass
class Faults:
    """What is to go wrong. Nothing does, unless told to."""

    refuse: str = ""
    """Why this machine cannot do it: preflight says so."""
    fail_step: str | None = None
    """Name of the step that fails, before it has done anything."""
    dead: frozenset[str] = frozenset()
    """Machines and pods that are switched off."""
    answer: Answer | None = None
    """The outcome of a probe; None from it for the usual one."""
    logged: Mapping[str, str] = field(default_factory=dict)
    """What programs have written, by path: ``"worker1/bird/log"``."""


def _done(_: str, __: Sequence[str]) -> Completed:
    return Completed(0, "", "")


@dataclass
class FakeMachine:
    """A machine that does what ``runner`` says; by default every command ends well."""

    name: str
    runner: Runner = _done

    def run(self, command: Sequence[str], deadline: Deadline) -> Completed:  # noqa: ARG002  nothing takes time here
        """What the runner says of the command."""
        return self.runner(self.name, command)

    def attach(self, command: Sequence[str]) -> int:
        """The exit code that the runner gives; the terminal is left alone."""
        return self.runner(self.name, command).code

    def command_line(self, command: Sequence[str]) -> str:
        """A line that says where the command would run; there is nothing to run it."""
        return shlex.join(["on", self.name, *command])


@dataclass
class FakeProvider:
    """A :class:`~lab.providers.provider.Provider` whose machines are entries in a mapping.

    Parameters
    ----------
    world
        The labs that are there, by token. Its own unless one is given.
    faults
        What goes wrong.
    runner
        What comes of commands on its machines.
    now
        The wall clock.

    Attributes
    ----------
    calls
        What was asked of it, in order.

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
        """Says that nothing is real."""
        machines = len(intent.machines) if intent else 0
        return f"{self.name}: {machines} machines in memory, no packet is sent"

    def node_mtu(self, asked: int) -> int:
        """What is asked: one kernel carries it all."""
        return asked

    def cost(self, intent: Intent) -> Cost:
        """What the lab is predicted to take here, from nothing."""
        return cost(intent)

    def unfit(self, intent: Intent) -> str:
        """Nothing: every topology can be had."""
        del intent
        return ""

    def labs_at_once(self, intents: Sequence[Intent]) -> int:
        """All of them."""
        return max(1, len(intents))

    def preflight(self, lab: LabHandle, intent: Intent) -> None:
        """Refuse if the faults say so. PreflightError."""
        del lab
        self.calls.append(Call("preflight", intent.scenario))
        if self.faults.refuse:
            raise PreflightError(
                f"checking for scenario '{intent.scenario}'", self.faults.refuse, "another machine"
            )

    def steps(self, lab: LabHandle, intent: Intent) -> tuple[Step, ...]:
        """Holder, machines, network, services: as a real provider divides its work."""
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
        """Whether the entry is there, whole, and has the machines of the intent."""
        self.calls.append(Call("liveness", lab.name))
        found = self.world.get(lab.token)
        if found is None:
            return Liveness("absent", f"nothing carries the token of lab '{lab.name}'")
        if found.broken:
            return Liveness("broken", found.broken)
        return Liveness("running", f"holder {found.holder}, {len(intent.machines)} machines")

    def destroy(self, lab: LabHandle, *, owner: str = "") -> tuple[str, ...]:
        """Take the entry away."""
        self.calls.append(Call("destroy", lab.name))
        found = self.world.get(lab.token)
        if found is None or found.owner != owner:
            return ()
        del self.world[lab.token]
        return (_words(found),)

    def marks(self, *, all_users: bool = False) -> tuple[Mark, ...]:
        """One for each entry."""
        now = self.now()
        return tuple(
            Mark(lab.name, lab.token, lab.directory, _words(lab), now - lab.born, lab.owner)
            for lab in self.world.values()
            if all_users or not lab.owner
        )

    def machine(self, lab: LabHandle, intent: Intent, name: str) -> Machine:
        """The pod or machine of that name. UsageError if there is none."""
        known = Directory.of(intent).by_name
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
        """Look every probe up in the intent. BrokenError if the lab is not there."""
        self.calls.append(Call("probe", lab.name, f"{len(probes)} probes"))
        self._require(lab)
        directory = Directory.of(intent)
        outcomes: dict[int, Outcome] = {}
        for probe in probes:
            told = self.faults.answer(intent, probe) if self.faults.answer else None
            outcomes[probe.key] = told or outcome(directory, probe, self.faults.dead)
        progress(len(outcomes))
        return outcomes

    def observe(
        self,
        lab: LabHandle,
        intent: Intent,
        asked: Mapping[str, Collection[str]],
        deadline: Deadline,  # noqa: ARG002  nothing takes time here
    ) -> Mapping[str, NodeFacts | LabError]:
        """Nothing can be seen of machines in memory. BrokenError if the lab is not there."""
        self.calls.append(Call("observe", lab.name, f"{len(asked)} machines"))
        self._require(lab)
        nothing = BrokenError("looking at a machine in memory", "it has no network to be seen")
        return {name: nothing for name in asked if intent.machine(name)}

    def logs(
        self,
        lab: LabHandle,
        intent: Intent,  # noqa: ARG002  the faults say what there is
        asked: Collection[str],
        deadline: Deadline,  # noqa: ARG002  nothing takes time here
    ) -> Iterator[Evidence]:
        """What the faults say was logged on those machines."""
        self.calls.append(Call("logs", lab.name, ", ".join(asked)))
        for path, text in self.faults.logged.items():
            if path.partition("/")[0] in asked:
                yield Evidence(path, text.encode())

    def evidence(self, lab: LabHandle, intent: Intent) -> Iterator[Evidence]:
        """The entry, and for each machine of the intent whether the entry has it."""
        self.calls.append(Call("evidence", lab.name))
        found = self.world.get(lab.token)
        entry = _words(found) if found else f"nothing carries the token of lab '{lab.name}'"
        yield Evidence("holder.txt", f"{entry}\n".encode())
        made = found.machines if found else ()
        for machine in intent.machines:
            state = "there" if machine.name in made else "not there"
            yield Evidence(f"{machine.name}/state.txt", f"{state}\n".encode())
        for path, text in self.faults.logged.items():
            yield Evidence(path, text.encode())

    def _step(self, lab: LabHandle, name: str, made_of: object, run: Callable[[], object]) -> Step:
        def recorded() -> None:
            self.calls.append(Call("step", lab.name, name))
            if name == self.faults.fail_step:
                raise BrokenError(f"running step '{name}'", "it was told to fail")
            run()

        return Step(name, sha256(repr(made_of).encode()).hexdigest(), recorded)

    def _hold(self, lab: LabHandle) -> None:
        if lab.token not in self.world:
            number = next(self._numbers)
            self.world[lab.token] = FakeLab(lab.name, lab.token, lab.directory, number, self.now())

    def _furnish(self, lab: LabHandle, names: tuple[str, ...]) -> None:
        self.world[lab.token] = replace(self._require(lab), machines=names)

    def _require(self, lab: LabHandle) -> FakeLab:
        found = self.world.get(lab.token)
        if found is None or found.broken:
            state = found.broken if found else "nothing carries its token"
            raise BrokenError(
                f"looking for the machines of lab '{lab.name}'",
                state,
                f"'lab status {lab.name}' says how to bring it up again",
            )
        return found

    def _run(self, name: str, command: Sequence[str]) -> Completed:
        self.calls.append(Call("run", name, shlex.join(command)))
        return self.runner(name, command)


def _words(lab: FakeLab) -> str:
    return f"entry {lab.holder} (holder)"


def _no_machine(lab: str, name: str, known: tuple[str, ...]) -> UsageError:
    from difflib import get_close_matches  # noqa: PLC0415  only a wrong name pays for it

    near = get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return UsageError(
        f"looking for '{name}' in lab '{lab}'",
        "it has no machine or pod of that name",
        f"{hint}there are {', '.join(known)}",
    )
