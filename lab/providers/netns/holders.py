"""Holder processes: find them in /proc, start, enter and end them.

A process's command line and environment prove nothing: anybody can start one with any arguments.
A process counts as a holder only if /proc also confirms it; see :func:`list_holders`.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from lab._dataclass import dataclass
from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError
from lab.providers.netns import isolation
from lab.providers.netns.child_calls import Listener, Tell, call_in_child, go_apart
from lab.providers.netns.holder_program import MARKER, NODE_MARKER
from lab.providers.provider import LabHandle, Mark
from lab.providers.wire import decode

T = TypeVar("T")

TOKEN_VARIABLE = "HYBRIDLAB_TOKEN"  # noqa: S105  the name of a variable
"""Holds the lab's token in a holder's environment, which no other user can read."""

_STATE, _STARTED = 0, 19
"""Fields of /proc/PID/stat, counted from after the name in brackets (proc(5): 3 and 22)."""
_PROGRAM = Path(__file__).with_name("holder_program.py")
_EARLIER_NAME = "holder.py"
"""Of the program of labs that an earlier version brought up."""
_INTERPRETERS = ("python", "pypy")
_WORDS = 7
"""Words of a holder's command."""
_LONGEST_COMMAND = 1 << 16
"""Bytes; a holder's command has three paths of at most 4,096 bytes and a name."""


@dataclass(frozen=True, slots=True)
class HolderKind:
    """One kind of holder: the command that starts it, and the namespaces it must have."""

    marker: str
    namespaces: tuple[str, ...]
    """Names in /proc/PID/ns of its own namespaces, besides the pid namespace."""
    program: Path = _PROGRAM

    def command(self, python: str, lab: str, directory: Path) -> list[str]:
        """The command that starts a holder; the token goes into its environment."""
        return [python, "-I", "-S", str(self.program), self.marker, lab, str(directory)]

    def claim(self, words: list[bytes]) -> tuple[str, str, Path] | None:
        """Lab, token and directory from a holder's command line; None for any other command.

        The token is empty except for a holder of an earlier version, which has it as an argument.
        """
        if len(words) not in {_WORDS, _WORDS + 1}:
            return None
        program, marker, lab, *token, directory = (os.fsdecode(word) for word in words[3:])
        options, path = words[1:3], Path(program)
        known = path.name in {self.program.name, _EARLIER_NAME}
        if (options, known, marker) != ([b"-I", b"-S"], True, self.marker):
            return None
        return lab, "".join(token), Path(directory)


LAB_HOLDER = HolderKind(MARKER, ("mnt", "net"))
NODE_HOLDER = HolderKind(NODE_MARKER, ("mnt",))


