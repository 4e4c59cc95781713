"""The agent on a machine: it runs one verb and answers line by line.

``agent.py VERB`` with an order on standard input, or ``agent.py attach POD COMMAND...``
on the caller's terminal. :mod:`lab.machines.agents.protocol` describes its output.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError, UsageError
from lab.machines.agents import files, network, pod_namespaces, protocol
from lab.machines.agents.protocol import Order
from lab.providers.capture import KernelTrace, Taken
from lab.providers.netns import isolation, namespaces
from lab.providers.netns.child_calls import Tell
from lab.providers.netns.holders import HolderEntry
from lab.providers.netns.machine import LOOKS, NetnsMachine, transcript
from lab.providers.provider import THROUGHPUT_PORT, Outcome
from lab.providers.wire import decode
from lab.shells.shell import Completed

_SECONDS = 20.0
"""For one command; each takes milliseconds on a healthy machine."""
_NOT_RUN = 127

T = TypeVar("T")
Enter = Callable[[str], None]


def _gather(_: Order, deadline: Deadline) -> None:
    """Say every piece of evidence: path and text, or the reason of a failure."""
    for path in (files.RECORD, files.STATUS_SCRIPT, files.ENTER):
        with suppress(FileNotFoundError):
            _piece(path.name, path.read_text(encoding="utf-8", errors="replace"))
    for file, command in LOOKS:
        _piece(f"machine/{file}", transcript(command, _run_command(command, deadline)))
    try:
        _gather_inside(network.enter_holder(), deadline)
    except LabError as error:
        _piece("pods.txt", f"{error}\n")


def _gather_inside(entry: HolderEntry, deadline: Deadline) -> None:
    record = files.read_record()
    own = record.machine if record else ""

    def look_around(_: object) -> tuple[tuple[str, ...], dict[str, str]]:
        own_files = sorted(Path("/run").glob("responder*"))
        files_read = {
            file.name: file.read_text(encoding="utf-8", errors="replace") for file in own_files
        }
        return namespaces.list_names(), files_read

    names, texts = entry.call(
        "inspecting the holder",
        look_around,
        deadline,
        answer=tuple[tuple[str, ...], dict[str, str]],
    )
    for name, text in texts.items():
        _piece(name, text)
    for name in names:
        if name != own:
            _gather_pod(NetnsMachine(name, entry, pod=True), deadline)


def _gather_pod(pod: NetnsMachine, deadline: Deadline) -> None:
    looks = iter(LOOKS)

    def report_result(done: Completed) -> None:
        file, command = next(looks)
        _piece(f"{pod.name}/{file}", transcript(command, done))

    pod.run_each([command for _, command in LOOKS], deadline, report_result)


def _run_command(command: Sequence[str], deadline: Deadline) -> Completed:
    own = Deadline(min(_SECONDS, deadline.left()))
    try:
        return pod_namespaces.run_here(f"running '{command[0]}'", command, own)
    except (OSError, LabError) as error:
        return Completed(_NOT_RUN, "", f"{error}\n")


_OUTCOMES_A_LINE = 256
_TURN_SECONDS = 0.2
"""Longest time until a receiver notices the stop signal."""
_LIFE_SECONDS = 1.0
"""Approximate longest time between two lines while probes are in flight."""


def main(arguments: Sequence[str]) -> int:
    """Run one verb; returns 0 on success, else the error's exit code."""
    verb, *rest = arguments
    if verb == "attach":
        return _attach(rest)
    try:
        _check_root()
        order = _read_order(sys.stdin.buffer.read())
        signal.alarm(math.ceil(order.seconds + _SECONDS))  # whoever gave the order may be gone
        _VERBS[verb](order, Deadline(order.seconds))
        _say("done", True)
    except LabError as error:
        _write(protocol.failure_line(error))
        return error.exit_code
    return 0


def _attach(words: Sequence[str]) -> int:
    pod, *command = words
    try:
        _check_root()
        return (pod_namespaces.find_pods().get(pod) or _namespace(pod)).attach(command)
    except LabError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _read_order(content: bytes) -> Order:
    try:
        return decode(content, Order)
    except ValueError as error:
        raise BrokenError(
            "reading the order",
            f"its {len(content)} bytes are no order of this version: {error}",
            "repeat the command",
        ) from None


def _check_root() -> None:
    if os.geteuid():
        raise UsageError(
            "starting the agent",
            f"it runs as user {os.geteuid()}, but needs root",
            "allow root to log in to the machine",
        )


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _say(kind: str, value: Any) -> None:
    _write(protocol.make_line(kind, value))


def _piece(path: str, text: str) -> None:
    _say("pieces", [[path, text]])


def _namespace(pod: str) -> NetnsMachine:
    return NetnsMachine(pod, network.enter_holder(), pod=True)


def _up(order: Order, deadline: Deadline) -> None:
    assert order.work is not None
    network.make_network(order.work, deadline, partial(_say, "phase"))


def _run(order: Order, deadline: Deadline) -> None:
    pods = pod_namespaces.find_pods()
    for name in order.pods or pods:
        done = (pods.get(name) or _namespace(name)).run(order.command, deadline)
        _say("completed", {name: done})


