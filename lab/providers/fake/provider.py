"""The provider in memory: every lab an entry, every probe a look at the Intent."""

from __future__ import annotations

import itertools
import shlex
import time
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from hashlib import sha256
from ipaddress import IPv4Network, ip_address, ip_interface, ip_network
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError, PreflightError, UsageError
from lab.facts.node import NodeFacts
from lab.plan.step import Step
from lab.providers.provider import (
    DNS_PORT,
    MACHINES,
    PROBE_PORT,
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
    ProbeStatus,
    Provider,
)
from lab.providers.setup import ProviderSetup
from lab.remote.shell import Completed, Jump, Reach
from lab.scenario.terms import ServicePort
from lab.topology.intent import Intent, MachineIntent, Pod, ProxiedService
from lab.topology.proxying import ProxyChoice, choice, local


@dataclass(frozen=True, slots=True)
class Place:
    """Where an endpoint is: a machine, or a pod on it."""

    machine: MachineIntent
    pod: Pod | None = None

    @property
    def name(self) -> str:
        """The endpoint's name."""
        return self.pod.name if self.pod else self.machine.name


@dataclass(frozen=True, slots=True)
class Directory:
    """Who has which name and address; addresses are without prefix length."""

    by_name: Mapping[str, Place]
    by_address: Mapping[str, Place]
    zone: Mapping[str, str]
    """Addresses of each fully qualified name, of Services and of pods behind headless ones."""

    @classmethod
    def of(cls, intent: Intent) -> Directory:
        """The directory of an Intent."""
        places = [Place(machine) for machine in intent.machines]
        places += [Place(machine, pod) for machine in intent.machines for pod in machine.pods]
        services = {
            machine.name: machine.translation.services
            for machine in intent.machines
            if machine.translation
        }
        return cls(
            {place.name: place for place in places},
            {address: place for place in places for address in _addresses(place)},
            _zone(intent, {each for offered in services.values() for each in offered}),
        )


def bare(address: str) -> str:
    """The address without its prefix length."""
    return address.partition("/")[0]


def source_address(machine: MachineIntent, destination: str) -> str | None:
    """The address that a machine sends from: the first of the device that its best route names.

    None where it has no route.
    """
    if destination in _machine_addresses(machine):
        return destination
    wanted = ip_address(destination)
    ways = [(prefix, device) for prefix, device in _ways(machine) if wanted in prefix]
    if not ways:
        return None
    _, best = max(ways, key=lambda way: way[0].prefixlen)
    addresses = dict(_devices(machine)).get(best, ())
    return bare(addresses[0]) if addresses else None


def _addresses(place: Place) -> tuple[str, ...]:
    return (bare(place.pod.address),) if place.pod else _machine_addresses(place.machine)


def _machine_addresses(machine: MachineIntent) -> tuple[str, ...]:
    return tuple(bare(address) for _, listed in _devices(machine) for address in listed)


def _devices(machine: MachineIntent) -> Iterator[tuple[str, tuple[str, ...]]]:
    for device in (*machine.interfaces, machine.bridge, machine.tunnel):
        if device is not None:
            yield device.name, device.addresses


def _ways(machine: MachineIntent) -> Iterator[tuple[IPv4Network, str]]:
    """Every prefix that the machine can send to, and the device it takes."""
    for name, addresses in _devices(machine):
        for address in addresses:
            yield IPv4Network(ip_interface(address).network), name
    for route in machine.routes:
        everywhere = route.destination == "default"
        prefix = "0.0.0.0/0" if everywhere else route.destination
        yield IPv4Network(ip_network(prefix)), route.device


def _zone(intent: Intent, services: set[ProxiedService]) -> dict[str, str]:
    """Every name under the namespace that the pods' resolvers search first."""
    namespaces = {
        pod.resolver.search[0]
        for machine in intent.machines
        for pod in machine.pods
        if pod.resolver.search
    }
    found = {f"{each.name}.{domain}": each.address for each in services for domain in namespaces}
    for each in intent.headless:
        for domain in namespaces:
            every = sorted(ip_address(one.address) for one in each.backends)
            found[f"{each.name}.{domain}"] = ", ".join(map(str, every))
            found |= {f"{one.pod}.{each.name}.{domain}": one.address for one in each.backends}
    return found


LATENCY_MS = 0.2
"""Every exchange takes this long: the order of what one between namespaces takes."""


def outcome(directory: Directory, probe: Probe, dead: frozenset[str]) -> Outcome:
    """What comes of one probe.

    Everything works that the Intent lets work: what a machine drops times out, a name is looked
    up as the pod's resolver file says, an address that nothing has does not answer.

    ``directory``: of the lab's Intent. ``probe``: what is tried. ``dead``: machines and pods that
    are switched off: nothing comes from them or gets through.
    """
    source = directory.by_name.get(probe.source)
    if source is None:
        return _failed(probe, "error", f"there is no '{probe.source}'")
    if _is_off(source, dead):
        return _failed(probe, "timeout", f"'{source.name}' is switched off")
    if probe.name is not None:
        return _asked(directory, source, probe)
    if source.pod is None and _drops(source.machine, probe.address, probe.port):
        return _failed(probe, "timeout", f"'{source.name}' loses what it sends there")
    translated = _translated(directory, source, probe)
    if translated is None:
        return (_health if probe.dialect == "health" else _direct)(directory, source, probe, dead)
    return _balanced(directory, source, *translated, probe, dead)