@dataclass(frozen=True, slots=True)
class HolderEntry:
    """Entry into one holder, identified by process id (as seen here) and start time."""

    pid: int
    started: int
    """In clock ticks since boot; distinguishes it from a later process with the same id."""

    @overload
    def call(
        self,
        action: str,
        function: Callable[[Tell], object],
        deadline: Deadline,
        *,
        told: Any = None,
        heard: Tell = ...,
        apart: bool = False,
    ) -> None: ...

    @overload
    def call(
        self,
        action: str,
        function: Callable[[Tell], T],
        deadline: Deadline,
        *,
        answer: type[T],
        told: Any = None,
        heard: Tell = ...,
        apart: bool = False,
    ) -> T: ...

    def call(  # noqa: PLR0913  what to run, what is expected of it, and where
        self,
        action: str,
        function: Callable[[Tell], object],
        deadline: Deadline,
        *,
        answer: Any = None,
        told: Any = None,
        heard: Tell = lambda _: None,
        apart: bool = False,
    ) -> object:
        """Run ``function`` inside the holder's namespaces and return what it returns.

        Parameters
        ----------
        action
            For errors: what is being done.
        function
            What to run. It may send values with what it is called with.
        deadline
            For the whole call.
        answer
            The type of what it returns, one that :func:`lab.providers.wire.decode` reads. Without
            one None is returned, whatever the function returns.
        told
            The type of what it sends.
        heard
            Called in the caller with every value that it sends.
        apart
            Run it as process 1 of new pid, mount and UTS namespaces: all processes that it starts
            end with it.

        Raises DeadlineError when the function does not return in time; it is killed. Raises
        BrokenError when the holder does not exist, the child died, or what came from it is not of
        the expected type. Raises what the function raises, as
        :class:`~lab.providers.wire.Failure` has it.
        """
        stages = (self._go_in, go_apart) if apart else (self._go_in,)
        return call_in_child(action, stages, function, deadline, Listener(answer, told, heard))

    def _go_in(self) -> None:
        try:
            process = os.pidfd_open(self.pid)
            root = os.open(f"/proc/{self.pid}/root", os.O_PATH | os.O_CLOEXEC)
            user = os.stat(f"/proc/{self.pid}/ns/user").st_ino  # noqa: PTH116  no Path needed
            runs = start_time(self.pid) == self.started
        except (ProcessLookupError, FileNotFoundError):
            runs = False
        if not runs:
            raise BrokenError(
                f"entering the lab's holder, process {self.pid}",
                "it no longer exists",
                "run 'lab up' again",
            )
        flags = isolation.CLONE_NEWNS | isolation.CLONE_NEWNET | isolation.CLONE_NEWPID
        foreign = user != os.stat("/proc/self/ns/user").st_ino  # noqa: PTH116  as above
        isolation.setns(process, flags | (isolation.CLONE_NEWUSER if foreign else 0))
        os.close(process)
        if foreign:
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
        os.fchdir(root)  # setns alone does not enter a chroot that the holder was started in
        os.chroot(".")
        os.close(root)


@dataclass(frozen=True, slots=True)
class HolderProcess(HolderEntry):
    """One running holder. Lab, token and directory come from its command line and environment."""

    user: int
    lab: str
    token: str
    """Empty for a hidden holder."""
    directory: Path

    def gone(self) -> bool:
        """True if it has exited; by then its whole pid namespace has."""
        return start_time(self.pid) != self.started

    def age(self) -> float:
        """Age in seconds."""
        uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
        return max(0.0, uptime - self.started / os.sysconf("SC_CLK_TCK"))


def start_time(pid: int, proc: str = "/proc") -> int | None:
    """The process's start time in clock ticks since boot; None if it is not running."""
    fields = _read_fields(pid, proc)
    return None if fields is None or fields[_STATE] in "ZX" else int(fields[_STARTED])


def is_stopped(pid: int, proc: str = "/proc") -> bool:
    """True if the process is stopped by a signal or a debugger."""
    fields = _read_fields(pid, proc)
    return fields is not None and fields[_STATE] in "Tt"


def _read_fields(pid: int, proc: str) -> list[str] | None:
    try:
        stat = Path(f"{proc}/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return stat.rpartition(")")[2].split()


def list_holders(
    kind: HolderKind = LAB_HOLDER,
    *,
    starting: bool = False,
    hidden: bool = False,
    all_users: bool = False,
) -> tuple[HolderProcess, ...]:
    """The caller's holders, oldest first.

    A holder runs the holder program in a Python interpreter, has a token in its environment, is
    process 1 of a pid namespace, and has its own namespaces.

    Parameters
    ----------
    starting
        Include holders that are still entering their namespaces.
    hidden
        Include holders that cannot be inspected because the caller is in another user namespace.
        They are recognised by their command line alone, and have no token.
    all_users
        Include other users' holders; only root sees them.

    """
    holders = _iterate_holders(kind, starting=starting, all_users=all_users)
    wanted = (holder for holder in holders if holder.token or hidden)
    return tuple(sorted(wanted, key=lambda holder: (holder.started, holder.pid)))


