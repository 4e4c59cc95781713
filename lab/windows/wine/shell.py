"""A Windows shell on a Wine node: through the Linux below, with PowerShell on Wine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.machines.bundle import medium
from lab.machines.bundle.manifest import Blob, Program
from lab.shells.shell import Shell
from lab.windows.nodes.join_plan import program_path
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
        paths = {name: f"{BUNDLE}/{medium.program_path(name)}" for name in REPLACED}
        blobs = self._blobs(paths.values())
        if len(blobs) != len(paths):
            action = f"reading the medium of Wine node '{self._name}'"
            raise BrokenError(action, f"it lacks {', '.join(REPLACED)}")
        return {name: blobs[path] for name, path in paths.items()}

    def in_place(self, programs: Collection[Program]) -> Collection[str]:
        """The names of those of the bundle's programs that drive C has, unchanged.

        Linux measures them in a fraction of the seconds that PowerShell takes on Wine.
        """
        paths = {each.name: linux_path(program_path(each.name)) for each in programs}
        blobs = self._blobs(paths.values())
        return {each.name for each in programs if blobs.get(paths[each.name]) == each.blob}

    def _blobs(self, paths: Iterable[str]) -> Mapping[str, Blob]:
        """Digest and size of each file of Linux; without those that cannot be read."""
        done = self._linux.run(("python3", "-c", _MEASURE, *paths), Deadline(_LOOK_SECONDS))
        lines = (line.split(" ", 2) for line in done.stdout.splitlines())
        return {path: Blob(digest, int(size)) for digest, size, path in lines}

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


_MEASURE = """
import hashlib, os, sys
for path in sys.argv[1:]:
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            print(digest, os.stat(file.fileno()).st_size, path)
    except OSError:
        pass
"""
_LASTING = (".ps1", ".psm1")
"""Endings of files that nobody else changes or removes: the lab's scripts."""
_REMOVE_SECONDS = 20.0
_LOOK_SECONDS = 60.0
