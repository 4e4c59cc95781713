"""A lab's daemons as lines of a shell script: files, commands, and the wait until each is ready.

Whoever runs them as root, after the script of the network, has the same daemons. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from lab.topology.daemon import LOG, Daemon
from lab.topology.intent import MachineIntent

_FILE_END = "END_OF_FILE"
_PREAMBLE = """
# Daemons: every machine that has one has a /run of its own, below this directory.
runs=$(mktemp -d)
on() { # on MACHINE DAEMON COMMAND...: in the daemon's directory
    ip netns exec "$1" sh -c 'mount --bind "$0" /run && cd "/run/$2" && shift 2 && exec "$@"' \\
        "$runs/$1" "$@"
}"""


def daemon_lines(machines: Sequence[MachineIntent], *, whole: bool) -> Iterator[str]:
    """The lines, stage by stage; none at all where no machine has a daemon.

    Only where they are the ``whole`` lab's is each waited for: alone it may never be ready.
    """
    placed = [(one.name, daemon) for one in machines for daemon in one.daemons]
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
            yield from (_on(name, daemon, command) for command in daemon.after)


def _start(machine: str, daemon: Daemon) -> Iterator[str]:
    yield ""
    yield f"# {machine}: {daemon.name}, of the package {daemon.package}"
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
    yield from (_on(machine, daemon, command) for command in daemon.before)
    yield f"{_on(machine, daemon, daemon.command)} >{home}/{LOG} 2>&1 &"


def _on(machine: str, daemon: Daemon, command: Sequence[str]) -> str:
    settings = [f"{name}={value}" for name, value in daemon.environment]
    words = ["env", *settings, *command] if settings else command
    return f"on {shlex.join([machine, daemon.name, *words])}"


def _wait(machine: str, daemon: Daemon) -> str:
    text = _on(machine, daemon, daemon.ready.command or ("cat", LOG))
    pattern = shlex.quote(f"(?m){daemon.ready.pattern}")
    return f"until {text} | grep -qzP {pattern}; do sleep 0.1; done"
