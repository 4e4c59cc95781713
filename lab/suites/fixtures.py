"""The objects behind the fixtures ``lab``, ``node``, ``pod``, ``probe`` and ``kube``."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from lab._deadline import Deadline
from lab._errors import LabError, UsageError
from lab._log import say
from lab.matrix.cells import make_matrix
from lab.matrix.choose import choose_cells
from lab.matrix.run import run
from lab.matrix.verdict import GREEN, CellResult
from lab.providers.provider import Machine
from lab.scenario.findings import did_you_mean
from lab.scenario.terms import Os
from lab.shells.shell import Completed
from lab.suites.running_lab import BoundLab, RunningLab
from lab.suites.session import MatrixSession
from lab.topology.intent import Intent

if TYPE_CHECKING:
    from kubernetes import client

_COMMAND_SECONDS = 60.0


_Returned = TypeVar("_Returned")
_Arguments = ParamSpec("_Arguments")


def _own_frames_hidden(
    function: Callable[_Arguments, _Returned],
) -> Callable[_Arguments, _Returned]:
    """The function; an error of it ends pytest's traceback at the test that called it."""

    @wraps(function)
    def hidden(*args: _Arguments.args, **options: _Arguments.kwargs) -> _Returned:
        __tracebackhide__ = True
        try:
            return function(*args, **options)
        except LabError as error:
            raise error.with_traceback(None) from None

    return hidden


@dataclass(frozen=True, slots=True)
class LabPlace:
    """A node, another machine, or a pod of the lab."""

    name: str
    os: Os
    address: str
    """Without prefix length; for a node, its address on the node network."""
    machine: Machine

    @_own_frames_hidden
    def run(self, *command: str, timeout: float = _COMMAND_SECONDS) -> Completed:
        """Run a command; the result has ``code``, ``stdout`` and ``stderr``.

        Raises DeadlineError when it was killed because it did not end within ``timeout`` seconds.
        """
        return self.machine.run(command, Deadline(timeout))


@dataclass(frozen=True)
class HeldLab:
    """The lab that ``--lab`` names, held so that no other command takes it down."""

    suite: RunningLab
    intent: Intent
    """The Intent of each machine; on a cluster with the addresses that its pods have."""

    @property
    def name(self) -> str:
        """The lab's name."""
        return self.suite.name

    @property
    def provider(self) -> str:
        """Name of its provider, such as ``netns``."""
        return self.suite.provider.name

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the cluster's nodes."""
        return tuple(node.name for node in self.suite.plan.nodes)

    @property
    def pods(self) -> tuple[str, ...]:
        """Names of the probe pods."""
        return tuple(
            pod.name
            for machine in self.intent.machines
            for pod in machine.pods
            if pod.role == "probe"
        )

    @_own_frames_hidden
    def node(self, name: str) -> LabPlace:
        """The node or other machine of this name.

        Raises UsageError, with the nearest name, if there is none.
        """
        machines = {machine.name: machine for machine in self.intent.machines}
        machine = machines[self._known("machine", name, machines)]
        return LabPlace(name, machine.os, machine.address(), self._machine(name))

    @_own_frames_hidden
    def pod(self, name: str) -> LabPlace:
        """The pod of this name.

        Raises UsageError, with the nearest name, if there is none.
        """
        pods = {
            pod.name: (machine, pod) for machine in self.intent.machines for pod in machine.pods
        }
        host, pod = pods[self._known("pod", name, pods)]
        return LabPlace(name, host.os, pod.address.partition("/")[0], self._machine(name))

    @_own_frames_hidden
    def probe(
        self, source: str, target: str, protocol: str = "tcp", size: str = "small"
    ) -> CellResult:
        """Probe a cell of the matrix again, and judge it.

        Endpoints have their names in the matrix: a pod, a node, ``client``, a Service
        (``to-POD``), a NodePort (``NODE:to-POD``), a DNS name as queried. A failure is retried, as
        in the matrix. If several families have this cell, the first red result is returned.

        Raises UsageError, with the nearest name, when the matrix has no such cell. Raises
        BrokenError when the lab's machines do not exist.
        """
        action = f"probing '{target}' from '{source}' in lab '{self.name}'"
        cells = choose_cells(
            make_matrix(self.suite.plan, self.intent),
            source,
            target,
            protocol=protocol,
            size=size,
            action=action,
        )
        results = run(
            cells,
            self.suite.limits,
            BoundLab(self.suite, self.intent).send,
            time.monotonic,
            lambda cell: f"lab test {shlex.quote(self.name)} -k {shlex.quote(cell.id)}",
        )
        return next((result for result in results if result.verdict not in GREEN), results[0])

    def _machine(self, name: str) -> Machine:
        return self.suite.provider.machine(self.suite.handle, self.intent, name)

    def _known(self, kind: str, name: str, known: Mapping[str, object]) -> str:
        if name in known:
            return name
        raise UsageError(
            f"looking for {kind} '{name}' in lab '{self.name}'",
            "there is none",
            did_you_mean(name, known, f"one of {', '.join(known)}"),
        )


PlaceFinder = Callable[[str], LabPlace]
"""The type of the fixtures ``node`` and ``pod``."""


@contextmanager
def tested(session: MatrixSession) -> Iterator[HeldLab]:
    """The lab of the session, held for the block.

    Raises LabError when its machines do not exist.
    """
    with session.lab.in_use("test", say):
        session.lab.require_running()
        with session.bound() as intent:
            yield HeldLab(session.lab, intent)


@contextmanager
def kubernetes_client(session: MatrixSession) -> Iterator[client.ApiClient | None]:
    """A client of the lab's API server, as its administrator; None if it has no cluster."""
    if session.cluster is None:
        yield None
        return
    with session.cluster.client() as api:
        yield api
