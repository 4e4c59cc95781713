"""The lab's responder: the process that answers in every namespace, started and looked at.

It runs inside the holder's pid namespace; which process it is stands in a file in the
holder's /run, where the outside can read it through /proc.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.providers.netns import capacity
from lab.providers.netns.processes import started
from lab.providers.provider import DNS_PORT, PROBE_PORT
from lab.topology.intent import Intent

PROGRAM = Path(__file__).with_name("responder.py")
_RECORD = "/run/responder.json"
_CONFIGURATION = "/run/responder-configuration.json"
_LOG = "/run/responder.log"


@dataclass(frozen=True, slots=True)
class Answering:
    """What the responder answers in one namespace."""

    namespace: str
    name: str
    tcp: tuple[int, ...]
    udp: tuple[int, ...]
    dns: dict[str, str] | None
    """Fully qualified name, with its final dot, to address: answered on port 53 of both
    protocols. None where no names are served."""


def answering(intent: Intent) -> tuple[Answering, ...]:
    """Every namespace that answers, in order: pods, nodes and the client. Pure.

    The router answers nothing. Services' names are those of their own and the DNS pod's domain:
    ``NAME.default.svc.DOMAIN``, and ``kube-dns.kube-system.svc.DOMAIN``.
    """
    served = _names(intent)
    found: list[Answering] = []
    for machine in intent.machines:
        if machine.kind != "router":
            found.append(_plain(machine.name))
        for pod in machine.pods:
            if pod.role == "dns":
                found.append(Answering(pod.name, pod.name, (), (), served))
            else:
                found.append(_plain(pod.name))
    return tuple(found)


def _plain(name: str) -> Answering:
    return Answering(name, name, (PROBE_PORT,), (PROBE_PORT,), None)


def _names(intent: Intent) -> dict[str, str]:
    found: dict[str, str] = {}
    for machine in intent.machines:
        for service in machine.translation.services if machine.translation else ():
            space = "kube-system" if service.port == DNS_PORT else "default"
            found[f"{service.name}.{space}.svc.{intent.domain}.".lower()] = service.address
    return found


def configuration(intent: Intent, only: frozenset[str] | None = None) -> str:
    """The responder's configuration file, JSON; of the namespaces in ``only`` alone. Pure."""
    return json.dumps(
        [
            {
                "namespace": one.namespace,
                "name": one.name,
                "tcp": one.tcp,
                "udp": one.udp,
                "dns": one.dns,
            }
            for one in answering(intent)
            if only is None or one.namespace in only
        ]
    )


def start(python: str, configured: str, deadline: Deadline) -> None:
    """Inside the holder: end an older responder, start a new one, and wait until it listens.

    ``configured`` is the text of the configuration; its file is in the holder's /run, which
    the lab's own directory may be hidden under.

    Raises
    ------
    DeadlineError
        When it has not said that it is ready in time.
    BrokenError
        When it ended instead; with the last of what it wrote.

    """
    _end_older()
    capacity.raise_descriptors()
    Path(_CONFIGURATION).write_text(configured, encoding="utf-8")
    command = [python, "-I", str(PROGRAM), _CONFIGURATION]
    with open(_LOG, "wb") as log:  # noqa: PTH123  a plain file for a child's standard error
        process = subprocess.Popen(  # noqa: S603  our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    since = started(process.pid)
    Path(_RECORD).write_text(json.dumps({"pid": process.pid, "started": since}), encoding="ascii")
    _await_ready(process, deadline)


def _end_older() -> None:
    with suppress(FileNotFoundError, ProcessLookupError):
        record = json.loads(Path(_RECORD).read_text(encoding="ascii"))
        if started(record["pid"]) == record["started"]:
            os.kill(record["pid"], signal.SIGKILL)
            Deadline(5.0).wait(
                "ending the lab's older responder", lambda: started(record["pid"]) is None
            )


def _await_ready(process: subprocess.Popen[bytes], deadline: Deadline) -> None:
    doing = "starting the lab's responder"
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    if not poll.poll(deadline.left() * 1000):
        process.kill()
        raise DeadlineError(doing, f"not ready within {deadline.seconds:g} s; last seen: {_log()}")
    line = process.stdout.readline()
    if line.strip() != b"ready":
        process.kill()
        raise BrokenError(doing, f"it ended instead of listening: {_log()}")


def _log() -> str:
    lines = Path(_LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it wrote nothing"


def alive(holder: int) -> bool:
    """From outside: whether the responder of the lab with that holder is running."""
    return running(holder) is not None


def running(holder: int) -> tuple[int, int] | None:
    """From outside: the running responder's id inside the holder, and when it started.

    None where it is not running; the start is in clock ticks since boot.
    """
    try:
        record = json.loads(Path(f"/proc/{holder}/root{_RECORD}").read_text(encoding="ascii"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    pid: int = record["pid"]
    since: int = record["started"]
    return (pid, since) if started(pid, f"/proc/{holder}/root/proc") == since else None
