"""A lab's processes, the responder and its daemons: start them, wait until ready, check them.

They run inside the holder's pid namespace; files in the holder's /run list their process ids, which
commands outside read through /proc. Nothing supervises them: the next check finds one that has
exited.
"""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from lab._dataclass import dataclass
from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab._log import quantity
from lab.providers.netns import isolation, namespaces
from lab.providers.netns.holders import is_stopped, start_time
from lab.providers.netns.isolation import MACHINES_DIRECTORY, search_path
from lab.shells.shell import command_words
from lab.topology.daemon import LOG, Daemon
from lab.topology.intent import Intent
from lab.topology.logical import LogicalNetwork

PROGRAM = Path(__file__).with_name("responder.py")
_RESPONDER = "/run/responder.json"
_CONFIGURATION = "/run/responder-configuration.json"
_RESPONDER_LOG = "/run/responder.log"
_RECORD = "/run/daemons.jsonl"
_LAST_LINES = 5
_TAIL_BYTES = 4096
_BELOW = "\n    "
"""Prefix of each line in an error that shows several lines."""
_COMMAND_SECONDS = 30.0
_LOOK_SECONDS = 0.02
_END_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """A daemon that was started; ``pid`` is its process id in the holder's pid namespace."""

    machine: str
    name: str
    pid: int
    started: int
    """In clock ticks since boot."""


@dataclass(frozen=True, slots=True)
class _Placed:
    machine: str
    daemon: Daemon

    @property
    def home(self) -> Path:
        return Path(namespaces.run_directory(self.machine), self.daemon.name)

    def words(self) -> str:
        return f"'{self.daemon.name}' on '{self.machine}'"


@dataclass(frozen=True, slots=True)
class _ReadyState:
    """The latest state of a daemon that is not ready yet; the error shows its ``repr``."""

    ready: bool
    text: str

    def __repr__(self) -> str:
        return self.text or "nothing yet"


def list_daemons(intent: Intent) -> tuple[_Placed, ...]:
    """Every daemon with its machine, in start order. Pure."""
    every = (
        _Placed(machine.name, daemon) for machine in intent.machines for daemon in machine.daemons
    )
    return tuple(sorted(every, key=lambda placed: placed.daemon.stage))


def start_daemons(intent: Intent, deadline: Deadline) -> None:
    """Inside the holder: kill the old daemons, start every daemon and wait until it is ready.

    Raises DeadlineError when a daemon is not ready in time; shows its last state. Raises
    BrokenError when a daemon exited or one of its commands failed; shows the end of its output.
    """
    _end_older()
    alive = _Alive()
    for _, stage in groupby(list_daemons(intent), key=lambda placed: placed.daemon.stage):
        started = []
        for placed in stage:
            _start(placed, alive, deadline)
            started.append(placed)
        for placed in started:
            _await_ready(placed, alive, deadline)
        for placed in started:
            _run_all(placed, placed.daemon.after, alive, deadline)


class _Alive:
    """The daemons started so far; every wait checks that they all still run."""

    def __init__(self) -> None:
        self._started: list[tuple[_Placed, subprocess.Popen[bytes]]] = []

    def add(self, placed: _Placed, process: subprocess.Popen[bytes]) -> None:
        self._started.append((placed, process))

    def require(self, action: str) -> None:
        for placed, process in self._started:
            code = process.poll()
            if code is not None:
                how = f"signal {-code}" if code < 0 else f"exit code {code}"
                raise BrokenError(
                    action, f"{placed.words()} ended, {how}: {tail(placed.home / LOG)}"
                )


def _start(placed: _Placed, alive: _Alive, deadline: Deadline) -> None:
    placed.home.mkdir(parents=True)
    for file in placed.daemon.files:
        path = placed.home / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
        path.chmod(file.mode)
    _run_all(placed, placed.daemon.before, alive, deadline)
    with (placed.home / LOG).open("wb") as log:
        process = _spawn(placed, placed.daemon.command, log.fileno())
    since = start_time(process.pid)
    if since is not None:
        running = RunningDaemon(placed.machine, placed.daemon.name, process.pid, since)
        with open(_RECORD, "a", encoding="utf-8") as record:  # noqa: PTH123  appends a line
            record.write(json.dumps(asdict(running)) + "\n")
    alive.add(placed, process)


def _spawn(placed: _Placed, command: Sequence[str], output: int) -> subprocess.Popen[bytes]:
    environment = {
        "PATH": search_path(),
        "HOME": placed.daemon.directory,
        "LC_ALL": "C.UTF-8",
        **dict(placed.daemon.environment),
    }
    try:
        return subprocess.Popen(  # noqa: S603  the intent's own command
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=partial(_enter_machine, placed),  # noqa: PLW1509  this process has one thread
        )
    except OSError as error:
        raise BrokenError(
            f"starting {placed.words()}", f"'{command[0]}': {error.strerror}"
        ) from error


