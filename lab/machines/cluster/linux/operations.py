"""Operations on a Linux machine: typed data, printable and hashable, and their executor.

An operation whose result is in place already changes nothing.
"""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Never

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.facts import signatures
from lab.plan.canonical import digest
from lab.shells.shell import Completed, Shell, command_words, shorten

if TYPE_CHECKING:
    from lab.machines.cluster.api import Api


def no_api(name: str, _deadline: Deadline) -> Never:
    """The ``api`` of a site whose callers never use it."""
    raise AssertionError(f"this site has no API for '{name}'")


QUICK_SECONDS = 60.0
"""Limit for starting a program that has little to do."""


@dataclass(frozen=True, slots=True)
class ClusterSite:
    """What a lab provides for its cluster."""

    shell: Callable[[str], Shell]
    """Opens a shell on a machine by name; called only while a step runs."""
    management: Mapping[str, str]
    directory: Path
    """The lab's own directory on the controller; the lab's keys are kept below it."""
    say: Callable[[str], None]
    patience: int = 1
    """Factor for all deadlines: 1 on hardware, 8 on emulated processors."""
    api: Callable[[str, Deadline], AbstractContextManager[Api]] = no_api
    """Opens the API of a control plane, by name, as administrator."""
    check: Callable[[], None] | None = None
    """Raises if the lab has ended."""

    def deadline(self, seconds: float) -> Deadline:
        """A deadline ``seconds`` from now, multiplied by ``patience``; waits end with the lab."""
        return Deadline(seconds * self.patience, self.check)

    def run(self, name: str, operations: Iterable[Operation]) -> None:
        """Run operations on a machine. Raises as :meth:`OperationRunner.run`."""
        OperationRunner(name, self).run(operations)

    def query(self, name: str, command: Sequence[str], seconds: float = QUICK_SECONDS) -> Completed:
        """Run a command on a machine that changes nothing; any exit code is allowed."""
        return self.shell(name).run(command, self.deadline(seconds))


@dataclass(frozen=True, slots=True)
class WriteFile:
    """A file with this content; parent directories are created."""

    path: str
    content: str
    mode: int = 0o644
    secret: bool = field(default=False, compare=False)
    """Whether to keep the content out of printed operations."""


@dataclass(frozen=True, slots=True)
class Symlink:
    """A symbolic link to ``target``; parent directories are created."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete files, links and directories; paths may be shell patterns."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """A command to run, unless ``unless``, a shell command, succeeds."""

    command: tuple[str, ...]
    unless: str = ""
    seconds: float = QUICK_SECONDS
    hint: str = ""


@dataclass(frozen=True, slots=True)
class SystemdUnit:
    """A unit that starts with the machine and runs with these inputs.

    It is restarted when they differ from those of its last start.
    """

    unit: str
    inputs: str = ""
    wait: bool = True
    """Whether to wait until the unit is ready."""
    seconds: float = QUICK_SECONDS


@dataclass(frozen=True, slots=True)
class Enabled:
    """A unit that starts with the machine but is not started now."""

    unit: str


Operation = WriteFile | Symlink | Remove | Run | SystemdUnit | Enabled
Operations = tuple[Operation, ...]


UNITS = "/etc/systemd/system"


def unit_file(
    name: str,
    description: str,
    unit: Iterable[str],
    lines: Iterable[str],
    *,
    section: str = "Service",
) -> WriteFile:
    """A systemd unit that starts with the machine; ``lines``: its own section."""
    text = (
        *("[Unit]", f"Description={description}", *unit, ""),
        *(f"[{section}]", *lines, ""),
        *("[Install]", "WantedBy=multi-user.target", ""),
    )
    return WriteFile(f"{UNITS}/{name}", "\n".join(text))


def run_once(command: str) -> tuple[str, ...]:
    """Lines of a service that runs a command once at every start of the machine."""
    return ("Type=oneshot", "RemainAfterExit=yes", f"ExecStart={command}")


def require_program(name: str, package: str) -> Run:
    """Fail on a machine whose image lacks a program."""
    lacking = f"command -v {shlex.quote(name)} >/dev/null"
    return Run(
        ("sh", "-c", f"{lacking} || {{ echo '{name} is not installed' >&2; exit 1; }}"),
        unless=lacking,
        hint=f"build the machine's image again with package '{package}' in its recipe",
    )


def inputs_digest(files: Iterable[Operation]) -> str:
    """The hash for :class:`SystemdUnit` of those operations that are files."""
    return digest(*(file for file in files if isinstance(file, WriteFile | Symlink)))


def without_secrets(operations: Iterable[Operation]) -> Operations:
    """The operations without the content of secret files, as input for a digest."""
    return tuple(
        replace(operation, content="")
        if isinstance(operation, WriteFile) and operation.secret
        else operation
        for operation in operations
    )


_LOOK = """for path; do
    if [ -L "$path" ]; then echo "link $(readlink "$path")"
    elif [ -f "$path" ]; then
        sum=$(sha256sum <"$path"); echo "file $(stat -c %a "$path") ${sum%% *}"
    else echo none; fi
