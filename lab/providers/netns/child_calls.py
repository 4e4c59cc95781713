"""Run Python functions in forked children that have entered other namespaces.

A function may be a closure; only what it returns, raises or sends goes back over a pipe, as
:mod:`lab.providers.wire` writes it. A program in the lab can open that pipe, so what comes out of
it is read as the types that the caller expects, and is never code. The child dies with its caller,
and at the deadline.
"""

from __future__ import annotations

import math
import os
import select
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn, TypeVar, overload

from lab._dataclass import dataclass
from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.providers.netns import isolation
from lab.providers.wire import Failure, decode, encode

T = TypeVar("T")
Tell = Callable[[Any], None]
"""Sends a value to the caller's ``heard`` while the function is still running."""

_HEADER = struct.Struct("=cI")
"""A message: its kind, and the bytes of JSON that follow."""
_DONE, _TOLD, _FAILED = b"d", b"t", b"f"
_STOPS = frozenset({signal.SIGINT, signal.SIGTERM})
_AWAITED = frozenset({signal.SIGTERM, signal.SIGCHLD})
"""Signals an intermediate process waits for; blocked before it forks, so that none is lost."""


@dataclass(frozen=True, slots=True)
class Listener:
    """What a caller expects of its child.

    ``answer``: the type of what the function returns; ``told``: of what it sends while it runs,
    each of which ``heard`` gets.
    """

    answer: Any = None
    told: Any = None
    heard: Tell = lambda _: None


@overload
def call_isolated(action: str, function: Callable[[], object], deadline: Deadline) -> None: ...


@overload
def call_isolated(
    action: str, function: Callable[[], T], deadline: Deadline, answer: type[T]
) -> T: ...


def call_isolated(
    action: str, function: Callable[[], object], deadline: Deadline, answer: Any = None
) -> object:
    """Run ``function`` as process 1 of new namespaces, like a holder's, which end with it.

    ``answer`` is the type of what it returns.

    Raises OSError when the kernel refuses the namespaces; the file name is the refused call. Raises
    otherwise as :meth:`lab.providers.netns.holders.HolderEntry.call`.
    """

    def furnished(_: Tell) -> object:
        isolation.furnish()
        return function()

    return call_in_child(action, (isolation.isolate,), furnished, deadline, Listener(answer))


def go_apart() -> None:
    """Enter new pid, mount and UTS namespaces; a stage of a call."""
    isolation.unshare(isolation.CLONE_NEWPID | isolation.CLONE_NEWNS | isolation.CLONE_NEWUTS)


def call_in_child(
    action: str,
    stages: tuple[Callable[[], None], ...],
    function: Callable[[Tell], object],
    deadline: Deadline,
    listener: Listener,
) -> object:
    """Run ``function`` in a child, after each of the stages and a fork; return its answer.

    Raises what the function raises. Raises DeadlineError when it does not return in time. Raises
    BrokenError when the child died, or what came from it is not of the expected type.
    """
    reader, writer = os.pipe()
    caller = os.getpid()
    # A signal between fork and _descend would make the child continue as a second caller.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        child = os.fork()
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(reader)
        os.close(writer)
        raise
    if not child:
        os.close(reader)
        answering = function if listener.answer else _without_answer(function)
        _descend(stages, answering, writer, caller)
    os.close(writer)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return _listen(action, reader, deadline, listener)
    except BaseException:
        os.kill(child, signal.SIGTERM)
        raise
    finally:
        os.close(reader)
        os.waitpid(child, 0)


def _without_answer(function: Callable[[Tell], object]) -> Callable[[Tell], None]:
    def call(tell: Tell) -> None:
        function(tell)

    return call


def _descend(
    stages: tuple[Callable[[], None], ...],
    function: Callable[[Tell], object],
    writer: int,
    caller: int,
) -> NoReturn:
    """In the child: run each stage followed by a fork, then the function."""

    def send(kind: bytes, value: object) -> None:
        data = encode(value)
        _write_all(writer, _HEADER.pack(kind, len(data)) + data)

    try:
        # Ctrl-C reaches the whole process group; the caller decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
        for stage in stages:
            stage()
            isolation.die_with_parent(signal.SIGTERM)
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
        isolation.die_with_parent(signal.SIGKILL)
        if os.getppid():
            os._exit(1)
        send(_DONE, function(lambda value: send(_TOLD, value)))
    except BaseException as error:  # noqa: BLE001  sent to the caller
        with suppress(OSError):  # the caller may be gone
            send(_FAILED, Failure.of(error))
    finally:
        os._exit(0)  # never return into the caller's code


def _reap(child: int) -> NoReturn:
    """Wait for the child and exit; on SIGTERM, kill the child first.

    Never leave the child for the machine's process 1 to reap: as a zombie in the lab's pid
    namespace it would delay the holder's exit until that process reaps it.
    """
    if signal.sigwait(_AWAITED) == signal.SIGTERM:
        os.kill(child, signal.SIGKILL)  # if it has already exited, it is still our zombie
    os.waitpid(child, 0)
    os._exit(0)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


_SHOWN = 200
"""Characters of a value that an error quotes."""


def _listen(action: str, reader: int, deadline: Deadline, listener: Listener) -> object:
    last: object = "nothing yet"
    data = bytearray()
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    for _ in deadline.tries():
        left = deadline.left()
        if not poll.poll(None if math.isinf(left) else math.ceil(left * 1000)):
            break
        chunk = os.read(reader, 1 << 20)
        if not chunk:
            raise BrokenError(action, "the process inside the lab was killed")
        data += chunk
        try:
            messages = [*_take_messages(data, listener)]
        except ValueError as error:
            raise BrokenError(
                action,
                f"what the process inside the lab wrote cannot be read: {error}",
                "a program in the lab may have written into its pipe; see what runs there, and "
                "repeat the command",
            ) from None
        for kind, value in messages:
            if isinstance(value, Failure):
                raise value.error()
            if kind == _DONE:
                return value
            last = value
            listener.heard(value)
    raise DeadlineError(
        action, f"not done within {deadline.seconds:g} s; last reported: {last!s:.{_SHOWN}}"
    )


def _take_messages(data: bytearray, listener: Listener) -> Iterator[tuple[bytes, object]]:
    """Take the complete messages from the beginning of the data; their kinds and values.

    Raises ValueError when one is not of the type that is expected.
    """
    expected = {_DONE: listener.answer, _TOLD: listener.told, _FAILED: Failure}
    while len(data) >= _HEADER.size:
        kind, length = _HEADER.unpack_from(data)
        if kind not in expected:
            raise ValueError(f"no message begins with {kind!r}")
        end = _HEADER.size + length
        if len(data) < end:
            break
        value = decode(bytes(data[_HEADER.size : end]), expected[kind])
        del data[:end]
        yield kind, value
