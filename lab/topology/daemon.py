"""Programs of a machine besides its kernel: routing daemons, balancers, name servers. Pure data.

Every machine has its own ``/run``. A daemon's directory there is ``/run/NAME``: its files are
written into it, its commands run in it, and its output is kept in ``log``. Commands name files by
those paths, so they are the same on every provider::

    Daemon(
        name="bird",
        package="bird2",
        command=("bird", "-f", "-c", "/run/bird/bird.conf", "-s", "/run/bird/bird.ctl"),
        files=(File("bird.conf", text),),
        ready=Ready("Daemon is up", ("birdc", "-s", "/run/bird/bird.ctl", "show", "status")),
    )
"""

from __future__ import annotations

from lab._dataclass import dataclass

LOG = "log"
"""Name of the file in a daemon's directory with its standard output and error."""
READY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class File:
    """A file that exists before the daemon starts; ``name`` is relative to its directory."""

    name: str
    text: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Ready:
    """A daemon is ready when a line of a text matches ``pattern``.

    The text is the daemon's log or, with ``command``, the standard output of that command if it
    exits with code 0.
    """

    pattern: str
    """A regular expression; ``^`` and ``$`` match at line ends."""
    command: tuple[str, ...] = ()
    seconds: float = READY_SECONDS
    """Limit; a daemon that is not ready by then has failed."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """One program that runs in the foreground on its machine as long as the lab is up."""

    name: str
    """Unique on its machine, and a valid file name: ``"bird"``, ``"ovsdb-server"``."""
    package: str
    """Debian package with the program and everything that its commands call."""
    command: tuple[str, ...]
    """The first word is looked up like in a shell, and in the system directories for root's
    programs. The program must not go into the background.
    """
    ready: Ready
    files: tuple[File, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    before: tuple[tuple[str, ...], ...] = ()
    """Commands to run to completion, one after another, before it starts."""
    after: tuple[tuple[str, ...], ...] = ()
    """The same, after it is ready."""
    stage: int = 0
    """All daemons of a stage, on every machine, are ready before the next stage starts."""
    settles_seconds: float = 2.0
    """Seconds until it is ready, besides its start; BIRD takes 1 to 2 s to learn all routes
    (measured)."""
    memory_mib: int = 5
    """Resident memory; BIRD's, measured."""
    looks: tuple[tuple[str, ...], ...] = ()
    """Commands that show its state, for evidence; none may block."""

    @property
    def directory(self) -> str:
        """Its directory on its machine."""
        return f"/run/{self.name}"

    def programs(self) -> tuple[str, ...]:
        """Every program that it or its commands start, once each."""
        commands = (self.command, *self.before, *self.after, self.ready.command)
        return tuple(dict.fromkeys(command[0] for command in commands if command))
