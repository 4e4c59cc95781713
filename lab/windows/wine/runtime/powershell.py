"""One PowerShell that runs the lab's scripts one after another, because its start takes seconds.

``python3 -m lab.windows.wine.runtime.powershell VERB ...`` runs on the node. ``run COMMAND...``
runs a command line of PowerShell: a script (``-File PATH [-Settings PATH]`` or ``-EncodedCommand
TEXT``) in the PowerShell that is kept, anything else in a new one. ``serve`` is the one that is
kept: systemd starts it at the first request (``hybridlab-powershell.socket``), and it exits after
some seconds without one.
"""

from __future__ import annotations

import base64
import json
import os
import select
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lab.windows.wine.runtime.places import linux_path

SOCKET = "/run/hybridlab-powershell.socket"
SHELL = "/usr/local/bin/windows-shell"
SERVE = "C:\\hybridlab\\serve.ps1"
PROGRAM = "C:\\windows\\system32\\WindowsPowerShell\\v1.0\\powershell.exe"
_FOLDER = "C:\\hybridlab"
_SYSTEMD_SOCKET = 3
"""The first socket that systemd hands over (sd_listen_fds)."""
_START_SECONDS, _IDLE_SECONDS = 60.0, 20.0
_NOT_BEGUN = b"null\n"
"""The answer where PowerShell had ended before it got the script."""
_ENDED: Mapping[str, object] = {
    "code": 1,
    "output": "",
    "errors": "PowerShell has ended in the middle of the script; it is not known how far it got\n",
}


@dataclass(frozen=True, slots=True)
class Script:
    """A script and its settings, as paths of Windows."""

    path: str
    settings: str = ""
    text: str = ""
    """The script itself, which is written to the path; empty if it is there."""


def script_of(command: Sequence[str]) -> Script | None:
    """The script that a command line of PowerShell runs; None if it is no such command. Pure."""
    options, values = command[:-1], list(command)
    if "-File" in options:
        path, *rest = values[values.index("-File") + 1 :]
        if not rest:
            return Script(path)
        return Script(path, rest[1]) if len(rest) == 2 and rest[0] == "-Settings" else None  # noqa: PLR2004  option and value
    if "-EncodedCommand" in options:
        text = base64.b64decode(values[values.index("-EncodedCommand") + 1]).decode("utf-16-le")
        return Script(f"{_FOLDER}\\command-{uuid.uuid4()}.ps1", text=text)
    return None


def ask(script: Script) -> Mapping[str, object] | None:
    """Code, output and errors by the PowerShell that is kept; None if it has not begun.

    A script that may have begun is never run again: its end without an answer is an error.
    """
    place = Path(linux_path(script.path))
    question = json.dumps({"path": script.path, "settings": script.settings})
    try:
        if script.text:
            place.write_text(script.text, encoding="utf-8-sig")
        with socket.socket(socket.AF_UNIX) as channel:
            channel.connect(SOCKET)
            channel.sendall(question.encode() + b"\n")
            line = _read_answer(channel)
    except OSError:
        return None
    finally:
        if script.text:
            place.unlink(missing_ok=True)
    answer: Mapping[str, object] | None = json.loads(line) if line else _ENDED
    return answer


def _read_answer(channel: socket.socket) -> str:
    with suppress(OSError), channel.makefile(encoding="utf-8") as answers:
        return answers.readline()
    return ""


def run(command: Sequence[str]) -> int:
    """Run a command line of PowerShell; returns its exit code."""
    script = script_of(command)
    answer = ask(script) if script is not None else None
    if answer is None:
        os.execv(SHELL, [SHELL, *command])  # noqa: S606  no shell is wanted
    sys.stdout.write(str(answer["output"]))
    sys.stderr.write(str(answer["errors"]))
    return int(str(answer["code"]))


def serve() -> None:
    """Answer questions, one at a time, until none comes.

    A caller that goes away, as at its deadline, ends the PowerShell that works for it.
    """
    listening = socket.socket(fileno=_SYSTEMD_SOCKET)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = [SHELL, PROGRAM, "-NoProfile", "-NonInteractive", "-File", SERVE, str(port)]
        with subprocess.Popen(command) as process:  # noqa: S603  the node's own
            try:
                server.settimeout(_START_SECONDS)
                channel, _ = server.accept()
                with listening, channel:
                    _serve(listening, channel)
            finally:
                process.terminate()


def _serve(listening: socket.socket, channel: socket.socket) -> None:
    # OSError: PowerShell has ended
    with suppress(OSError), channel.makefile(encoding="utf-8") as answers:
        while select.select([listening], [], [], _IDLE_SECONDS)[0]:
            caller, _ = listening.accept()
            with caller, caller.makefile("rb") as questions:
                question = questions.readline()
                if select.select([channel], [], [], 0)[0]:  # it says nothing unasked: it has ended
                    caller.sendall(_NOT_BEGUN)
                    return
                channel.sendall(question)
                while True:
                    ready, _, _ = select.select([caller, channel], [], [])
                    if channel in ready:
                        break
                    if not caller.recv(1):
                        return
                answer = answers.readline()
                if not answer:
                    return
                with suppress(OSError):
                    caller.sendall(answer.encode())


def main(arguments: Sequence[str]) -> int:
    """Do what the verb says; returns the exit code."""
    verb, *command = arguments
    if verb == "serve":
        serve()
        return 0
    return run(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
