"""Whether a lab's logical network has reached every chassis, asked of OVN's own databases.

Runs inside the holder, where the sockets of the central machine's daemons are files.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.providers.netns.programs import search_path
from lab.providers.netns.surroundings import run_directory
from lab.topology.logical import LogicalNetwork

_LOOK_SECONDS = 0.05
_ONE_COMMAND_SECONDS = 30


def wait_until_there(network: LogicalNetwork, deadline: Deadline) -> None:
    """Wait until every chassis is registered, every port is up, and every flow is programmed.

    Raises
    ------
    DeadlineError
        With the chassis and ports that are missing.
    BrokenError
        When a database does not answer.

    """
    deadline.wait(
        f"waiting for the logical network of {len(network.switches)} nodes",
        partial(_missing, network),
        until=lambda missing: not missing,
        every=_LOOK_SECONDS,
    )
    _ask(network, "nbctl", "--wait=sb", "sync")
    deadline.wait(
        "waiting for every chassis to program what the databases hold",
        partial(_behind, network),
        until=lambda behind: not behind,
        every=_LOOK_SECONDS,
    )


def _missing(network: LogicalNetwork) -> tuple[str, ...]:
    there = {str(row["name"]) for row in _rows(network, "sbctl", "Chassis", "name")}
    wanted = [switch.name for switch in network.switches]
    up = {
        str(row["name"])
        for row in _rows(network, "nbctl", "Logical_Switch_Port", "name,up")
        if row["up"] is True
    }
    return (
        *(f"chassis {name} is not registered" for name in wanted if name not in there),
        *(f"port {port.name} is not up" for port in network.ports() if port.name not in up),
    )


def _behind(network: LogicalNetwork) -> tuple[str, ...]:
    (wanted,) = (int(row["nb_cfg"]) for row in _rows(network, "nbctl", "NB_Global", "nb_cfg"))
    done = {
        str(row["name"]): int(row["nb_cfg"])
        for row in _rows(network, "sbctl", "Chassis_Private", "name,nb_cfg")
    }
    return tuple(
        f"chassis {name} has programmed {done[name]} of {wanted}"
        for name in (switch.name for switch in network.switches)
        if done.get(name, 0) < wanted
    )


def _rows(network: LogicalNetwork, tool: str, table: str, columns: str) -> Iterator[dict[str, Any]]:
    found = json.loads(_ask(network, tool, "--format=json", f"--columns={columns}", "list", table))
    for row in found["data"]:
        yield dict(zip(found["headings"], row, strict=True))


def _ask(network: LogicalNetwork, tool: str, *words: str) -> str:
    base = {"nbctl": "ovnnb_db", "sbctl": "ovnsb_db"}[tool]
    socket = f"{run_directory(network.central)}/ovn/{base}.sock"
    command = [f"ovn-{tool}", f"--db=unix:{socket}", "--no-leader-only", *words]
    limited = [command[0], f"--timeout={_ONE_COMMAND_SECONDS}", *command[1:]]
    done = subprocess.run(  # noqa: S603  the database's own tool
        limited,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": search_path()},
    )
    if done.returncode:
        raise BrokenError(
            f"running '{' '.join(words)}' on '{network.central}'",
            f"exit code {done.returncode}: {done.stderr.strip() or 'it wrote nothing'}",
        )
    return done.stdout
