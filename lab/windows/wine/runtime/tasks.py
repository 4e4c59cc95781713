"""Scheduled tasks of a Wine node, as systemd's units: PowerShell needs a terminal to run.

``python3 -m lab.windows.wine.runtime.tasks VERB NAME [...]`` runs on the node, for the PowerShell
module ScheduledTasks: ``register NAME AT-STARTUP PROGRAM ARGUMENTS``, ``start``, ``stop``,
``remove``, ``list``; as the unit's program, ``run``; and ``power restart`` or ``power off`` for
``standins/shutdown.c``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TASKS = Path("/var/lib/hybridlab/tasks")
SHELL = "/usr/local/bin/windows-shell"
_SECONDS = 30.0


def split_arguments(text: str) -> list[str]:
    """Split a Windows command line's arguments at blanks outside double quotes. Pure."""
    words: list[str] = []
    word, inside, begun = "", False, False
    for character in text:
        if character == '"':
            inside, begun = not inside, True
        elif character == " " and not inside:
            if word or begun:
                words.append(word)
            word, begun = "", False
        else:
            word += character
    return [*words, word] if word or begun else words


def _unit(name: str) -> str:
    return f"hybridlab-task@{name}.service"


def _systemctl(*words: str) -> str:
    command = ("systemctl", *words)
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603  the node's own
    return done.stdout.strip()


def main(arguments: Sequence[str]) -> int:
    """Do what the verb says; returns the exit code."""
    verb, *rest = arguments
    name = rest[0] if rest else ""
    file = TASKS / f"{name}.json"
    if verb == "register":
        startup, program, words = rest[1], rest[2], rest[3] if len(rest) > 3 else ""  # noqa: PLR2004  all four
        TASKS.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([program, *split_arguments(words)]), encoding="utf-8")
        _systemctl("enable" if startup == "1" else "disable", _unit(name))
    elif verb == "run":
        os.execv(SHELL, [SHELL, *json.loads(file.read_text(encoding="utf-8"))])  # noqa: S606  no shell is wanted
    elif verb in {"start", "stop"}:
        _systemctl(verb, _unit(name))
    elif verb == "remove":
        _systemctl("stop", _unit(name))
        _systemctl("disable", _unit(name))
        file.unlink(missing_ok=True)
    elif verb == "power":
        # --force: logind, which would be asked, does not run here
        _systemctl("--force", "--no-block", "reboot" if name == "restart" else "poweroff")
    elif verb == "list":
        for task in sorted(TASKS.glob("*.json")):
            active = _systemctl("is-active", _unit(task.stem)) in {"active", "activating"}
            print(task.stem, "Running" if active else "Ready")
    else:
        print(f"there is no verb '{verb}'")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