_FILE_BYTES = 64 << 20
"""Most bytes of a daemon's files, its log among them, which are in memory: BIRD wrote 8 MB a
second to it while the kernel refuses its connections."""


def _enter_machine(placed: _Placed) -> None:
    """In the daemon's process: enter its machine's namespaces and its directory."""
    isolation.unshare(isolation.CLONE_NEWNS | isolation.CLONE_NEWUTS)
    namespaces.enter_machine(placed.machine, pod=False)
    os.chdir(placed.daemon.directory)
    os.umask(0o022)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a full log does not end its daemon
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))


def _run_all(
    placed: _Placed, commands: Sequence[Sequence[str]], alive: _Alive, deadline: Deadline
) -> None:
    for command in commands:
        code, text = _run(placed, command, alive, deadline)
        if code:
            raise BrokenError(
                f"running {command_words(command)} for {placed.words()}",
                f"exit code {code}: {_last_lines(text) or 'no output'}",
            )


def _run(
    placed: _Placed, command: Sequence[str], alive: _Alive, deadline: Deadline
) -> tuple[int, str]:
    """Exit code and output of a command; 124, as from ``timeout``, if it took too long."""
    action = f"running {command_words(command)} for {placed.words()}"
    with os.fdopen(os.memfd_create("output"), "w+b") as output:
        process = _spawn(placed, command, output.fileno())
        own = Deadline(min(_COMMAND_SECONDS, deadline.left()))
        code = _exit_code(process, action, lambda: alive.require(action), own)
        output.seek(0)
        return 124 if code is None else code, output.read().decode(errors="replace")


def _exit_code(
    process: subprocess.Popen[Any], action: str, require: Callable[[], None], deadline: Deadline
) -> int | None:
    """Exit code; None if it took too long and was killed. ``require`` raises if a daemon exited."""

    def look() -> int | None:
        code = process.poll()
        if code is None:
            require()
        return code

    try:
        return deadline.wait(action, look, until=lambda code: code is not None, every=0.002)
    except DeadlineError:
        return None
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _await_ready(placed: _Placed, alive: _Alive, deadline: Deadline) -> None:
    ready = placed.daemon.ready
    action = f"waiting for {placed.words()} to be ready ('{ready.pattern}')"

    def look() -> _ReadyState:
        alive.require(action)
        if not ready.command:
            text = (placed.home / LOG).read_text(encoding="utf-8", errors="replace")
            return _ReadyState(
                bool(re.search(ready.pattern, text, re.MULTILINE)), tail(placed.home / LOG)
            )
        code, text = _run(placed, ready.command, alive, deadline)
        answered = code == 0 and re.search(ready.pattern, text, re.MULTILINE)
        return _ReadyState(bool(answered), f"exit code {code}: {_last_lines(text)}")

    own = Deadline(min(ready.seconds, deadline.left()))
    own.wait(action, look, until=lambda ready_state: ready_state.ready, every=_LOOK_SECONDS)