def _iterate_holders(
    kind: HolderKind, *, starting: bool, all_users: bool, among: Iterable[str] | None = None
) -> Iterator[HolderProcess]:
    caller = os.geteuid()
    for name in among or os.listdir("/proc"):  # noqa: PTH208  names are wanted, not paths
        if not name.isdigit():
            continue
        process = f"/proc/{name}"
        with suppress(FileNotFoundError, ProcessLookupError):  # it has exited meanwhile
            if not all_users and os.stat(process).st_uid != caller:  # noqa: PTH116  quick
                continue  # do not even read another user's command line
            claim = kind.claim(_read_words(process))
            if claim is None:
                continue
            lab, earlier, directory = claim
            since, status = start_time(int(name)), _read_status(process)
            user, *others = (int(word) for word in status["Uid"].split())
            if {user} != {user, *others} or not (all_users or user == caller):
                continue
            token = ""
            with suppress(PermissionError):
                if not (_runs_python(process) and (starting or _is_settled(kind, process, status))):
                    continue
                token = _read_token(process) or earlier
            if since is not None and start_time(int(name)) == since:
                yield HolderProcess(int(name), since, user, lab, token, directory)


def _read_words(process: str) -> list[bytes]:
    """The command of a process; read of every process, so without pathlib, which takes longer."""
    descriptor = os.open(f"{process}/cmdline", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _LONGEST_COMMAND).split(b"\0")[:-1]
    finally:
        os.close(descriptor)


def _read_status(process: str) -> Mapping[str, str]:
    lines = Path(process, "status").read_text(encoding="utf-8", errors="replace").splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def _runs_python(process: str) -> bool:
    """True if its executable is a Python interpreter, even one deleted by an upgrade."""
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


def _read_token(process: str) -> str:
    prefix = f"{TOKEN_VARIABLE}=".encode()
    words = Path(process, "environ").read_bytes().split(b"\0")
    tokens = (word for word in words if word.startswith(prefix))
    return next((os.fsdecode(word.removeprefix(prefix)) for word in tokens), "")


_START_SECONDS = 60.0
"""Starting takes 0.1 s, and more than 10 s on a machine under fivefold load."""
_END_SECONDS = 20.0