def candidates(name: str, search: Iterable[str], ndots: int) -> tuple[str, ...]:
    """The names that a resolver tries, in order, as resolv.conf(5) says."""
    if name.endswith("."):
        return (name.removesuffix("."),)
    listed = tuple(f"{name}.{domain}" for domain in search)
    return (name, *listed) if name.count(".") >= ndots else (*listed, name)


def _direct(directory: Directory, source: Place, probe: Probe, dead: frozenset[str]) -> Outcome:
    target = directory.by_address.get(probe.address)
    if target is None or _is_off(target, dead):
        return _failed(probe, "timeout", f"no reply from {probe.address}")
    if probe.port not in _ports(target):
        return _failed(probe, "refused", f"'{target.name}' has nothing on port {probe.port}")
    return _answered(probe, (target.name,), _seen(source, target, probe.address))


def _translated(
    directory: Directory, source: Place, probe: Probe
) -> tuple[Place, ProxyChoice] | None:
    """The machine that translates the address, and what it does with the packet."""
    own = bare(source.pod.address) if source.pod else source_address(source.machine, probe.address)
    found = choice(source.machine, probe.protocol, own or "", probe.address, probe.port)
    if found is not None:
        return Place(source.machine), found
    entry = directory.by_address.get(probe.address)
    if entry is None or entry.pod is not None or entry.machine is source.machine:
        return None
    known_by = _seen(source, entry, probe.address) or ""
    found = choice(entry.machine, probe.protocol, known_by, probe.address, probe.port)
    return None if found is None else (entry, found)


def _balanced(  # noqa: PLR0913, PLR0917  both ends, what is between, and what is off
    directory: Directory,
    source: Place,
    entry: Place,
    chosen: ProxyChoice,
    probe: Probe,
    dead: frozenset[str],
) -> Outcome:
    """Through a Service: its backends in turn, for as many tries as the probe allows."""
    name = chosen.service.name
    if _is_off(entry, dead):
        return _failed(probe, "timeout", f"no reply from {probe.address}")
    if chosen.port is None or not chosen.backends:
        status: ProbeStatus = "refused" if chosen.refused else "timeout"
        return _failed(probe, status, f"'{name}' has no backend for it")
    keeps = chosen.backends[:1] if chosen.service.affinity is not None else chosen.backends
    answered: list[str] = []
    for turn in range(max(1, probe.tries)):
        backend = keeps[turn % len(keeps)]
        target = directory.by_name.get(backend.pod)
        if target is None or _is_off(target, dead):
            return _failed(probe, "timeout", f"no reply from '{backend.pod}'")
        if target.name not in answered:
            answered.append(target.name)
    first = keeps[0]
    masqueraded = chosen.masqueraded or source.name == first.pod
    seen = None if masqueraded else _kept(source, entry, probe.address)
    return _answered(
        probe,
        tuple(f"{one}{_port_of(chosen.port)}" for one in answered),
        seen or source_address(entry.machine, first.address),
    )


def _kept(source: Place, entry: Place, address: str) -> str | None:
    """The address that the entry has seen, where it leaves it as it is."""
    if source.machine is entry.machine and source.pod is not None:
        return bare(source.pod.address)
    return _seen(source, entry, address)


def _port_of(port: ServicePort) -> str:
    """A pod asked on another port than the usual one says so."""
    return "" if port.target_port == PROBE_PORT else f":{port.target_port}"


def _asked(directory: Directory, source: Place, probe: Probe) -> Outcome:
    """A DNS question. A machine has no resolver file, and asks for the name as it stands."""
    name = probe.name or ""
    resolver = source.pod.resolver if source.pod else None
    tried = candidates(name, resolver.search, resolver.ndots) if resolver else (name,)
    for each in tried:
        if each in directory.zone:
            return Outcome(probe.key, "ok", "", None, (), directory.zone[each], LATENCY_MS)
    return _failed(probe, "no-such-name", f"tried {', '.join(tried)}")


def _health(directory: Directory, _: Place, probe: Probe, dead: frozenset[str]) -> Outcome:
    """A node's health check: how many backends of the Service it has."""
    place = directory.by_address.get(probe.address)
    if place is None or _is_off(place, dead):
        return _failed(probe, "timeout", f"no reply from {probe.address}")
    machine = place.machine
    for service in machine.translation.services if machine.translation else ():
        if service.health_port == probe.port:
            number = len(local(service, machine.name))
            return Outcome(probe.key, "ok", "", None, (), str(number), LATENCY_MS)
    return _failed(probe, "refused", f"nothing checks health on port {probe.port}")