def tail(log: Path, most: int = _LAST_LINES) -> str:
    """The last lines of a log, or a phrase saying that it is empty or unreadable."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            return _last_lines(file.read().decode(errors="replace"), most) or "it wrote nothing"
    except OSError as error:
        return f"its log cannot be read: {error.strerror}"


def _last_lines(text: str, most: int = _LAST_LINES) -> str:
    lines = text.strip().splitlines()[-most:]
    return lines[0] if len(lines) == 1 else "".join(f"{_BELOW}{line}" for line in lines)


def _end_older() -> None:
    """Kill the process groups of an earlier start and delete its files."""
    older = tuple(_read_recorded(""))
    for daemon in older:
        if start_time(daemon.pid) == daemon.started:
            with suppress(ProcessLookupError):
                os.killpg(daemon.pid, signal.SIGKILL)
    Deadline(_END_SECONDS).wait(
        "ending the lab's older daemons",
        lambda: [daemon.name for daemon in older if start_time(daemon.pid) == daemon.started],
        until=lambda left: not left,
    )
    with suppress(FileNotFoundError):
        os.unlink(_RECORD)  # noqa: PTH108  no Path needed
    if Path(MACHINES_DIRECTORY).is_dir():
        from shutil import rmtree  # noqa: PLC0415  few labs have daemons

        rmtree(MACHINES_DIRECTORY)


def _read_recorded(root: str) -> Iterator[RunningDaemon]:
    try:
        text = Path(f"{root}{_RECORD}").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return
    for line in text.splitlines():
        yield RunningDaemon(**json.loads(line))


def start_responder(python: str, configured: str, deadline: Deadline) -> None:
    """Inside the holder: kill an old responder, start a new one, and wait until it listens.

    ``configured`` is the text of the configuration. It is written to the holder's /run, because
    the holder's /run may hide the lab's directory.

    Raises DeadlineError when it does not report ready in time. Raises BrokenError when it exits
    instead; shows the end of its output.
    """
    older = _running_responder("")
    if older:
        os.kill(older[0], signal.SIGKILL)
        Deadline(_END_SECONDS).wait(
            "ending the lab's older responder", lambda: _running_responder("") is None
        )
    isolation.raise_descriptors()
    Path(_CONFIGURATION).write_text(configured, encoding="utf-8")
    command = [python, "-I", "-S", str(PROGRAM), _CONFIGURATION]
    with open(_RESPONDER_LOG, "wb") as log:  # noqa: PTH123  a plain file for a child's standard error
        process = subprocess.Popen(  # noqa: S603  our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    since = start_time(process.pid)
    Path(_RESPONDER).write_text(
        json.dumps({"pid": process.pid, "started": since}), encoding="ascii"
    )
    _await_responder(process, deadline)


def _await_responder(process: subprocess.Popen[bytes], deadline: Deadline) -> None:
    action, log = "starting the lab's responder", Path(_RESPONDER_LOG)
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    in_time = poll.poll(deadline.left() * 1000)
    if in_time and process.stdout.readline().strip() == b"ready":
        return
    process.kill()
    if in_time:
        raise BrokenError(action, f"it ended before it was listening: {tail(log, 1)}")
    late = f"not ready within {deadline.seconds:g} s; last seen: {tail(log, 1)}"
    raise DeadlineError(action, late)


def responder_is_alive(holder: int) -> bool:
    """Outside the holder: whether its responder runs and is not stopped."""
    responder = running_responder(holder)
    return responder is not None and not is_stopped(responder[0], f"/proc/{holder}/root/proc")


def running_responder(holder: int) -> tuple[int, int] | None:
    """Outside the holder: the responder's process id inside it, and its start time.

    The start time is in clock ticks since boot. None if it is not running.
    """
    return _running_responder(f"/proc/{holder}/root")


def _running_responder(root: str) -> tuple[int, int] | None:
    try:
        record = json.loads(Path(f"{root}{_RESPONDER}").read_text(encoding="ascii"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    pid: int = record["pid"]
    since: int = record["started"]
    return (pid, since) if start_time(pid, f"{root}/proc") == since else None


def find_ailment(holder: int, intent: Intent) -> str:
    """Describe what is wrong with the lab whose holder is process ``holder``; empty if healthy."""
    if _is_hidden(holder):
        return (
            f"its holder, process {holder}, cannot be inspected from this user namespace, only "
            "from the one in which it was started"
        )
    present = namespaces.list_from_outside(holder)
    missing = [name for name in namespaces.namespace_names(intent) if name not in present]
    if missing:
        return f"{len(missing)} of its namespaces are missing, the first is '{missing[0]}'"
    if not responder_is_alive(holder):
        return "its responder is not running"
    return _describe_ended(f"/proc/{holder}/root", intent)


def _is_hidden(holder: int) -> bool:
    """True if the holder runs, but the kernel hides its files from this process."""
    try:
        os.stat(f"/proc/{holder}/root/")  # noqa: PTH116  no Path needed
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def require_daemons(intent: Intent, action: str) -> None:
    """Inside the holder: check that every daemon runs.

    Raises BrokenError if a daemon has exited; names it and shows the end of its log.
    """
    ended = _describe_ended("", intent)
    if ended:
        raise BrokenError(action, ended)


def _describe_ended(root: str, intent: Intent) -> str:
    running = {
        (daemon.machine, daemon.name): daemon
        for daemon in _read_recorded(root)
        if start_time(daemon.pid, f"{root}/proc") == daemon.started
    }
    wanted = list_daemons(intent)
    ended = [placed for placed in wanted if (placed.machine, placed.daemon.name) not in running]
    if not ended:
        for daemon in running.values():
            if is_stopped(daemon.pid, f"{root}/proc"):
                return f"'{daemon.name}' on '{daemon.machine}' is stopped by a signal or a debugger"
        return ""
    first = ended[0]
    log = Path(f"{root}{first.home}", LOG)
    happened = f"{first.words()} has ended"
    if len(ended) > 1:
        every = quantity(len(wanted), "daemon")
        happened = f"{len(ended)} of its {every} have ended, the first is {first.words()}"
    log_end = tail(log)
    return f"{happened}; the end of its log:{'' if log_end.startswith(_BELOW) else ' '}{log_end}"


def daemon_files(holder: int, intent: Intent) -> Iterator[tuple[str, bytes]]:
    """Outside the holder: path and content of every daemon's files and log. Never raises."""
    for daemon in list_daemons(intent):
        for name in (*(file.name for file in daemon.daemon.files), LOG):
            yield _read_file_of(holder, daemon, name)


