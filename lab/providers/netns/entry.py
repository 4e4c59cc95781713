"""Python functions run inside a lab's holder, or in a scratch world, from a forked child.

The child has all that the caller has loaded, so a closure will do; only what it returns, raises
or tells travels back, pickled, over a pipe. It dies with its caller, and at the deadline.
"""

from __future__ import annotations

import math
import os
import pickle
import select
import signal
import struct
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, cast

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.providers.netns import isolation, syscalls
from lab.providers.netns.processes import started

T = TypeVar("T")
Tell = Callable[[Any], None]
"""Sends one value to the caller's ``heard`` while the function is still running."""

_LENGTH = struct.Struct("=I")
_STOPS = frozenset({signal.SIGINT, signal.SIGTERM})
_AWAITED = frozenset({signal.SIGTERM, signal.SIGCHLD})
"""What a process waits for that has forked the next: blocked before it forks, so that none is
taken between a look and the wait."""


@dataclass(frozen=True, slots=True)
class HolderEntry:
    """The way into one holder: its process id as seen here, and when that process started."""

    pid: int
    started: int
    """In clock ticks since boot; tells a process from a later one with the same id."""

    def call(
        self,
        doing: str,
        function: Callable[[Tell], T],
        deadline: Deadline,
        *,
        heard: Tell = lambda _: None,
        apart: bool = False,
    ) -> T:
        """Run ``function`` inside the holder's namespaces and return what it returns.

        ``heard`` is called here with every value that the function tells. With ``apart``
        the function runs as process 1 of a further pid, mount and UTS namespace: whatever
        it starts ends with it.

        Raises
        ------
        DeadlineError
            When it has not returned in time; it has been killed.
        BrokenError
            When the holder is not there, or the child died.
        Exception
            Whatever the function raises.

        """
        stages = (self._go_in, _go_apart) if apart else (self._go_in,)
        return _call(doing, stages, function, deadline, heard)

    def _go_in(self) -> None:
        try:
            process = os.pidfd_open(self.pid)
            root = os.open(f"/proc/{self.pid}/root", os.O_PATH | os.O_CLOEXEC)
            user = os.stat(f"/proc/{self.pid}/ns/user").st_ino  # noqa: PTH116  no Path needed
            there = started(self.pid) == self.started
        except (ProcessLookupError, FileNotFoundError):
            there = False
        if not there:
            raise BrokenError(
                f"entering the lab's holder, process {self.pid}",
                "it is not there any more",
                "run 'lab up' again",
            )
        flags = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWPID
        foreign = user != os.stat("/proc/self/ns/user").st_ino  # noqa: PTH116  as above
        syscalls.setns(process, flags | (syscalls.CLONE_NEWUSER if foreign else 0))
        os.close(process)
        if foreign:
            os.setresgid(0, 0, 0)
            os.setresuid(0, 0, 0)
        os.fchdir(root)  # setns alone would leave a chroot that the holder was started in
        os.chroot(".")
        os.close(root)


def scratch(doing: str, function: Callable[[], T], deadline: Deadline) -> T:
    """Run ``function`` as process 1 of a world of its own, like a holder's, and take it away.

    Raises
    ------
    OSError
        When the kernel refuses the world; the file name is the refused call.
    DeadlineError
        When it has not returned in time; it has been killed.
    Exception
        Whatever the function raises.

    """

    def furnished(_: Tell) -> T:
        isolation.furnish()
        return function()

    return _call(doing, (isolation.isolate,), furnished, deadline, lambda _: None)


def _go_apart() -> None:
    syscalls.unshare(syscalls.CLONE_NEWPID | syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS)


def _call(
    doing: str,
    stages: tuple[Callable[[], None], ...],
    function: Callable[[Tell], T],
    deadline: Deadline,
    heard: Tell,
) -> T:
    reader, writer = os.pipe()
    caller = os.getpid()
    # Stopped between fork and descent, the child would go on as a second caller.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    child = os.fork()
    if not child:
        os.close(reader)
        _descend(stages, function, writer, caller)
    os.close(writer)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return cast(T, _listen(doing, reader, deadline, heard))
    except BaseException:
        os.kill(child, signal.SIGTERM)
        raise
    finally:
        os.close(reader)
        os.waitpid(child, 0)


def _descend(
    stages: tuple[Callable[[], None], ...],
    function: Callable[[Tell], Any],
    writer: int,
    caller: int,
) -> NoReturn:
    """In the child: go down stage by stage, a fork after each, and run the function."""

    def send(kind: str, value: Any) -> None:
        data = pickle.dumps((kind, value))
        _write_all(writer, _LENGTH.pack(len(data)) + data)

    try:
        # Ctrl-C reaches the whole process group; the caller decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        for stage in stages:
            stage()
            syscalls.die_with_parent(signal.SIGTERM)
            if os.getppid() not in (caller, 0):
                os._exit(1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
            child = os.fork()
            if child:
                os.close(writer)
                _reap(child)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
            caller = 0  # a parent outside this pid namespace is seen as process 0
        syscalls.die_with_parent(signal.SIGKILL)
        if os.getppid():
            os._exit(1)
        send("done", function(lambda value: send("told", value)))
    except BaseException as error:  # noqa: BLE001  carried over to the caller
        error.add_note("".join(traceback.format_exception(error)))
        with suppress(OSError):  # a caller that has gone need not be told
            send("failed", _portable(error))
    finally:
        os._exit(0)  # whatever happens, never back into what the caller was doing


def _reap(child: int) -> NoReturn:
    """Wait for the child and end; when asked to end before, end the child first.

    The child is never left for the machine's process 1 to reap: as a zombie inside the lab's pid
    namespace it would hold up the end of the holder for as long as that process sleeps.
    """
    if signal.sigwait(_AWAITED) == signal.SIGTERM:
        os.kill(child, signal.SIGKILL)  # if it has ended by itself, it is a zombie of ours still
    os.waitpid(child, 0)
    os._exit(0)


def _portable(error: BaseException) -> BaseException:
    """The error itself if it survives pickling, else one that holds its text."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes
    except Exception:  # noqa: BLE001  whatever an odd exception class raises
        return BrokenError("running inside the lab", "".join(traceback.format_exception(error)))
    return error


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _listen(doing: str, reader: int, deadline: Deadline, heard: Tell) -> Any:
    last: Any = "nothing yet"
    data = bytearray()
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    while True:
        left = deadline.left()
        if not poll.poll(None if math.isinf(left) else math.ceil(left * 1000)):
            raise DeadlineError(
                doing, f"not done within {deadline.seconds:g} s; last heard: {last}"
            )
        chunk = os.read(reader, 1 << 20)
        if not chunk:
            raise BrokenError(doing, "the process inside the lab was killed")
        data += chunk
        for kind, value in _frames(data):
            if kind == "done":
                return value
            if kind == "failed":
                raise value
            last = value
            heard(value)


def _frames(data: bytearray) -> list[tuple[str, Any]]:
    """Take every whole frame off the front of ``data``."""
    frames: list[tuple[str, Any]] = []
    while len(data) >= _LENGTH.size:
        end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
        if len(data) < end:
            break
        frames.append(pickle.loads(bytes(data[_LENGTH.size : end])))  # noqa: S301  our own child's bytes
        del data[:end]
    return frames
