"""Facts about processes, from /proc alone.

What a process says of itself is a claim: anybody can start one with any words. A process counts
as a holder only if the kernel says that it is one; see :func:`holders`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab.providers.netns.holder import MARKER, NODE_MARKER

TOKEN_VARIABLE = "HYBRIDLAB_TOKEN"  # noqa: S105  the name of a variable
"""A holder has its lab's token in its environment, which no other user can read."""

_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat, counted after the name in brackets (proc(5): 3 and 22)."""
_PROGRAM = Path(__file__).with_name("holder.py")
_INTERPRETERS = ("python", "pypy")


@dataclass(frozen=True, slots=True)
class HolderKind:
    """One kind of holder: how it is started, and what a running one has of its own."""

    marker: str
    namespaces: tuple[str, ...]
    """As /proc/PID/ns calls them, besides the pid namespace."""
    program: Path = _PROGRAM

    def command(self, python: str, lab: str, directory: Path) -> list[str]:
        """The command that starts one; the token goes into its environment."""
        return [python, "-I", "-S", str(self.program), self.marker, lab, str(directory)]

    def claim(self, words: list[bytes]) -> tuple[str, str, Path] | None:
        """The lab, token and directory that such a command names; None for any other command.

        The token is empty but for a holder of an earlier version, which has it among its words.
        """
        if len(words) - len(self.command("", "", Path())) not in {0, 1}:
            return None
        program, marker, lab, *token, directory = (os.fsdecode(word) for word in words[3:])
        options, path = words[1:3], Path(program)
        if (options, path.name, marker) != ([b"-I", b"-S"], self.program.name, self.marker):
            return None
        return lab, "".join(token), Path(directory)


LAB_HOLDER = HolderKind(MARKER, ("mnt", "net"))
NODE_HOLDER = HolderKind(NODE_MARKER, ("mnt",))


@dataclass(frozen=True, slots=True)
class HolderProcess:
    """One running holder. Lab, token and directory are what it says of itself."""

    pid: int
    started: int
    """In clock ticks since boot."""
    user: int
    """The user that it runs as."""
    lab: str
    token: str
    """Empty for a hidden one."""
    directory: Path

    def gone(self) -> bool:
        """Whether it has ended; it takes its whole pid namespace with it first."""
        return started(self.pid) != self.started

    def age(self) -> float:
        """Seconds since it started."""
        uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
        return max(0.0, uptime - self.started / os.sysconf("SC_CLK_TCK"))


def started(pid: int, proc: str = "/proc") -> int | None:
    """When the process started, in clock ticks since boot; None if it is not running."""
    fields = _fields(pid, proc)
    return None if fields is None or fields[_STATE] in "ZX" else int(fields[_STARTED])


def halted(pid: int, proc: str = "/proc") -> bool:
    """Whether the process is stopped, by a signal or a debugger: there, and doing nothing."""
    fields = _fields(pid, proc)
    return fields is not None and fields[_STATE] in "Tt"


def _fields(pid: int, proc: str) -> list[str] | None:
    try:
        stat = Path(f"{proc}/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return stat.rpartition(")")[2].split()


def holders(
    kind: HolderKind = LAB_HOLDER,
    *,
    starting: bool = False,
    hidden: bool = False,
    all_users: bool = False,
) -> tuple[HolderProcess, ...]:
    """Every holder of the caller's, oldest first.

    It runs the holder's program by a Python interpreter, with a token in its environment, is
    process 1 of a pid namespace and has namespaces of its own.

    Parameters
    ----------
    starting
        Also those that are just going into their namespaces.
    hidden
        Also those that cannot be looked into, as the caller is in another user namespace. They
        are known by their words alone, and have no token.
    all_users
        Also other users', which only root can see.

    """
    found = _holders(kind, starting=starting, all_users=all_users)
    wanted = (one for one in found if one.token or hidden)
    return tuple(sorted(wanted, key=lambda holder: (holder.started, holder.pid)))


def _holders(kind: HolderKind, *, starting: bool, all_users: bool) -> Iterator[HolderProcess]:
    caller = os.geteuid()
    for name in os.listdir("/proc"):  # noqa: PTH208  names are wanted, not paths
        if not name.isdigit():
            continue
        process = f"/proc/{name}"
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if not all_users and os.stat(process).st_uid != caller:  # noqa: PTH116  quick
                continue  # nothing that another user's process says is even read
            claim = kind.claim(Path(process, "cmdline").read_bytes().split(b"\0")[:-1])
            if claim is None:
                continue
            lab, earlier, directory = claim
            since, status = started(int(name)), _status(process)
            user, *others = (int(word) for word in status["Uid"].split())
            if {user} != {user, *others} or not (all_users or user == caller):
                continue
            token = ""
            with suppress(PermissionError):
                if not (_runs_python(process) and (starting or _is_settled(kind, process, status))):
                    continue
                token = _token(process) or earlier
            if since is not None and started(int(name)) == since:
                yield HolderProcess(int(name), since, user, lab, token, directory)


def _status(process: str) -> Mapping[str, str]:
    lines = Path(process, "status").read_text(encoding="utf-8", errors="replace").splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def _runs_python(process: str) -> bool:
    """Whether its executable is an interpreter; after an upgrade it is one that was deleted."""
    return Path(process, "exe").readlink().name.startswith(_INTERPRETERS)


def _is_settled(kind: HolderKind, process: str, status: Mapping[str, str]) -> bool:
    numbers = status["NSpid"].split()
    return (
        len(numbers) > 1
        and numbers[-1] == "1"
        and all(
            not Path(process, "ns", name).samefile(f"/proc/self/ns/{name}")
            for name in kind.namespaces
        )
    )


def _token(process: str) -> str:
    """Empty where it has none."""
    prefix = f"{TOKEN_VARIABLE}=".encode()
    words = Path(process, "environ").read_bytes().split(b"\0")
    found = (word for word in words if word.startswith(prefix))
    return next((os.fsdecode(word.removeprefix(prefix)) for word in found), "")
