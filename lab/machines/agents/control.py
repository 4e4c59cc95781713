"""Send orders to one machine's agent, over a shell on that machine."""

from __future__ import annotations

import hashlib
import io
import math
import shlex
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from signal import SIGALRM
from threading import Lock
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError
from lab.machines.agents.files import DIRECTORY, ENTER, STATUS_COMMAND, archive_path
from lab.machines.agents.protocol import STOP, ClusterPods, Order, machine_work
from lab.providers.capture import KernelTrace, RouteQuestion, Taken, Tap
from lab.providers.provider import Evidence, Outcome, Probe, ProbeSettings
from lab.providers.wire import encode
from lab.shells.shell import Completed, Shell
from lab.topology.intent import Intent, MachineIntent
from lab.topology.observed import PodLink

_PACKAGE = Path(__file__).parents[2]
_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The earliest ZIP timestamp; fixed, so that equal content gives equal archives."""
_DIGEST_LETTERS = 16
_MAKING = Lock()


@cache
def _archived() -> Mapping[str, bytes]:
    """The agent's files: every module of this package, of which it imports a few."""
    files = {
        f"lab/{path.relative_to(_PACKAGE).as_posix()}": path.read_bytes()
        for path in sorted(_PACKAGE.rglob("*.py"))
    }
    return {"__main__.py": files["lab/machines/agents/bootstrap.py"], **files}


@cache
def archive_digest() -> str:
    """Hash of the agent's files, independent of the compression library."""
    whole = hashlib.sha256()
    for name, content in _archived().items():
        whole.update(b"%s\0%d\0" % (name.encode(), len(content)) + content)
    return whole.hexdigest()[:_DIGEST_LETTERS]


def build_archive() -> bytes:
    """The agent as one file; built once, by the first thread that needs it."""
    with _MAKING:
        return _built()