def daemon_logs(
    holder: int, intent: Intent, machines: Collection[str]
) -> Iterator[tuple[str, bytes]]:
    """Outside the holder: path and content of the logs of daemons on ``machines``."""
    for daemon in list_daemons(intent):
        if daemon.machine in machines:
            yield _read_file_of(holder, daemon, LOG)


def _read_file_of(holder: int, placed: _Placed, name: str) -> tuple[str, bytes]:
    path = f"{placed.machine}/{placed.daemon.name}/{name}"
    try:
        return path, Path(f"/proc/{holder}/root{placed.home}", name).read_bytes()
    except OSError as error:
        return f"{path}.missing", f"cannot be read: {error.strerror}\n".encode()


_DATABASE_LOOK_SECONDS = 0.05
_TOOL_SECONDS = 30


def wait_for_logical_network(
    network: LogicalNetwork, deadline: Deadline, require: Callable[[], None]
) -> None:
    """Wait until every chassis is registered, every port is up, and every flow is programmed.

    Parameters
    ----------
    network
        The lab's logical network.
    deadline
        For the whole wait.
    require
        Called while waiting; raises if a daemon has exited.

    Raises DeadlineError: lists the missing chassis and ports. Raises BrokenError when a database
    does not answer, or whatever ``require`` raises.
    """
    ask = _OvnQuery(network, require)
    deadline.wait(
        f"waiting for the logical network of {len(network.switches)} nodes",
        partial(_find_missing, network, ask),
        until=lambda missing: not missing,
        every=_DATABASE_LOOK_SECONDS,
    )
    ask("nbctl", "--wait=sb", "sync")
    deadline.wait(
        "waiting for every chassis to program the databases' contents",
        partial(_find_behind, network, ask),
        until=lambda behind: not behind,
        every=_DATABASE_LOOK_SECONDS,
    )


def _find_missing(network: LogicalNetwork, ask: _OvnQuery) -> tuple[str, ...]:
    registered = {str(row["name"]) for row in _read_rows(ask, "sbctl", "Chassis", "name")}
    wanted = [switch.name for switch in network.switches]
    up = {
        str(row["name"])
        for row in _read_rows(ask, "nbctl", "Logical_Switch_Port", "name,up")
        if row["up"] is True
    }
    return (
        *(f"chassis {name} is not registered" for name in wanted if name not in registered),
        *(f"port {port.name} is not up" for port in network.ports() if port.name not in up),
    )


def _find_behind(network: LogicalNetwork, ask: _OvnQuery) -> tuple[str, ...]:
    (wanted,) = (int(row["nb_cfg"]) for row in _read_rows(ask, "nbctl", "NB_Global", "nb_cfg"))
    done = {
        str(row["name"]): int(row["nb_cfg"])
        for row in _read_rows(ask, "sbctl", "Chassis_Private", "name,nb_cfg")
    }
    return tuple(
        f"chassis {name} has programmed {done[name]} of {wanted}"
        for name in (switch.name for switch in network.switches)
        if done.get(name, 0) < wanted
    )


def _read_rows(ask: _OvnQuery, tool: str, table: str, columns: str) -> Iterator[dict[str, Any]]:
    answer = json.loads(ask(tool, "--format=json", f"--columns={columns}", "list", table))
    for row in answer["data"]:
        yield dict(zip(answer["headings"], row, strict=True))


@dataclass(frozen=True, slots=True)
class _OvnQuery:
    """Queries OVN's databases; gives up when a daemon the tool waits for has exited."""

    network: LogicalNetwork
    require: Callable[[], None]

    def __call__(self, tool: str, *words: str) -> str:
        base = {"nbctl": "ovnnb_db", "sbctl": "ovnsb_db"}[tool]
        socket = f"{namespaces.run_directory(self.network.central)}/ovn/{base}.sock"
        command = [f"ovn-{tool}", f"--timeout={_TOOL_SECONDS}", f"--db=unix:{socket}"]
        action = f"running {command_words(words)} on '{self.network.central}'"
        with (
            os.fdopen(os.memfd_create("stdout"), "w+b") as output,
            os.fdopen(os.memfd_create("stderr"), "w+b") as errors,
        ):
            process = subprocess.Popen(  # noqa: S603  the database's own tool
                [*command, "--no-leader-only", *words],
                stdout=output,
                stderr=errors,
                env={**os.environ, "PATH": search_path()},
            )
            code = _exit_code(process, action, self.require, Deadline(2 * _TOOL_SECONDS))
            if code != 0:
                self.require()
                errors.seek(0)
                complaint = errors.read().decode(errors="replace").strip()
                raise BrokenError(action, f"exit code {code}: {complaint or 'no output'}")
            output.seek(0)
            return output.read().decode()
