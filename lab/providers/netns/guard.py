"""Run a command through a guard, a process that outlives its caller.

When the caller is killed first, by any signal, the guard kills the command and all that it has
started. What a command leaves behind when it ends by itself goes on.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from lab.providers.netns import isolation

Process = subprocess.Popen[bytes]
_FAILED = 126
_SIGNALLED = 128
"""Exit codes as in a shell."""
_AWAITED = frozenset({signal.SIGTERM, signal.SIGCHLD})


def guarded(run: Callable[[Callable[[Process], int]], int]) -> int:
    """Call ``run`` in a guard; returns the exit code that it returns.

    ``run`` starts one process, which calls :func:`release_signals` before it becomes the command,
    and gets a function that waits for it: it returns as ``Popen.wait`` does.
    """
    caller = os.getpid()
    guard = os.fork()
    if not guard:
        code = _FAILED
        try:
            code = _guard(run, caller)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(guard, 0)[1])
    return code if code >= 0 else _SIGNALLED - code


def call_guarded(words: Sequence[str]) -> int:
    """Run a command on this terminal, guarded; the exit code as in a shell."""

    def run(wait: Callable[[Process], int]) -> int:
        code = wait(subprocess.Popen(words, preexec_fn=release_signals))  # noqa: S603, PLW1509  the user's own command; this process has one thread
        return code if code >= 0 else _SIGNALLED - code

    return guarded(run)


def release_signals() -> None:
    """In the command's process: undo what the guard does with signals."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)


def _guard(run: Callable[[Callable[[Process], int]], int], caller: int) -> int:
    isolation.adopt_orphans()
    for number in (signal.SIGINT, signal.SIGQUIT):  # of the terminal: the command decides
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    isolation.die_with_parent(signal.SIGTERM)
    if os.getppid() != caller:
        return _SIGNALLED + signal.SIGTERM
    return run(_wait)


def _wait(process: Process) -> int:
    while not _has_ended(process):
        if signal.sigwait(_AWAITED) == signal.SIGTERM:
            _kill_descendants()
            return -signal.SIGTERM
    return process.wait()


def _has_ended(process: Process) -> bool:
    """True if the process has ended; orphans of it that have ended are reaped."""
    while child := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if child.si_pid == process.pid:
            return True
        os.waitpid(child.si_pid, 0)
    return False


def _kill_descendants() -> None:
    """Kill and reap all processes below this one, to which their orphans come back."""
    while processes := [*_descendants(os.getpid())]:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        os.waitpid(-1, 0)


def _descendants(process: int) -> Iterator[int]:
    with suppress(FileNotFoundError, ProcessLookupError):
        for path in Path(f"/proc/{process}/task").glob("*/children"):
            for child in map(int, path.read_text(encoding="ascii").split()):
                yield child
                yield from _descendants(child)