@cache
def _built() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _archived().items():
            archive.writestr(zipfile.ZipInfo(name, _EARLIEST), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


_NOT_THERE, _NO_PYTHON = 118, 127
_ALARMED = frozenset({128 + SIGALRM, -SIGALRM})
"""Exit codes of an agent that its own alarm ended, by way of a shell or not."""
_START = f"""
command -v python3 > /dev/null || {{ cat > /dev/null; exit {_NO_PYTHON}; }}
[ -e "$0" ] || {{ cat > /dev/null; exit {_NOT_THERE}; }}
exec python3 -I -S "$0" "$@"
"""
"""Always reads standard input to its end; otherwise the sender would get EPIPE."""
_AGENTS_SHARE = 0.95
"""Fraction of the time left: the agent's own error says more than a timeout here."""

Heard = Callable[[str], None]


def _stay_below(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"a path outside the archive: {path!r}")
    return path


class AgentLine(BaseModel):
    """One line of an agent's output; validated, because guests are not trusted."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", val_json_bytes="base64")

    phase: str | None = None
    progress: int | None = None
    ready: int | None = None
    outcomes: tuple[Outcome, ...] = ()
    pieces: tuple[tuple[Annotated[str, AfterValidator(_stay_below)], str], ...] = ()
    taken: tuple[Taken, ...] = ()
    said: tuple[KernelTrace, ...] = ()
    completed: Mapping[str, Completed] = {}
    links: tuple[PodLink, ...] = ()
    failed: tuple[str, str, str, str] | None = None
    done: bool = False


@dataclass(slots=True)
class _Answer:
    machine: str
    phase: Heard
    progress: Callable[[int], None]
    ready: Callable[[int], None]
    take: Callable[[Taken], None] | None
    """Gets packets as they come; without it they are in ``taken``."""
    outcomes: list[Outcome] = field(default_factory=list)
    pieces: list[tuple[str, str]] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    kernel: list[KernelTrace] = field(default_factory=list)
    links: list[PodLink] = field(default_factory=list)
    completed: dict[str, Completed] = field(default_factory=dict)
    done: bool = False
    failed: LabError | None = None
    strange: str = ""

    def hear(self, content: bytes) -> None:
        try:
            line = AgentLine.model_validate_json(content)
        except ValidationError as error:
            self.strange = f"not an agent's line, {content[:80]!r}: {error.errors()[0]['msg']}"
            return
        if line.phase is not None:
            self.phase(line.phase)
        if line.progress is not None:
            self.progress(line.progress)
        if line.ready is not None:
            self.ready(line.ready)
        if line.failed is not None:
            kind, action, happened, hint = line.failed
            known = DeadlineError if kind == "DeadlineError" else BrokenError
            self.failed = known(f"{action} on machine '{self.machine}'", happened, hint)
        self.outcomes += line.outcomes
        self.pieces += line.pieces
        if self.take is None:
            self.taken += line.taken
        else:
            for part in line.taken:
                self.take(part)
        self.kernel += line.said
        self.links += line.links
        self.completed |= line.completed
        self.done |= line.done


class NodeControl:
    """A machine whose network the lab configures.

    Parameters
    ----------
    name
        The machine's name in the Intent.
    shell
        A root shell on it.
    token
        For real Kubernetes pods: the token in their processes' environment.
    command_prefix
        Command prefix that reaches the machine from a terminal:
        ``("lab", "ssh", "overlay", "worker1", "--")``. Without it, command lines are for the
        machine itself.
    devices
        The machine's own devices by the Intent's names, where these differ; they can be captured
        at.

    """

    def __init__(
        self,
        name: str,
        shell: Shell,
        command_prefix: Sequence[str] = (),
        token: str = "",
        devices: Mapping[str, str] | None = None,
    ) -> None:
        self._devices = dict(devices or {})
        self._names = {own: name for name, own in self._devices.items()}
        self.name = name
        self.shell = shell
        self.command_prefix = tuple(command_prefix)
        self._cluster = ClusterPods(name, token) if token else None

    def up(
        self,
        machine: MachineIntent,
        intent: Intent,
        deadline: Deadline,
        phase: Heard = lambda _: None,
    ) -> None:
        """Create the machine's network and its pods, replacing any earlier ones.

        Raises BrokenError when they cannot be created, or the machine is unreachable; names the
        machine. Raises DeadlineError when it takes too long.
        """
        order = Order(_share(deadline), work=machine_work(machine, intent))
        self._send_order("up", order, deadline, phase=phase)

    def ailment(self, machine: MachineIntent, intent: Intent, deadline: Deadline) -> str:
        """Ask what is wrong with the machine's network as a whole; empty if nothing is.

        The matrix finds faults that affect packets. Raises as :meth:`up`.
        """
        digest = machine_work(machine, intent).digest()
        completed = self.shell.run(["sh", "-c", STATUS_COMMAND, digest], deadline)
        if completed.code:
            raise BrokenError(
                f"looking at machine '{self.name}'",
                f"exit code {completed.code}: {completed.stderr.strip() or 'no output'}",
                "run 'lab up' again",
            )
        return completed.stdout.strip()

    def probe(
        self,
        probes: Sequence[Probe],
        settings: ProbeSettings,
        progress: Callable[[int], None],
        deadline: Deadline,
    ) -> dict[int, Outcome]:
        """Run probes whose sources are the machine and its pods.

        Raises BrokenError when the machine is unreachable, or its network does not exist. Raises
        DeadlineError when it takes too long.
        """
        order = Order(_share(deadline), self._cluster, probes=tuple(probes), settings=settings)
        answer = self._send_order("probe", order, deadline, progress=progress)
        outcomes = {outcome.key: outcome for outcome in answer.outcomes}
        missing = [probe.key for probe in probes if probe.key not in outcomes]
        if missing:
            raise BrokenError(
                f"probing from machine '{self.name}'",
                f"{len(missing)} of {len(probes)} probes have no outcome",
                "run 'lab up' again",
            )
        return {probe.key: outcomes[probe.key] for probe in probes}

    def links(self, deadline: Deadline) -> tuple[PodLink, ...]:
        """The network links of the Kubernetes pods; none if pods are namespaces.

        Raises as :meth:`probe`.
        """
        if self._cluster is None:
            return ()
        order = Order(_share(deadline), self._cluster)
        return tuple(self._send_order("link", order, deadline).links)

    def listen(
        self,
        taps: Sequence[Tap],
        limit: int,
        ready: Callable[[int], None],
        deadline: Deadline,
    ) -> tuple[Taken, ...]:
        """Capture all packets at taps of the machine and its pods, until :meth:`stop`.

        ``ready`` gets the agent's process id once all taps are open. Raises as :meth:`probe`.
        """
        order = Order(_share(deadline), self._cluster, taps=self._own(taps), limit=limit)
        taken = self._send_order("listen", order, deadline, ready=ready).taken
        return join_taken(taps, [self._named(part) for part in taken])

    def stream_packets(self, tap: Tap, heard: Callable[[Taken], None], deadline: Deadline) -> None:
        """Capture packets as they come; see :class:`~lab.providers.capture.Capturing`."""
        order = Order(_share(deadline), self._cluster, taps=self._own([tap]))
        self._send_order("stream", order, deadline, taken=lambda part: heard(self._named(part)))

    def _own(self, taps: Sequence[Tap]) -> tuple[Tap, ...]:
        """The taps with the machine's names of its devices."""
        return tuple(
            replace(tap, device=self._devices.get(tap.device, tap.device))
            if tap.place == self.name
            else tap
            for tap in taps
        )

    def _named(self, taken: Taken) -> Taken:
        """What was captured, with the Intent's names of the machine's devices."""
        tap = taken.tap
        if tap.place != self.name:
            return taken
        return replace(taken, tap=replace(tap, device=self._names.get(tap.device, tap.device)))

    def trace(
        self,
        places: Mapping[str, Sequence[RouteQuestion]],
        table: str,
        ready: Callable[[int], None],
        deadline: Deadline,
    ) -> tuple[KernelTrace, ...]:
        """Trace packets in the machine and its pods until :meth:`stop`; see :class:`KernelTracing`.

        ``ready`` gets the agent's process id once all are traced. Raises as :meth:`probe`.
        """
        questions_by_place = {place: tuple(questions) for place, questions in places.items()}
        order = Order(_share(deadline), self._cluster, places=questions_by_place, table=table)
        return tuple(self._send_order("trace", order, deadline, ready=ready).kernel)

    def receive(
        self, pods: Sequence[str], ready: Callable[[int], None], deadline: Deadline
    ) -> None:
        """Receive streams in pods of the machine, until :meth:`stop`.

        ``ready`` gets the agent's process id once all pods listen. Raises as :meth:`probe`.
        """
        order = Order(_share(deadline), self._cluster, pods=tuple(pods))
        self._send_order("receive", order, deadline, ready=ready)

    def stop(self, process: int, deadline: Deadline) -> None:
        """Tell the capturing, tracing or receiving agent with that process id to finish."""
        self.shell.run(["kill", f"-{STOP.value}", str(process)], deadline)

    def evidence(self, deadline: Deadline) -> Iterator[Evidence]:
        """Evidence of the network of the machine and its pods. Never raises."""
        try:
            answer = self._send_order("gather", Order(_share(deadline)), deadline)
        except LabError as error:
            yield Evidence(f"{self.name}/network/missing.txt", f"{error}\n".encode())
            return
        for path, text in answer.pieces:
            yield Evidence(f"{self.name}/network/{path}", text.encode())

    def machine(self, name: str) -> NodeMachine:
        """The machine itself, or its pod of that name."""
        return NodeMachine(name, self)

    def run_in_pods(
        self, pods: Sequence[str], command: Sequence[str], deadline: Deadline
    ) -> Mapping[str, Completed]:
        """Run a command in pods, or in all Kubernetes pods; see :class:`NodeMachine`."""
        order = Order(_share(deadline), pods=tuple(pods), command=tuple(command))
        completed = self._send_order("run", order, deadline).completed
        if not completed.keys() >= {*pods}:
            raise self._no_answer("run", "no exit code")
        return completed

    def _send_order(  # noqa: PLR0913  one callback per kind of line
        self,
        verb: str,
        order: Order,
        deadline: Deadline,
        *,
        phase: Heard = lambda _: None,
        progress: Callable[[int], None] = lambda _: None,
        ready: Callable[[int], None] = lambda _: None,
        taken: Callable[[Taken], None] | None = None,
    ) -> _Answer:
        """Have the agent run a verb; ship the agent first if it is missing."""
        place = str(archive_path(archive_digest()))
        answer = _Answer(self.name, phase, progress, ready, taken)
        for shipped in (False, True):
            completed = self.shell.stream(
                ["sh", "-c", _START, place, verb],
                deadline,
                answer.hear,
                encode(order),
            )
            if completed.code != _NOT_THERE or shipped:
                break
            self.shell.run(["mkdir", "-p", "-m", "700", str(DIRECTORY)], deadline)
            self.shell.put(build_archive(), place, 0o600, deadline)
        if answer.failed is not None:
            raise answer.failed
        if completed.code == _NO_PYTHON:
            raise BrokenError(
                f"starting the agent on machine '{self.name}'",
                "the machine has no 'python3'",
                "install Python 3.11 or newer in the image",
            )
        if completed.code in _ALARMED:
            raise DeadlineError(
                f"running '{verb}' by the agent on machine '{self.name}'",
                f"it had not ended after {order.seconds:.0f} s",
                "a machine that is short of processors takes longer: stop what else runs, and "
                "repeat the command",
            )
        if completed.code or not answer.done:
            tail = completed.stderr.strip().splitlines()[-1:]
            trouble = "; ".join(line for line in (answer.strange, *tail) if line)
            raise self._no_answer(verb, f"exit code {completed.code}; {trouble or 'no output'}")
        return answer

    def _no_answer(self, verb: str, happened: str) -> BrokenError:
        return BrokenError(
            f"running '{verb}' by the agent on machine '{self.name}'",
            f"it ended without an answer: {happened}",
            "run 'lab up' again",
        )


@dataclass(frozen=True, slots=True)
class NodeMachine:
    """The machine itself, or one of its pods, to run commands in."""

    name: str
    control: NodeControl

    def run(self, command: Sequence[str], deadline: Deadline) -> Completed:
        """Run a command and wait for it.

        Raises DeadlineError when it does not finish in time; it is killed. Raises BrokenError when
        the machine is unreachable, or has no such pod.
        """
        if self._is_pod:
            return self.control.run_in_pods([self.name], command, deadline)[self.name]
        seconds = str(math.ceil(deadline.left()) + 1)
        return self.control.shell.run(["timeout", "-s", "KILL", seconds, *command], deadline)

    def attach(self, command: Sequence[str]) -> int:
        """Run a command on this terminal, or a shell if ``command`` is empty."""
        return self.control.shell.attach(self._words(command))

    def command_line(self, command: Sequence[str]) -> str:
        """The equivalent shell command."""
        return shlex.join([*self.control.command_prefix, *self._words(command)])

    @property
    def _is_pod(self) -> bool:
        return self.name != self.control.name

    def _words(self, command: Sequence[str]) -> list[str]:
        return [str(ENTER), self.name, *command] if self._is_pod else list(command)


def _share(deadline: Deadline) -> float:
    return deadline.left() * _AGENTS_SHARE


def join_taken(taps: Sequence[Tap], parts: Sequence[Taken]) -> tuple[Taken, ...]:
    """Join the parts that were reported for each tap."""
    own = {tap: [part for part in parts if part.tap == tap] for tap in taps}
    return tuple(
        Taken(
            tap,
            tuple(frame for taken in own[tap] for frame in taken.frames),
            sum(taken.missed for taken in own[tap]),
            next((taken.trouble for taken in own[tap] if taken.trouble), ""),
        )
        for tap in taps
    )
