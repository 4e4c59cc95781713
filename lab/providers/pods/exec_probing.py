"""Probes of a node that no agent runs on, made by commands in its pods, through the API."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from lab._deadline import Deadline
from lab._errors import LabError
from lab.cluster.exec_stream import ExecResult
from lab.cluster.labels import NAMESPACE
from lab.cluster.probe_manifests import host_pod_name
from lab.providers.pods.exec_answers import outcome, read_bodies, read_transfers
from lab.providers.pods.exec_plan import Transfer, ask, collect, prepare, transfers
from lab.providers.provider import Outcome, Probe, ProbeSettings

_CONTAINER = "netexec"
_START_SECONDS = 20.0
"""For an exec to begin and end, beside what it does; a HostProcess container takes some."""
_SIGN_SECONDS = 1.0
ONE_ADDRESS = "cannot probe: curl, all that a Windows pod has, tells one of a name's addresses"


class Executor(Protocol):
    """What runs commands in pods: an :class:`~lab.cluster.api.Api`."""

    def execute(  # noqa: PLR0913, PLR0917  what an exec is told
        self,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        deadline: Deadline,
        stdin: bytes = b"",
    ) -> ExecResult:
        """Run a command in a container."""


class ExecProber:
    """The prober of one node; its sources are the node and its pods.

    Parameters
    ----------
    api
        The cluster's API server.
    node
        The node's name. Where it is itself the source, its HostProcess pod stands in for it.

    """

    def __init__(self, api: Executor, node: str) -> None:
        self._api = api
        self._node = node
        self._prepared: set[str] = set()

    def probe(
        self,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
        deadline: Deadline,
    ) -> Mapping[int, Outcome]:
        """Try every probe, all sources at once; one exec asks everything that a source asks.

        Every key has an outcome; where a source takes no command, an error that says why.
        """
        by_source: dict[str, list[Probe]] = {}
        for probe in probes:
            by_source.setdefault(probe.source, []).append(probe)
        ended: queue.SimpleQueue[dict[int, Outcome] | BaseException] = queue.SimpleQueue()

        def run(source: str) -> None:
            try:
                ended.put(self._of_source(source, by_source[source], settings, deadline))
            except BaseException as error:  # noqa: BLE001  carried over to the caller's thread
                ended.put(error)

        for source in by_source:
            threading.Thread(target=run, args=(source,), daemon=True).start()
        found: dict[int, Outcome] = {}
        waiting = len(by_source)
        while waiting:
            try:
                result = ended.get(timeout=_SIGN_SECONDS)
            except queue.Empty:
                progress(len(found))
                continue
            if isinstance(result, BaseException):
                raise result
            found |= result
            waiting -= 1
            progress(len(found))
        return found

    def _of_source(
        self, source: str, probes: Sequence[Probe], settings: ProbeSettings, deadline: Deadline
    ) -> dict[int, Outcome]:
        untold = {one.key: _failed(one.key, ONE_ADDRESS) for one in probes if one.every}
        probes = [probe for probe in probes if not probe.every]
        if not probes:
            return untold
        asked = {probe.key: transfers(probe, settings) for probe in probes}
        every = [transfer for own in asked.values() for transfer in own]
        pod = host_pod_name(source) if source == self._node else source
        try:
            if any(one.part == "body" for one in every):
                self._prepare(pod, deadline)
            within = Deadline(min(deadline.left(), _patience(every, settings)))
            said = self._run(pod, *ask(every, settings), within)
            bodies = self._run(pod, *collect(every), within)
        except LabError as error:
            why = f"cannot probe: {error.doing}: {error.happened}"
            return untold | {key: _failed(key, why) for key in asked}
        ended, texts = read_transfers(said), read_bodies(bodies)
        found = {probe.key: outcome(probe, asked[probe.key], ended, texts) for probe in probes}
        return untold | found

    def _prepare(self, pod: str, deadline: Deadline) -> None:
        if pod not in self._prepared:
            self._run(pod, *prepare(), Deadline(min(deadline.left(), _START_SECONDS)))
            self._prepared.add(pod)

    def _run(self, pod: str, command: list[str], stdin: str, deadline: Deadline) -> str:
        """The command's output; its exit code is the last transfer's, and says no more."""
        return self._api.execute(
            NAMESPACE, pod, _CONTAINER, command, deadline, stdin.encode()
        ).stdout


def _failed(key: int, why: str) -> Outcome:
    return Outcome(key, "error", why, None, (), None, 0.0)


def _patience(asked: Sequence[Transfer], settings: ProbeSettings) -> float:
    """Seconds that the transfers may take, so many at once."""
    return _START_SECONDS + 2 * sum(one.seconds for one in asked) / max(1, settings.in_flight)