def _answered(probe: Probe, backends: tuple[str, ...], seen: str | None) -> Outcome:
    return Outcome(probe.key, "ok", "", seen, backends, None, LATENCY_MS)


def _failed(probe: Probe, status: ProbeStatus, detail: str) -> Outcome:
    return Outcome(probe.key, status, detail, None, (), None, 0.0)


def _seen(source: Place, target: Place, address: str) -> str | None:
    """The source address that ``target`` sees, asked by its own address."""
    if source.pod is None:
        return source_address(source.machine, address)
    translation = source.machine.translation
    inside = translation is None or _within(address, translation.not_masqueraded)
    if inside or target.machine is source.machine:
        return bare(source.pod.address)  # what stays on the node never passes its translation
    return source_address(source.machine, address)


def _is_off(place: Place, dead: frozenset[str]) -> bool:
    return place.name in dead or place.machine.name in dead


def _drops(machine: MachineIntent, address: str, port: int) -> bool:
    return any(
        _within(address, drop.destinations)
        and not _within(address, drop.spared)
        and (drop.ports is None or drop.ports[0] <= port <= drop.ports[1])
        for drop in machine.drops
    )


def _within(address: str, prefixes: Iterable[str]) -> bool:
    wanted = ip_address(address)
    return any(wanted in ip_network(prefix) for prefix in prefixes)


def _ports(target: Place) -> tuple[int, ...]:
    is_dns = target.pod is not None and target.pod.role == "dns"
    return (DNS_PORT, PROBE_PORT) if is_dns else (PROBE_PORT,)


@dataclass(frozen=True, slots=True)
class FakeLab:
    """One lab that is there, as its own objects would tell."""

    name: str
    token: str
    directory: Path
    holder: int
    """A number for the process that would hold it; another one each time it is made."""
    born: float
    """Seconds since 1970."""
    machines: tuple[str, ...] = ()
    broken: str = ""
    """Why it is broken, in words; empty for a sound one."""
    owner: str = ""
    """Another user whose it is."""


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
    """What is to go wrong; nothing by default."""

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
class FakeProvider(Provider):
    """A :class:`~lab.providers.provider.Provider` whose machines are entries in a mapping.

    ``world``: the labs that are there, by token. Its own unless one is given. ``faults``: what goes
    wrong. ``runner``: what comes of commands on its machines. ``now``: the wall clock.

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
            answer = self.faults.answer(intent, probe) if self.faults.answer else None
            outcomes[probe.key] = answer or outcome(directory, probe, self.faults.dead)
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


def make(setup: ProviderSetup) -> Provider:
    """A world of its own; it needs no inventory."""
    del setup
    return FakeProvider()


BLANK = b"\x89PNG\r\n\x1a\n"
"""How every PNG begins; enough of a picture for who does not look at it."""


@dataclass
class FakeComputers(FakeProvider):
    """A :class:`~lab.providers.provider.RealMachines` too.

    ``keyfile``, ``host_key``, ``port``, ``user``, ``jump``: of every machine's reach. ``said``:
    what a machine's console has said, by its name.
    """

    abilities: frozenset[Ability] = frozenset({MACHINES})
    keyfile: Path = Path("/nowhere/key")
    host_key: str = "ssh-ed25519 AAAA"
    port: int = 22
    user: str = "root"
    jump: Jump | None = None
    said: dict[str, str] = field(default_factory=dict)

    def reaches(self, lab: LabHandle, intent: Intent) -> tuple[Reach, ...]:
        """Every machine at 127.0.0.1. BrokenError if the lab is not there."""
        self._require(lab)
        return tuple(
            Reach(
                machine.name,
                "127.0.0.1",
                self.user,
                self.keyfile,
                self.host_key,
                self.port,
                self.jump,
            )
            for machine in intent.machines
        )

    def console(self, lab: LabHandle, intent: Intent, name: str) -> int:  # noqa: ARG002  one world is as good as another
        """Noted, and left at once."""
        self.calls.append(Call("console", lab.name, name))
        return 0

    def console_log(self, lab: LabHandle, intent: Intent, name: str) -> str:  # noqa: ARG002  the same
        """What ``said`` has of it."""
        self.calls.append(Call("console_log", lab.name, name))
        return self.said.get(name, "")

    def screenshot(self, lab: LabHandle, intent: Intent, name: str) -> bytes:  # noqa: ARG002  the same
        """The beginning of a picture."""
        self.calls.append(Call("screenshot", lab.name, name))
        return BLANK

    def suspend(self, lab: LabHandle, intent: Intent) -> tuple[str, ...]:
        """Noted."""
        self.calls.append(Call("suspend", lab.name))
        return tuple(machine.name for machine in intent.machines)
