"""What a machine runs besides its kernel: routing daemons, balancers, name servers. Pure data.

Every machine has a ``/run`` of its own, as a computer has. A daemon's directory is ``/run/NAME``
there: its files are written into it, its commands run in it, and what it says is kept in its
``log``. Commands name files by those paths, so that they read the same on every provider::

    Daemon(
        name="bird",
        package="bird2",
        command=("bird", "-f", "-c", "/run/bird/bird.conf", "-s", "/run/bird/bird.ctl"),
        files=(File("bird.conf", text),),
        ready=Ready("Daemon is up", ("birdc", "-s", "/run/bird/bird.ctl", "show", "status")),
    )
"""

from __future__ import annotations

from dataclasses import dataclass

LOG = "log"
"""Name of the file, in a daemon's directory, that has what it wrote on both its outputs."""
READY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class File:
    """A file that is there before the daemon starts; ``name`` is relative to its directory."""

    name: str
    text: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Ready:
    """When others can rely on a daemon: when a text has a line that ``pattern`` is found in.

    The text is the daemon's log or, with ``command``, what that command writes on its standard
    output when it ends with exit code 0.
    """

    pattern: str
    """A regular expression; ``^`` and ``$`` are a line's ends."""
    command: tuple[str, ...] = ()
    seconds: float = READY_SECONDS
    """It has failed when it is not ready after so long."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """One program that runs on its machine in the foreground as long as the lab is up."""

    name: str
    """Unique on its machine, and a file name: ``"bird"``, ``"ovsdb-server"``."""
    package: str
    """Debian's package that has it and all that its other commands call."""
    command: tuple[str, ...]
    """The first word is looked up as a shell does, and in the directories of root's programs. It
    must not put itself into the background."""
    ready: Ready
    files: tuple[File, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    before: tuple[tuple[str, ...], ...] = ()
    """Commands that are run to their end, one after another, before it starts."""
    after: tuple[tuple[str, ...], ...] = ()
    """The same once it is ready."""
    stage: int = 0
    """All of a lower stage, on every machine, are ready before the first of a higher starts."""
    settles_seconds: float = 2.0
    """Until it is ready, beside what starting it takes; BIRD takes 1 to 2 s to have heard of all
    routes (measured)."""
    memory_mib: int = 5
    """Resident; BIRD's, measured."""
    looks: tuple[tuple[str, ...], ...] = ()
    """Commands that show how it does, for evidence; none may wait for ever."""

    @property
    def directory(self) -> str:
        """Where it lives, as its machine sees it."""
        return f"/run/{self.name}"

    def programs(self) -> tuple[str, ...]:
        """Every program that it or a command of it starts, once each."""
        commands = (self.command, *self.before, *self.after, self.ready.command)
        return tuple(dict.fromkeys(command[0] for command in commands if command))
