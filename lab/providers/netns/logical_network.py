"""Whether a lab's logical network has reached every chassis, asked of OVN's own databases.

Runs inside the holder, where the sockets of the central machine's daemons are files.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.providers.netns.programs import search_path
from lab.providers.netns.surroundings import run_directory
from lab.topology.logical import LogicalNetwork

_LOOK_SECONDS = 0.05
_WATCH_SECONDS = 0.2
_ONE_COMMAND_SECONDS = 30


def wait_until_there(
    network: LogicalNetwork, deadline: Deadline, require: Callable[[], None]
) -> None:
    """Wait until every chassis is registered, every port is up, and every flow is programmed.

    Parameters
    ----------
    network
        The lab's.
    deadline
        For all of it.
    require
        Raises when a daemon has ended; called while something is waited for.

    Raises
    ------
    DeadlineError
        With the chassis and ports that are missing.
    BrokenError
        When a database does not answer, or what ``require`` raises.

    """
    ask = _Asking(network, require)
    deadline.wait(
        f"waiting for the logical network of {len(network.switches)} nodes",
        partial(_missing, network, ask),
        until=lambda missing: not missing,
        every=_LOOK_SECONDS,
    )
    ask("nbctl", "--wait=sb", "sync")
    deadline.wait(
        "waiting for every chassis to program what the databases hold",
        partial(_behind, network, ask),
        until=lambda behind: not behind,
        every=_LOOK_SECONDS,
    )


def _missing(network: LogicalNetwork, ask: _Asking) -> tuple[str, ...]:
    there = {str(row["name"]) for row in _rows(ask, "sbctl", "Chassis", "name")}
    wanted = [switch.name for switch in network.switches]
    up = {
        str(row["name"])
        for row in _rows(ask, "nbctl", "Logical_Switch_Port", "name,up")
        if row["up"] is True
    }
    return (
        *(f"chassis {name} is not registered" for name in wanted if name not in there),
        *(f"port {port.name} is not up" for port in network.ports() if port.name not in up),
    )


def _behind(network: LogicalNetwork, ask: _Asking) -> tuple[str, ...]:
    (wanted,) = (int(row["nb_cfg"]) for row in _rows(ask, "nbctl", "NB_Global", "nb_cfg"))
    done = {
        str(row["name"]): int(row["nb_cfg"])
        for row in _rows(ask, "sbctl", "Chassis_Private", "name,nb_cfg")
    }
    return tuple(
        f"chassis {name} has programmed {done[name]} of {wanted}"
        for name in (switch.name for switch in network.switches)
        if done.get(name, 0) < wanted
    )


def _rows(ask: _Asking, tool: str, table: str, columns: str) -> Iterator[dict[str, Any]]:
    found = json.loads(ask(tool, "--format=json", f"--columns={columns}", "list", table))
    for row in found["data"]:
        yield dict(zip(found["headings"], row, strict=True))


@dataclass(frozen=True, slots=True)
class _Asking:
    """Asks OVN's databases, and leaves a tool that waits for a daemon which has ended."""

    network: LogicalNetwork
    require: Callable[[], None]

    def __call__(self, tool: str, *words: str) -> str:
        self.require()
        base = {"nbctl": "ovnnb_db", "sbctl": "ovnsb_db"}[tool]
        socket = f"{run_directory(self.network.central)}/ovn/{base}.sock"
        command = [f"ovn-{tool}", f"--timeout={_ONE_COMMAND_SECONDS}", f"--db=unix:{socket}"]
        process = subprocess.Popen(  # noqa: S603  the database's own tool
            [*command, "--no-leader-only", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PATH": search_path()},
        )
        said, complaint = self._heard(process)
        if process.returncode:
            self.require()
            raise BrokenError(
                f"running '{' '.join(words)}' on '{self.network.central}'",
                f"exit code {process.returncode}: {complaint.strip() or 'it wrote nothing'}",
            )
        return said

    def _heard(self, process: subprocess.Popen[str]) -> tuple[str, str]:
        """Everything that it writes; the tool itself gives up after so many seconds."""
        with process:
            while True:
                try:
                    return process.communicate(timeout=_WATCH_SECONDS)
                except subprocess.TimeoutExpired:
                    try:
                        self.require()
                    except BrokenError:
                        process.kill()
                        raise
