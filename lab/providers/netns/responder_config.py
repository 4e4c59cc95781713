"""Configure, start and check the lab's responder, the process that answers in every namespace.

It runs inside the holder's pid namespace; its process id is in a file in the holder's /run, which
commands outside read through /proc.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.providers.netns import isolation
from lab.providers.netns.holders import is_stopped, start_time
from lab.providers.provider import PROBE_PORT
from lab.scenario.reserved import DNS_SERVICE, SECOND_POD_PORT
from lab.topology import proxying
from lab.topology.intent import Intent, MachineIntent, ProxiedService

PROGRAM = Path(__file__).with_name("responder.py")
_RECORD = "/run/responder.json"
_CONFIGURATION = "/run/responder-configuration.json"
_LOG = "/run/responder.log"


def configuration(intent: Intent, only: frozenset[str] | None = None) -> str:
    """The responder's configuration as JSON, limited to the namespaces in ``only``. Pure.

    :mod:`lab.providers.netns.responder` describes the format. Pods, nodes and the client answer;
    router and hypervisors do not. A machine with an API server also answers on the API port, which
    emulates the server, unless the real one runs there. Service names are
    ``NAME.default.svc.DOMAIN`` and ``kube-dns.kube-system.svc.DOMAIN``; behind a headless Service
    each pod also has ``POD.NAME.default.svc.DOMAIN``.
    """
    entries = [one for one in _entries(intent) if only is None or one["namespace"] in only]
    return json.dumps(entries)


def _entry(
    namespace: str, name: str = "", tcp: Sequence[int] = (), udp: Sequence[int] = (), **more: object
) -> dict[str, object]:
    usual = {"namespace": namespace, "name": name or namespace, "tcp": tcp, "udp": udp}
    return {**usual, "dns": None, "health": None, "forward": None, **more}


def _entries(intent: Intent) -> Iterator[dict[str, object]]:
    front = intent.services_node
    domain = f"{intent.domain}.".lower()
    forward = {"to": front.address, "but": domain} if front else None
    services = _services(intent)
    twice = proxying.asked_on(services, SECOND_POD_PORT)
    for machine in intent.machines:
        if machine.kind != "router":
            is_api = front and not front.tls and machine.name in front.api_servers
            tcp = (PROBE_PORT, front.api_port) if front and is_api else (PROBE_PORT,)
            yield _entry(machine.name, tcp=tcp, udp=(PROBE_PORT,), health=_health(machine))
        for pod in machine.pods:
            if pod.role == "dns":
                yield _entry(pod.name, dns=names(intent), forward=forward)
            else:
                yield _entry(pod.name, tcp=(PROBE_PORT,), udp=(PROBE_PORT,))
            if pod.name in twice:
                yield _entry(pod.name, f"{pod.name}:{SECOND_POD_PORT}", tcp=(SECOND_POD_PORT,))


def _services(intent: Intent) -> Sequence[ProxiedService]:
    """Every Service that some machine translates, without duplicates."""
    found: dict[str, ProxiedService] = {}
    for machine in intent.machines:
        for service in machine.translation.services if machine.translation else ():
            found.setdefault(service.name, service)
    return tuple(found.values())


def _health(machine: MachineIntent) -> dict[int, tuple[str, int]] | None:
    found = {
        service.health_port: (service.name, len(proxying.local(service, machine.name)))
        for service in (machine.translation.services if machine.translation else ())
        if service.health_port is not None
    }
    return found or None


def names(intent: Intent) -> dict[str, tuple[str, ...]]:
    """Addresses by name in the cluster's domain, in lower case with a final dot."""
    found: dict[str, tuple[str, ...]] = {}
    for service in _services(intent):
        space = "kube-system" if service.name == DNS_SERVICE else "default"
        found[f"{service.name}.{space}.svc.{intent.domain}.".lower()] = (service.address,)
    for headless in intent.headless:
        name = f"{headless.name}.default.svc.{intent.domain}.".lower()
        found[name] = tuple(one.address for one in headless.backends)
        found |= {f"{one.pod}.{name}": (one.address,) for one in headless.backends}
    return found


def start_responder(python: str, configured: str, deadline: Deadline) -> None:
    """Inside the holder: kill an old responder, start a new one, and wait until it listens.

    ``configured`` is the text of the configuration. It is written to the holder's /run, because
    the holder's /run may hide the lab's directory.

    Raises DeadlineError when it does not report ready in time. Raises BrokenError when it exits
    instead; shows the end of its output.
    """
    _end_older()
    isolation.raise_descriptors()
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
    since = start_time(process.pid)
    Path(_RECORD).write_text(json.dumps({"pid": process.pid, "started": since}), encoding="ascii")
    _await_ready(process, deadline)


def _end_older() -> None:
    with suppress(FileNotFoundError, ProcessLookupError):
        record = json.loads(Path(_RECORD).read_text(encoding="ascii"))
        if start_time(record["pid"]) == record["started"]:
            os.kill(record["pid"], signal.SIGKILL)
            Deadline(5.0).wait(
                "ending the lab's older responder", lambda: start_time(record["pid"]) is None
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
        raise BrokenError(doing, f"it ended before it was listening: {_log()}")


def _log() -> str:
    lines = Path(_LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it wrote nothing"


def responder_is_alive(holder: int) -> bool:
    """Outside the holder: whether its responder runs and is not stopped."""
    found = running_responder(holder)
    return found is not None and not is_stopped(found[0], f"/proc/{holder}/root/proc")


def running_responder(holder: int) -> tuple[int, int] | None:
    """Outside the holder: the responder's process id inside it, and its start time.

    The start time is in clock ticks since boot. None if it is not running.
    """
    try:
        record = json.loads(Path(f"/proc/{holder}/root{_RECORD}").read_text(encoding="ascii"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    pid: int = record["pid"]
    since: int = record["started"]
    return (pid, since) if start_time(pid, f"/proc/{holder}/root/proc") == since else None
