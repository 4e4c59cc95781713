"""All machines of a lab that run an agent, controlled in parallel."""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from lab._deadline import Deadline
from lab._errors import LabError, UsageError
from lab.cluster.observed import PodLink
from lab.facts.node import NodeFacts
from lab.providers.capture import Taken, Tap
from lab.providers.node.campaign import (
    Campaign,
    News,
    Prober,
    capture,
    receive,
    start_thread,
)
from lab.providers.node.control import NodeControl, NodeMachine
from lab.providers.observe import observe_machine
from lab.providers.provider import (
    PROBE_PORT,
    THROUGHPUT_PORT,
    Dialect,
    Evidence,
    Outcome,
    Probe,
    ProbeSettings,
)
from lab.remote.parallel import on_each
from lab.topology.intent import Intent


def with_dialects(intent: Intent, probes: Sequence[Probe]) -> list[Probe]:
    """The probes, each with the dialect of its target.

    On Linux nodes and the client the lab's responder answers; on Windows nodes and in pods, hence
    behind Services and NodePorts, agnhost's netexec; health checks kube-proxy; the API servers
    behind a services node answer with TLS.
    """
    ours = {
        address.partition("/")[0]
        for machine in intent.machines
        if machine.os == "linux"
        for card in machine.interfaces
        for address in card.addresses
    }
    front = intent.services_node
    api = (front.address, front.api_port) if front else None

    def dialect(probe: Probe) -> Dialect:
        if probe.name is not None or probe.dialect in {"health", "throughput"}:
            return probe.dialect
        if (probe.address, probe.port) == api:
            return "tls"
        return probe.dialect if probe.port == PROBE_PORT and probe.address in ours else "netexec"

    return [replace(probe, dialect=dialect(probe)) for probe in probes]


def with_names(outcome: Outcome, holders: Mapping[str, str]) -> Outcome:
    """The outcome with certificate fingerprints replaced by the names of their ``holders``."""
    names = tuple(holders.get(one, one) for one in outcome.backends)
    return outcome if names == outcome.backends else replace(outcome, backends=names)


_RECEIVER_SECONDS = 5.0
"""Added per stream to its exchange's timeout."""
T = TypeVar("T")
Phase = Callable[[str, str], None]
"""Called with a machine's name and its current phase."""