def _probe(order: Order, deadline: Deadline) -> None:
    from lab.providers.netns import prober  # noqa: PLC0415  not used by other verbs

    assert order.settings is not None
    probes, settings, ended = order.probes, order.settings, _ProgressReporter().ended
    _say("progress", 0)
    if order.cluster:
        isolation.raise_descriptors()
        with pod_namespaces.PodNamespaces(order.cluster) as pods:
            outcomes_by_key = prober.probe(
                pods.enter,
                probes,
                settings,
                lambda new: ended(len(new)),
                resolver=pods.resolver,
            )
    else:

        def inside(tell: Tell) -> dict[int, Outcome]:
            isolation.raise_descriptors()
            return prober.probe(namespaces.enter, probes, settings, lambda new: tell(len(new)))

        outcomes_by_key = network.enter_holder().call(
            "probing", inside, deadline, answer=dict[int, Outcome], told=int, heard=ended
        )
    outcomes = [*outcomes_by_key.values()]
    for start in range(0, len(outcomes), _OUTCOMES_A_LINE):
        _say("outcomes", outcomes[start : start + _OUTCOMES_A_LINE])


class _ProgressReporter:
    """Reports periodically how many probes have finished."""

    def __init__(self) -> None:
        self._said = 0.0
        self._ended = 0

    def ended(self, more: int) -> None:
        self._ended += more
        now = time.monotonic()
        if now - self._said >= _LIFE_SECONDS:
            self._said = now
            _say("progress", self._ended)


def _link(order: Order, _: Deadline) -> None:
    assert order.cluster is not None
    with pod_namespaces.PodNamespaces(order.cluster, every=True) as pods:
        _say("links", pods.links())


def _listen(order: Order, deadline: Deadline) -> None:
    from lab.providers.netns import capture  # noqa: PLC0415  not used by other verbs

    def take(enter: Enter, tell: Tell, stop: int) -> list[Taken]:
        return capture.take_packets(enter, order.taps, order.limit, tell, stop)

    for batch in _until_stopped(order, deadline, take, list[Taken]):
        for line in protocol.taken_lines(batch):
            _write(line)


def _stream(order: Order, deadline: Deadline) -> None:
    from lab.providers.netns import capture  # noqa: PLC0415  not used by other verbs

    (tap,) = order.taps

    def write(taken: Taken) -> None:
        for line in protocol.taken_lines(taken):
            _write(line)

    if order.cluster:
        with pod_namespaces.PodNamespaces(order.cluster, every=True) as pods:
            capture.stream_packets(pods.enter, tap, write)
    else:
        network.enter_holder().call(
            "streaming packets",
            lambda tell: capture.stream_packets(namespaces.enter, tap, tell),
            deadline,
            told=Taken,
            heard=write,
            apart=True,
        )


def _trace(order: Order, deadline: Deadline) -> None:
    from lab.providers.netns import capture  # noqa: PLC0415  not used by other verbs

    trace = capture.trace_kernel if order.cluster else capture.trace_apart

    def watch(enter: Enter, tell: Tell, stop: int) -> list[KernelTrace]:
        return trace(enter, order.places, order.table, tell, stop)

    _say("said", _until_stopped(order, deadline, watch, list[KernelTrace]))


def _until_stopped(
    order: Order,
    deadline: Deadline,
    watch: Callable[[Enter, Tell, int], list[T]],
    answer: type[list[T]],
) -> list[T]:
    """Watch packets in the namespaces of pods until :data:`STOP`.

    Kubernetes pods are watched from here, others from a process of the lab's holder.
    """
    from lab.providers.netns import capture  # noqa: PLC0415  not used by other verbs

    def ready(_: object) -> None:
        _say("ready", os.getpid())

    with capture.Stop() as stop:
        signal.signal(protocol.STOP, lambda *_: stop.now())
        if order.cluster:
            with pod_namespaces.PodNamespaces(order.cluster, every=True) as pods:
                return watch(pods.enter, ready, stop.reader)
        return network.enter_holder().call(
            "watching packets",
            lambda tell: watch(namespaces.enter, tell, stop.reader),
            deadline,
            answer=answer,
            told=str,
            heard=ready,
            apart=True,
        )


def _receive(order: Order, deadline: Deadline) -> None:
    """Receive streams in Kubernetes pods, whose netexec cannot measure them."""
    from lab.providers.netns.responder import (  # noqa: PLC0415  not used by other verbs
        AnsweringNamespace,
        open_sockets,
    )
    from lab.providers.netns.socket_server import SocketServer  # noqa: PLC0415  the same

    assert order.cluster is not None
    ended = threading.Event()
    signal.signal(protocol.STOP, lambda *_: ended.set())
    with pod_namespaces.PodNamespaces(order.cluster) as pods, SocketServer() as server:
        for pod in order.pods:
            pods.enter(pod)
            open_sockets(server, AnsweringNamespace(pod, pod, (THROUGHPUT_PORT,), (), None, {}))
        _say("ready", os.getpid())
        while not ended.is_set() and deadline.left() > 0:
            server.turn(_TURN_SECONDS)


_VERBS: Mapping[str, Callable[[Order, Deadline], None]] = {
    "up": _up,
    "run": _run,
    "probe": _probe,
    "link": _link,
    "gather": _gather,
    "listen": _listen,
    "stream": _stream,
    "trace": _trace,
    "receive": _receive,
}
