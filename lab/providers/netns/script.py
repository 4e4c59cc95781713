"""A lab's operations as a shell script of ``ip``, ``bridge``, ``sysctl`` and ``nft``. Pure.

The script runs the executor's operations in the same order, then starts the daemons. Run as root,
on a machine where none of the namespace names is taken, it creates the same network.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from shlex import quote

from lab.providers.netns.compile import compile_intent
from lab.providers.netns.namespaces import FABRIC
from lab.providers.netns.operations import MasterSet, NamespaceOperations, Operation, VethAdd
from lab.providers.netns.windows import realise
from lab.topology.daemon import LOG, Daemon
from lab.topology.intent import Intent, MachineIntent

_FILE_END = "END_OF_FILE"
_PREAMBLE = """
# Daemons: every machine with a daemon has its own /run, below this directory.
runs=$(mktemp -d)
on() { # on MACHINE DAEMON COMMAND...: in the daemon's directory
    ip netns exec "$1" sh -c 'mount --bind "$0" /run && cd "/run/$2" && shift 2 && exec "$@"' \\
        "$runs/$1" "$@"
}"""


def daemon_lines(machines: Sequence[MachineIntent], *, whole: bool) -> Iterator[str]:
    """The lines that start the daemons, stage by stage; none if no machine has a daemon.

    With ``whole``, for the whole lab, the script waits until each is ready; one machine's daemons
    alone might never be.
    """
    placed = [(machine.name, daemon) for machine in machines for daemon in machine.daemons]
    if placed:
        yield from _PREAMBLE.splitlines()
    for stage in sorted({daemon.stage for _, daemon in placed}):
        here = [(name, daemon) for name, daemon in placed if daemon.stage == stage]
        for name, daemon in here:
            yield from _start(name, daemon)
        yield ""
        for name, daemon in here if whole else ():
            yield _wait(name, daemon)
        for name, daemon in here:
            yield from (_run_on(name, daemon, command) for command in daemon.after)


def _start(machine: str, daemon: Daemon) -> Iterator[str]:
    yield ""
    yield f"# {machine}: {daemon.name}, from package {daemon.package}"
    home = f'"$runs"/{shlex.quote(machine)}/{shlex.quote(daemon.name)}'
    yield f"mkdir -p {home}"
    for file in daemon.files:
        path = f"{home}/{shlex.quote(file.name)}"
        if "/" in file.name:
            yield f"mkdir -p {home}/{shlex.quote(file.name.rpartition('/')[0])}"
        yield f"cat >{path} <<'{_FILE_END}'"
        yield from file.text.splitlines()
        yield _FILE_END
        yield f"chmod {file.mode:o} {path}"
    yield from (_run_on(machine, daemon, command) for command in daemon.before)
    yield f"{_run_on(machine, daemon, daemon.command)} >{home}/{LOG} 2>&1 &"


def _run_on(machine: str, daemon: Daemon, command: Sequence[str]) -> str:
    settings = [f"{name}={value}" for name, value in daemon.environment]
    words = ["env", *settings, *command] if settings else command
    return f"on {shlex.join([machine, daemon.name, *words])}"


def _wait(machine: str, daemon: Daemon) -> str:
    text = _run_on(machine, daemon, daemon.ready.command or ("cat", LOG))
    pattern = shlex.quote(f"(?m){daemon.ready.pattern}")
    return f"until {text} | grep -qzP {pattern}; do sleep 0.1; done"


def script(intent: Intent, only: str | None = None) -> str:
    """The script for the whole lab, or for one machine, its pods and its part of the fabric.

    Windows machines obey the Windows rules. Raises KeyError if there is no machine of that name.
    """
    real = realise(intent)
    wanted = compile_intent(real)
    if only is not None:
        wanted = _of_machine(intent, wanted, only)
    lines = ["#!/bin/sh", f"# Scenario '{intent.scenario}': the network as commands; run as root."]
    names = " ".join(quote(operations.namespace) for operations in wanted)
    machines = [machine for machine in real.machines if only in {None, machine.name}]
    daemons = list(daemon_lines(machines, whole=only is None))
    end = "ip netns pids $name | xargs -r kill; " if daemons else ""
    lines += [
        f"# To remove it: for name in {names}; do {end}ip netns delete $name; done",
        "set -eu",
        f"for name in {names}; do ip netns add $name; done",
    ]
    for operations in wanted:
        lines += ["", f"# {operations.namespace}"]
        for operation in operations.operations:
            lines += operation.commands(operations.namespace)
    lines += daemons
    return "".join(f"{line}\n" for line in lines)


def _of_machine(
    intent: Intent, wanted: tuple[NamespaceOperations, ...], name: str
) -> tuple[NamespaceOperations, ...]:
    machine = intent.machine(name)
    beneath = {FABRIC, *(card.host for card in machine.interfaces if card.host)}
    names = {name, *(pod.name for pod in machine.pods), *beneath}
    return tuple(
        replace(operations, operations=tuple(_part(operations.operations, names)))
        for operations in wanted
        if operations.namespace in names
    )


def _part(operations: tuple[Operation, ...], names: set[str]) -> Iterator[Operation]:
    """A namespace's operations without links to namespaces outside ``names``."""
    foreign: set[str] = set()
    for operation in operations:
        if isinstance(operation, VethAdd) and operation.peer_namespace not in names:
            foreign.add(operation.name)
        elif not (isinstance(operation, MasterSet) and operation.device in foreign):
            yield operation