class Fleet:
    """The machines of one lab.

    Parameters
    ----------
    controls
        Controls by machine. A machine of the Intent without one is skipped; its probes end as
        errors.
    cluster
        True if the pods are real Kubernetes pods; then the controls have their token.
    others
        Probers for machines without an agent: Windows nodes of a cluster.

    """

    def __init__(
        self,
        controls: Mapping[str, NodeControl],
        *,
        cluster: bool = False,
        others: Mapping[str, Prober] | None = None,
    ) -> None:
        self._controls = dict(controls)
        self._cluster = cluster
        self._others = dict(others or {})

    def up_all(
        self, intent: Intent, deadline: Deadline, phase: Phase = lambda _name, _phase: None
    ) -> None:
        """Create every machine's network in parallel; ``phase`` is called on any thread.

        Raises
        ------
        LabError
            As :func:`~lab.remote.parallel.on_each`.

        """

        def up(name: str) -> None:
            self._controls[name].up(
                intent.machine(name), intent, deadline, lambda said: phase(name, said)
            )

        on_each(self._controls, up)

    def ailments(self, intent: Intent, deadline: Deadline) -> dict[str, str]:
        """What is wrong, by machine; only broken and unreachable machines."""

        def look(name: str) -> str:
            return self._controls[name].ailment(intent.machine(name), intent, deadline)

        found = _parallel(self._controls, look)
        said = {
            name: str(one.happened) if isinstance(one, LabError) else one
            for name, one in found.items()
        }
        return {name: text for name, text in said.items() if text}

    def down_all(self, deadline: Deadline) -> None:
        """Remove every machine's network. Raises as :meth:`up_all`."""
        on_each(self._controls, lambda name: self._controls[name].down(deadline))

    def probe_all(
        self,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        """Run every probe from its source's machine.

        ``progress`` is called on this thread with the number finished. Every key has an outcome:
        for a machine that is unreachable or stops responding, an error with the reason.
        """
        place = _places(intent)
        in_dialects = with_dialects(intent, probes) if self._cluster else probes
        probers: dict[str, Prober] = {**self._controls, **self._others}
        campaign = Campaign(probers, place, settings)
        if self._cluster and any(one.dialect == "throughput" for one in in_dialects):
            return self._stream_all(
                intent, in_dialects, settings, partial(campaign.run, progress=progress)
            )
        return campaign.run(in_dialects, progress)

    def _stream_all(
        self,
        intent: Intent,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        run: Callable[[Sequence[Probe]], Mapping[int, Outcome]],
    ) -> Mapping[int, Outcome]:
        """Run every probe while the agents receive the streams in their target pods."""
        streams = {one.address for one in probes if one.dialect == "throughput"}
        asked = {
            machine.name: [
                pod.name for pod in machine.pods if pod.address.partition("/")[0] in streams
            ]
            for machine in intent.machines
            if machine.name in self._controls
        }
        in_dialects = [
            replace(one, port=THROUGHPUT_PORT) if one.dialect == "throughput" else one
            for one in probes
        ]
        found: dict[int, Outcome] = {}
        try:
            receive(
                self._controls,
                {name: pods for name, pods in asked.items() if pods},
                lambda: found.update(run(in_dialects)),
                Deadline(settings.longest(probes, _RECEIVER_SECONDS)),
            )
        except LabError as error:
            why = f"cannot receive: {error.doing}: {error.happened}"
            missing = (one.key for one in probes if one.key not in found)
            found |= {key: Outcome(key, "error", why, None, (), None, 0.0) for key in missing}
        return found

    def capture(
        self,
        intent: Intent,
        taps: Sequence[Tap],
        limit: int,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[Taken, ...]:
        """Capture packets while ``during`` runs; see :class:`~lab.providers.capture.Capturing`.

        Times are by each machine's own clock.
        """
        return capture(self._controls, _places(intent), taps, limit, during, deadline)

    def links(self, deadline: Deadline) -> tuple[PodLink, ...]:
        """The network links of the Kubernetes pods, on every machine that answers in time."""
        found = _parallel(self._controls, lambda name: self._controls[name].links(deadline))
        return tuple(
            link for one in found.values() if not isinstance(one, LabError) for link in one
        )

    def observe(
        self, intent: Intent, asked: Mapping[str, Collection[str]], deadline: Deadline
    ) -> Mapping[str, NodeFacts | LabError]:
        """Observe the machines in ``asked`` in parallel, and the pods named for each.

        Kubernetes pods are always observed together with their machine.
        """

        def seen(name: str) -> NodeFacts | LabError:
            pods = () if self._cluster else asked[name]
            return observe_machine(name, pods, lambda one: self.machine(intent, one), deadline)

        return _parallel(asked, seen)

    def evidence(self, deadline: Deadline) -> Iterator[Evidence]:
        """Evidence of the network of every machine. Never raises."""

        def gather(name: str) -> list[Evidence]:
            return list(self._controls[name].evidence(deadline))

        for _, found in _ended(self._controls, gather):  # do not wait for slower machines
            if not isinstance(found, LabError):  # never: evidence() itself reports errors
                yield from found

    def machine(self, intent: Intent, name: str) -> NodeMachine:
        """The machine or pod of that name.

        Raises
        ------
        UsageError
            If there is none that this fleet has.

        """
        for machine in intent.machines:
            names = (machine.name, *(pod.name for pod in machine.pods))
            if name in names and machine.name in self._controls:
                return self._controls[machine.name].machine(name)
        raise UsageError(f"looking for '{name}'", "there is no pod or machine of that name")


def _places(intent: Intent) -> dict[str, str]:
    return {
        name: machine.name
        for machine in intent.machines
        for name in (machine.name, *(pod.name for pod in machine.pods))
    }


def _parallel(names: Mapping[str, object], work: Callable[[str], T]) -> dict[str, T | LabError]:
    """Run ``work`` for each name in parallel; its result or LabError, in the order of names."""
    found = dict(_ended(names, work))
    return {name: found[name] for name in names}


def _ended(
    names: Mapping[str, object], work: Callable[[str], T]
) -> Iterator[tuple[str, T | LabError]]:
    """Run ``work`` for each name on its own thread; yield each result as it arrives."""
    news: queue.SimpleQueue[News] = queue.SimpleQueue()
    for name in names:
        start_thread(news, name, lambda _, name=name: work(name))  # type: ignore[misc]
    for _ in names:
        one = news.get()
        if isinstance(one.result, BaseException) and not isinstance(one.result, LabError):
            raise one.result
        yield one.machine, one.result