def start_holder(
    lab: LabHandle,
    python: str,
    kind: HolderKind = LAB_HOLDER,
    seconds: float = _START_SECONDS,
    before: Sequence[str] = (),
) -> HolderEntry:
    """Start a holder for the lab and return its entry.

    ``before`` is a command prefix to run the holder with.

    Raises DeadlineError when it prints nothing within ``seconds``; it is killed. Raises
    PreflightError when the kernel refuses its namespaces; includes the fix. Raises BrokenError when
    it exits without output.
    """
    action = f"starting the holder of lab '{lab.name}'"
    with subprocess.Popen(  # noqa: S603  our own program
        [*before, *kind.command(python, lab.name, lab.directory)],
        cwd="/",
        env={**os.environ, TOKEN_VARIABLE: lab.token},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        started = _first_line(action, process, seconds)
    if isinstance(started, _Refused):
        raise refused_namespaces(action, started.error())
    since = start_time(started.pid)
    if since is None:
        raise BrokenError(action, f"process {started.pid} ended at once", "run 'lab up' again")
    _KNOWN[lab.token] = str(started.pid)
    return HolderEntry(started.pid, since)


@dataclass(frozen=True, slots=True)
class _Ready:
    ready: Literal[True]
    pid: int


@dataclass(frozen=True, slots=True)
class _Refused:
    ready: Literal[False]
    call: str
    errno: int

    def error(self) -> OSError:
        """The kernel's refusal, with the call as its file name."""
        return OSError(self.errno, os.strerror(self.errno), self.call or None)


def refused_namespaces(action: str, error: OSError) -> PreflightError:
    """The error to report if the kernel refuses namespaces, with its fix.

    ``error``: its file name is the refused call; without one, no process could be started.
    """
    call = error.filename or "fork"
    return PreflightError(
        action,
        f"the kernel refused '{call}': {error.strerror}",
        isolation.namespaces_hint(call, error.errno or 0),
    )


def _first_line(action: str, process: subprocess.Popen[bytes], seconds: float) -> _Ready | _Refused:
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    if not poll.poll(seconds * 1000):
        process.kill()
        raise DeadlineError(action, f"not ready within {seconds:g} s; it printed nothing")
    line = process.stdout.readline()
    if not line:
        raise BrokenError(action, "it ended without output", f"try: {process.args!r}")
    kind: Any = _Ready | _Refused
    try:
        started: _Ready | _Refused = decode(line, kind)
    except ValueError as error:
        raise BrokenError(action, f"its answer cannot be read: {error}") from None
    return started


def find_holder(lab: LabHandle, kind: HolderKind = LAB_HOLDER) -> HolderProcess | None:
    """The caller's holder of the lab, by token, or by its command line if it is hidden.

    Never returns another user's holder: nothing is done in another user's lab.
    """

    def is_it(holder: HolderProcess) -> bool:
        claim = (holder.lab, holder.directory) == (lab.name, lab.directory)
        return holder.token == lab.token if holder.token else claim

    known = _KNOWN.get(lab.token)
    known_holders = (
        _iterate_holders(kind, starting=False, all_users=False, among=(known,)) if known else ()
    )
    holder = next(filter(is_it, known_holders), None) or next(
        filter(is_it, list_holders(kind, hidden=True)), None
    )
    if holder:
        _KNOWN[lab.token] = str(holder.pid)
    return holder


_KNOWN: dict[str, str] = {}
"""Where a lab's holder, by its token, was last: a look at every process takes long on a busy host.
"""


def enter_holder(lab: LabHandle, kind: HolderKind = LAB_HOLDER) -> HolderProcess:
    """Find the lab's holder and return its entry.

    Raises BrokenError if the lab has none.
    """
    holder = find_holder(lab, kind)
    if holder is None:
        raise BrokenError(
            f"entering lab '{lab.name}'",
            "its holder is not running",
            f"'lab status {lab.name}' says how to bring it up again",
        )
    return holder


def destroy_holders(
    lab: LabHandle, owner: str, kind: HolderKind = LAB_HOLDER
) -> tuple[HolderProcess, ...]:
    """End the owner's holders with the lab's token; an empty ``owner`` is the caller.

    Raises DeadlineError when a holder does not exit in time.
    """
    return end_all_holders(
        lambda: (
            holder
            for holder in list_holders(kind, starting=True, all_users=bool(owner))
            if holder.token == lab.token and _owner_of(holder) == owner
        )
    )


def list_marks(kind: HolderKind = LAB_HOLDER, *, all_users: bool) -> tuple[Mark, ...]:
    """A mark for each of the caller's holders; for root with ``all_users``, everybody's."""
    return tuple(
        Mark(
            lab=holder.lab,
            token=holder.token,
            directory=holder.directory,
            object=f"process {holder.pid} (holder)",
            age_seconds=holder.age(),
            owner=_owner_of(holder),
        )
        for holder in list_holders(kind, all_users=all_users)
    )


def end_all_holders(look: Callable[[], Iterable[HolderProcess]]) -> tuple[HolderProcess, ...]:
    """Kill every holder that ``look`` finds, wait until all have exited, and return them.

    ``look`` is called twice: a holder that is just forking process 1 can be missed by one scan of
    /proc, too late for the parent and too early for the child.

    Raises DeadlineError when a holder does not exit in time.
    """
    ended: dict[HolderProcess, None] = {}
    for _ in range(2):
        holders = tuple(look())
        for holder in holders:
            _kill(holder)
        deadline = Deadline(_END_SECONDS)
        for holder in holders:
            deadline.wait(
                f"ending the holder of lab '{holder.lab}', process {holder.pid}",
                holder.gone,
                every=0.001,
                hint=f"see what it waits for: cat /proc/{holder.pid}/stack",
            )
        ended |= dict.fromkeys(holders)
    return tuple(ended)


def _kill(holder: HolderProcess) -> None:
    """Kill this process, never a later one with the same id."""
    with suppress(ProcessLookupError):
        process = os.pidfd_open(holder.pid)
        try:
            if not holder.gone():
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)


def _owner_of(holder: HolderProcess) -> str:
    """A mark's owner: empty for the caller, else the user's name, or uid if it has no name."""
    if holder.user == os.geteuid():
        return ""
    import pwd  # noqa: PLC0415  only for objects of other users

    try:
        return pwd.getpwuid(holder.user).pw_name
    except KeyError:
        return str(holder.user)
