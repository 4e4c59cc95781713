"""A Windows shell on a Wine node: through the Linux below, with PowerShell on Wine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.machines.bundle.manifest import Blob
from lab.machines.bundle.medium import program_path
from lab.shells.shell import Shell
from lab.windows.shell import KNOWN, POWERSHELL, WindowsShell
from lab.windows.wine.bundle import REPLACED
from lab.windows.wine.node import BUNDLE, KEPT, SHELL
from lab.windows.wine.runtime.places import linux_path

_READY = ("C:\\windows\\system32\\cmd.exe", "/d", "/c", "exit 0")


class WineShell(WindowsShell):
    """A :class:`~lab.windows.shell.WindowsShell` whose commands and files go through Linux.

    ``name``: the machine's, for messages. ``linux``: a shell on the Linux that it boots.
    """

    def __init__(self, name: str, linux: Shell) -> None:  # not the base's: there is no WinRM
        self._name = name
        self._linux = linux
        self._written: dict[str, bytes] = {}
        """What this shell has put, by path: steps bring the same module each time."""

    @property
    def linux(self) -> Shell:
        """The shell on the Linux below."""
        return self._linux

    def stand_ins(self) -> Mapping[str, Blob]:
        """The programs of the node's medium that stand in for the bundle's.

        Raises BrokenError when they cannot be read.
        """
        paths = [f"{BUNDLE}/{program_path(name)}" for name in REPLACED]
        deadline = Deadline(_LOOK_SECONDS)
        digests = self._linux.run(("sha256sum", "--", *paths), deadline).stdout.split()[::2]
        sizes = self._linux.run(("stat", "--format=%s", "--", *paths), deadline).stdout.split()
        if len(digests) != len(REPLACED) or len(sizes) != len(REPLACED):
            action = f"reading the medium of Wine node '{self._name}'"
            raise BrokenError(action, f"it lacks {', '.join(REPLACED)}")
        measured = zip(REPLACED, digests, map(int, sizes), strict=True)
        return {name: Blob(digest, size) for name, digest, size in measured}

    def put(self, content: bytes, path: str, mode: int, deadline: Deadline) -> None:
        r"""Write a file, ``C:\directory\name``, atomically; ``mode`` is ignored, as on Windows.

        One of the lab's own that has this content already is left.
        """
        del mode
        if self._written.get(path) == content:
            return
        self._linux.put(content, linux_path(path), 0o644, deadline)
        if path.endswith(_LASTING):
            self._written[path] = content

    def get(self, path: str, deadline: Deadline) -> bytes:
        """Read a file."""
        return self._linux.get(linux_path(path), deadline)

    def remove(self, path: str) -> None:
        """Remove one of the lab's files, if that is possible now."""
        self._written.pop(path, None)
        deadline = Deadline(_REMOVE_SECONDS)
        done = self._linux.run(("rm", "-f", "--", linux_path(path)), deadline)
        del done  # only the lab reads that directory

    def wait(self, deadline: Deadline) -> None:
        """Wait until a Windows program runs."""

        def look() -> str:
            own = Deadline(min(deadline.left(), _LOOK_SECONDS))
            try:
                done = self.run(_READY, own)
            except BrokenError as error:
                return error.happened
            return f"a program ended with {done.code}: {done.stderr.strip()}" if done.code else ""

        deadline.wait(f"waiting for Wine on '{self._name}'", look, until=lambda why: not why)

    def attach(self, command: Sequence[str]) -> int:
        """Run a command on this terminal, or PowerShell if it is empty."""
        return self._linux.attach((SHELL, *(command or ("powershell.exe", "-NoLogo"))))

    def close(self) -> None:
        """Close the shell below."""
        self._linux.close()

    def _winrm(
        self,
        action: str,
        command: Sequence[str],
        deadline: Deadline,
        out: Callable[[bytes], object],
    ) -> tuple[int, str]:
        """Run a command: elevated, and with a console, as WinRM does."""
        del action
        program = command[0].strip('"')
        program = KNOWN.get(program.lower(), program)
        words = (program, *command[1:])
        done = self._linux.run((*(KEPT if program == POWERSHELL else (SHELL,)), *words), deadline)
        out(done.stdout.encode())
        return done.code, done.stderr


_LASTING = (".ps1", ".psm1")
"""Endings of files that nobody else changes or removes: the lab's scripts."""
_REMOVE_SECONDS = 20.0
_LOOK_SECONDS = 60.0
