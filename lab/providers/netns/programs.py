"""The programs that a lab's daemons need: whether this machine has them, and who has them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from lab._errors import PreflightError
from lab.topology.intent import Intent

_OF_ROOT = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where daemons are, and where a plain user's PATH does not lead."""


@dataclass(frozen=True, slots=True)
class Missing:
    """One program that is not there."""

    program: str
    package: str
    daemon: str
    machine: str
    """The first that wants it."""


def search_path() -> str:
    """PATH as it is, and where root's programs are behind it."""
    own = os.environ.get("PATH", os.defpath)
    return os.pathsep.join((own, *(place for place in _OF_ROOT if place not in own.split(":"))))


def missing(intent: Intent) -> Iterator[Missing]:
    """Every program that this machine does not have, once."""
    known: set[str] = set()
    for machine in intent.machines:
        for daemon in machine.daemons:
            for program in daemon.programs():
                if program not in known and not shutil.which(program, path=search_path()):
                    yield Missing(program, daemon.package, daemon.name, machine.name)
                known.add(program)


def require(intent: Intent) -> None:
    """See that every daemon can be started.

    Raises
    ------
    PreflightError
        Naming each program that is missing, who needs it, and the packages that have them.

    """
    found = tuple(missing(intent))
    if not found:
        return
    packages = dict.fromkeys(one.package for one in found)
    raise PreflightError(
        f"checking this machine for scenario '{intent.scenario}'",
        "; ".join(
            f"no program '{one.program}' (package {one.package}), "
            f"needed for '{one.daemon}' on '{one.machine}'"
            for one in found
        ),
        f"sudo apt-get install --no-install-recommends {' '.join(packages)}",
    )
