"""Trace packets through the kernel in many namespaces during a probe.

Runs in a child that is process 1 of its own pid namespace, so every ``nft`` ends with it. Each
``nft`` owns the table that it loads: the kernel removes the table when its socket closes.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic, sleep
from typing import IO

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError
from lab.providers.kernel import KernelSaid, RouteQuestion
from lab.providers.netns import isolation
from lab.providers.netns.machine import run_captured

_COUNTERS = ("snmp", "netstat", "xfrm_stat", "dev")
_NETFILTER, _TRACE_GROUP = "12", 1 << 8
"""NETLINK_NETFILTER of linux/netlink.h, and the bit of NFNLGRP_NFTRACE."""
_READY_SECONDS, _QUIET_SECONDS, _LINGER_SECONDS = 5.0, 0.05, 0.5
_MARKED = re.compile(r"meta mark set (0x[0-9a-f]+)")
"""The mark in a traced rule; routes are then looked up with it."""
READY = "ready"
_TRACER, _QUEUES = ("nft", "-a", "-i"), ("tc", "-statistics", "qdisc", "show")


@dataclass(slots=True)
class _Tracer:
    place: str
    output: IO[str]
    process: subprocess.Popen[str] | None = None
    before: str = ""
    trouble: str = ""


def trace_kernel(
    enter: Callable[[str], None],
    places: Mapping[str, Sequence[RouteQuestion]],
    table: str,
    tell: Callable[[str], None],
    stop: int,
) -> list[KernelSaid]:
    """Trace in every place until ``stop`` becomes readable.

    Parameters
    ----------
    enter
        Moves the calling thread into the named network namespace.
    places
        Pods and machines, each with the routes to query there after tracing.
    table
        The nftables table to load; it marks the packets to trace.
    tell
        Called with ``READY`` once every place is traced.
    stop
        File descriptor of a pipe's read end.

    """
    isolation.mount("proc", "/proc", "proc", isolation.MS_NOSUID | isolation.MS_NODEV)
    os.environ["PATH"] = isolation.search_path()
    with ExitStack() as files:
        tracers = [_Tracer(one, files.enter_context(TemporaryFile("w+"))) for one in places]
        for one in tracers:
            _begin(one, enter, table)
        for one in tracers:
            _wait_until_traced(one, enter)
        tell(READY)
        select.select([stop], [], [])
        _wait_until_quiet(tracers)
        return [_end(one, enter, places[one.place]) for one in tracers]


def _begin(tracer: _Tracer, enter: Callable[[str], None], table: str) -> None:
    try:
        enter(tracer.place)
        tracer.before = _counters()
        tracer.process = subprocess.Popen(  # noqa: S603  a system program
            [*_TRACER],
            stdin=subprocess.PIPE,
            stdout=tracer.output,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert tracer.process.stdin is not None, "it is a pipe"
        tracer.process.stdin.write(f"{table}\nmonitor trace\n")
        tracer.process.stdin.flush()
    except (BrokenError, OSError) as error:
        tracer.trouble = str(error)


def _wait_until_traced(tracer: _Tracer, enter: Callable[[str], None]) -> None:
    if tracer.trouble:
        return
    enter(tracer.place)
    try:
        Deadline(_READY_SECONDS).wait(f"nft to trace in '{tracer.place}'", _is_traced)
    except DeadlineError as error:
        tracer.output.seek(0)
        tracer.trouble = tracer.output.read().strip() or str(error)


def _is_traced() -> bool:
    rows = Path("/proc/thread-self/net/netlink").read_text(encoding="ascii").splitlines()[1:]
    fields = [row.split() for row in rows]
    return any(one[1] == _NETFILTER and int(one[3], 16) & _TRACE_GROUP for one in fields)


def _counters() -> str:
    texts = []
    for name in _COUNTERS:
        path = Path(f"/proc/thread-self/net/{name}")
        if path.exists():  # not every kernel has IPsec counters
            texts.append(path.read_text(encoding="ascii"))
    return "".join((*texts, run_captured(_QUEUES).stdout))


def _wait_until_quiet(tracers: Sequence[_Tracer]) -> None:
    ends, size = monotonic() + _LINGER_SECONDS, -1
    while monotonic() < ends:
        now = sum(Path(f"/proc/self/fd/{one.output.fileno()}").stat().st_size for one in tracers)
        if now == size:
            return
        size = now
        sleep(_QUIET_SECONDS)


def _end(
    tracer: _Tracer, enter: Callable[[str], None], routes: Sequence[RouteQuestion]
) -> KernelSaid:
    if tracer.process is not None:
        tracer.process.kill()
        tracer.process.wait()
    if tracer.trouble:
        return KernelSaid(tracer.place, trouble=tracer.trouble)
    tracer.output.seek(0)
    enter(tracer.place)
    traced = tracer.output.read()
    mark = _MARKED.search(traced)
    asked = [(one, run_captured(one.command(mark[1] if mark else ""))) for one in routes]
    found = tuple((one, (done.stdout or done.stderr).strip()) for one, done in asked)
    return KernelSaid(tracer.place, traced, tracer.before, _counters(), found)