done"""
"""Print what is at each path, one line each."""
_CLEAR = 'for path; do [ -L "$path" ] && rm -f "$path"; done; tar -x -p -C / -f -'
"""Links are removed first: tar would write through them."""
_GONE = """if mountpoint -q "$each"; then find "$each" -xdev -mindepth 1 -delete
    else rm -rf "$each"; fi"""
"""A system container's ``/var/lib/kubelet`` is a mount point: it is emptied, not removed."""
_STAMPS = "/var/lib/hybridlab/services"
"""Inputs of each service's last start by the lab; at boot each starts with the current files."""
_TAIL_LINES = 12


class OperationRunner:
    """Runs operations on one machine."""

    def __init__(self, name: str, site: ClusterSite) -> None:
        self._name = name
        self._site = site

    def run(self, operations: Iterable[Operation]) -> None:
        """Run operations in order.

        Raises BrokenError when one fails, with its last output and its meaning if known;
        DeadlineError when one does not end in time.
        """
        for kind, group in groupby(operations, _group):
            if kind == "files":
                self._files(
                    [operation for operation in group if isinstance(operation, WriteFile | Symlink)]
                )
                continue
            for operation in group:
                self._one(operation)

    def _files(self, files: Sequence[WriteFile | Symlink]) -> None:
        look = ("sh", "-c", _LOOK, "look", *(file.path for file in files))
        states = self._checked(look).stdout.splitlines()
        wrong = [
            file for file, state in zip(files, states, strict=True) if state != _expect_output(file)
        ]
        if not wrong:
            return
        unpack = ("sh", "-c", _CLEAR, "unpack", *(file.path for file in wrong))
        self._checked(unpack, stdin=_archive(wrong))
        if any(file.path.startswith(f"{UNITS}/") for file in wrong):
            self._checked(("systemctl", "daemon-reload"))

    def _one(self, operation: Operation) -> None:
        match operation:
            case Run():
                line = shlex.join(operation.command)
                guard = f"if {operation.unless}; then exit 0; fi; " if operation.unless else ""
                script = ("sh", "-c", f"{guard}exec {line}")
                self._checked(script, operation.seconds, action=line, hint=operation.hint)
            case Remove():
                listed = " ".join(operation.paths)  # the shell expands patterns
                self._checked(("sh", "-c", f"for each in {listed}; do {_GONE}; done"))
            case SystemdUnit():
                script = ("sh", "-c", _restart_script(operation))
                self._checked(
                    script, operation.seconds, action=f"systemctl restart {operation.unit}"
                )
            case Enabled():
                self._checked(("sh", "-c", _enable_script(operation.unit)))

    def _checked(
        self,
        command: Sequence[str],
        seconds: float = QUICK_SECONDS,
        stdin: bytes = b"",
        action: str = "",
        hint: str = "",
    ) -> Completed:
        done = self._site.shell(self._name).run(command, self._site.deadline(seconds), stdin)
        if done.code == 0:
            return done
        words = f"'{shorten(action)}'" if action else command_words(command)
        output = done.stderr.strip() or done.stdout.strip() or "no output"
        raise command_failure(f"running {words} on '{self._name}'", done.code, output, hint)


def _enable_script(unit: str) -> str:
    return f"systemctl is-enabled --quiet {unit} || systemctl enable --quiet {unit}"


def _restart_script(unit: SystemdUnit) -> str:
    """Enable a unit, and restart it unless it runs with these inputs."""
    stamp = f"{_STAMPS}/{unit.unit}"
    how = "" if unit.wait else "--no-block "
    ready = "active" if unit.wait else "active|activating"
    return f"""{_enable_script(unit.unit)}
case $(systemctl is-active {unit.unit}) in
{ready}) [ "$(cat {stamp} 2>/dev/null)" = "{unit.inputs}" ] && exit 0 ;;
esac
systemctl reset-failed {unit.unit} 2>/dev/null
if ! systemctl restart {how}{unit.unit}; then
    journalctl --no-pager -o cat -n {_TAIL_LINES} -u {unit.unit} >&2; exit 1
fi
mkdir -p {_STAMPS} && echo {unit.inputs} >{stamp}"""


def command_failure(action: str, code: int, output: str, hint: str = "") -> BrokenError:
    """The error for a failed command: its last lines of output, and their meaning if known."""
    tail = " / ".join(line.strip() for line in output.splitlines()[-_TAIL_LINES:] if line.strip())
    known = signatures.match(output.splitlines())
    if known:
        return BrokenError(action, f"exit code {code}: {tail}; {known[0].cause}", known[0].hint)
    return BrokenError(action, f"exit code {code}: {tail}", hint)


def _group(operation: Operation) -> str:
    return "files" if isinstance(operation, WriteFile | Symlink) else "others"


def _expect_output(operation: WriteFile | Symlink) -> str:
    """The output of :data:`_LOOK` for a file that is as it should be."""
    if isinstance(operation, Symlink):
        return f"link {operation.target}"
    return f"file {operation.mode:o} {sha256(operation.content.encode()).hexdigest()}"


def _archive(files: Iterable[WriteFile | Symlink]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for file in files:
            entry = tarfile.TarInfo(file.path.lstrip("/"))
            if isinstance(file, Symlink):
                entry.type, entry.linkname = tarfile.SYMTYPE, file.target
                tar.addfile(entry)
                continue
            content = file.content.encode()
            entry.mode, entry.size = file.mode, len(content)
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()
