"""Start, find and end holders from outside."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError
from lab.providers.netns.entry import (
    LAB_HOLDER,
    TOKEN_VARIABLE,
    HolderEntry,
    HolderKind,
    HolderProcess,
    list_holders,
    start_time,
)
from lab.providers.netns.isolation import privileged
from lab.providers.provider import LabHandle, Mark

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
    doing = f"starting the holder of lab '{lab.name}'"
    with subprocess.Popen(  # noqa: S603  our own program
        [*before, *kind.command(python, lab.name, lab.directory)],
        cwd="/",
        env={**os.environ, TOKEN_VARIABLE: lab.token},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        said = _line(doing, process, seconds)
    pid = said.get("pid")
    if not isinstance(pid, int):
        number = int(str(said["errno"]))
        call = str(said["call"])
        raise PreflightError(
            doing,
            f"the kernel refused '{call}': {os.strerror(number)}",
            namespaces_hint(call, number),
        )
    since = start_time(pid)
    if since is None:
        raise BrokenError(doing, f"process {pid} ended at once", "run 'lab up' again")
    return HolderEntry(pid, since)


def _line(doing: str, process: subprocess.Popen[bytes], seconds: float) -> dict[str, object]:
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    if not poll.poll(seconds * 1000):
        process.kill()
        raise DeadlineError(doing, f"not ready within {seconds:g} s; it printed nothing")
    line = process.stdout.readline()
    if not line:
        raise BrokenError(doing, "it ended without output", f"try: {process.args!r}")
    found: dict[str, object] = json.loads(line)
    return found


def find_holder(lab: LabHandle, kind: HolderKind = LAB_HOLDER) -> HolderProcess | None:
    """The caller's holder of the lab, by token, or by its command line if it is hidden.

    Never returns another user's holder: its answers are unpickled here.
    """

    def is_it(one: HolderProcess) -> bool:
        claim = (one.lab, one.directory) == (lab.name, lab.directory)
        return one.token == lab.token if one.token else claim

    return next(filter(is_it, list_holders(kind, hidden=True)), None)


def enter_holder(lab: LabHandle, kind: HolderKind = LAB_HOLDER) -> HolderEntry:
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
    return HolderEntry(holder.pid, holder.started)


def destroy_holders(
    lab: LabHandle, owner: str, kind: HolderKind = LAB_HOLDER
) -> tuple[HolderProcess, ...]:
    """End the owner's holders with the lab's token; an empty ``owner`` is the caller.

    Raises DeadlineError when a holder does not exit in time.
    """
    return end_all_holders(
        lambda: (
            one
            for one in list_holders(kind, starting=True, all_users=bool(owner))
            if one.token == lab.token and _owner(one) == owner
        )
    )


def list_marks(kind: HolderKind = LAB_HOLDER, *, all_users: bool) -> tuple[Mark, ...]:
    """A mark for each of the caller's holders; for root with ``all_users``, everybody's."""
    return tuple(
        Mark(
            lab=one.lab,
            token=one.token,
            directory=one.directory,
            object=f"process {one.pid} (holder)",
            age_seconds=one.age(),
            owner=_owner(one),
        )
        for one in list_holders(kind, all_users=all_users)
    )


def end_all_holders(look: Callable[[], Iterable[HolderProcess]]) -> tuple[HolderProcess, ...]:
    """Kill every holder that ``look`` finds, wait until all have exited, and return them.

    ``look`` is called twice: a holder that is just forking process 1 can be missed by one scan of
    /proc, too late for the parent and too early for the child.

    Raises DeadlineError when a holder does not exit in time.
    """
    ended: list[HolderProcess] = []
    for _ in range(2):
        found = tuple(look())
        end_holders(found)
        ended += found
    return tuple(dict.fromkeys(ended))


def end_holders(found: tuple[HolderProcess, ...]) -> None:
    """Kill the holders and wait until each has exited with everything in it.

    Raises DeadlineError when a holder does not exit in time.
    """
    for holder in found:
        _kill(holder)
    deadline = Deadline(_END_SECONDS)
    for holder in found:
        deadline.wait(
            f"ending the holder of lab '{holder.lab}', process {holder.pid}",
            holder.gone,
            every=0.001,
            hint=f"see what it waits for: cat /proc/{holder.pid}/stack",
        )


def _kill(holder: HolderProcess) -> None:
    """Kill this process, never a later one with the same id."""
    with suppress(ProcessLookupError):
        process = os.pidfd_open(holder.pid)
        try:
            if not holder.gone():
                signal.pidfd_send_signal(process, signal.SIGKILL)
        finally:
            os.close(process)


def _owner(holder: HolderProcess) -> str:
    """A mark's owner: empty for the caller, else the user's name, or uid if it has no name."""
    if holder.user == os.geteuid():
        return ""
    import pwd  # noqa: PLC0415  only for objects of other users

    try:
        return pwd.getpwuid(holder.user).pw_name
    except KeyError:
        return str(holder.user)


_USED_UP = {
    errno.ENOSPC: "sudo sysctl -w user.max_user_namespaces=15000 user.max_net_namespaces=15000",
    errno.EAGAIN: "end some processes, or allow more: ulimit -u 4096",
}
"""Commands that raise an exhausted limit of namespaces or processes, by errno."""


def namespaces_hint(call: str, number: int) -> str:
    """The hint for refused namespaces: a command or a sentence.

    ``call`` is the refused call and ``number`` its errno.
    """
    if number in _USED_UP:
        return _USED_UP[number]
    if call.startswith("mount on /proc"):
        return "run on the host itself, or in a container whose /proc is not masked"
    if privileged():
        return "run on the host itself, or in a container that may unshare and mount"
    if _reading("/proc/sys/kernel/unprivileged_userns_clone") == 0:
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if _reading("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1:
        return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    return f"run as root, or allow user namespaces ({os.strerror(number)})"


def _reading(path: str) -> int | None:
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
