"""The kernel-trace ability: trace packets through the kernel's rules and counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lab._deadline import Deadline
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent


@dataclass(frozen=True, slots=True)
class RouteQuestion:
    """A route look-up for one of the probe's packets, and the device that the Intent expects."""

    source: str
    target: str
    protocol: str
    port: int
    """The target's port; the source port of an answer."""
    answer: bool
    arrives: str
    """The input device; empty at the packet's origin."""
    leaves: str

    def command(self, mark: str) -> tuple[str, ...]:
        """The ``ip route get`` command; ``mark`` is empty for unmarked packets."""
        arrived = ("iif", self.arrives) if self.arrives else ()
        port = "sport" if self.answer else "dport"
        marked = ("mark", mark) if mark else ()
        return (
            *("ip", "route", "get", self.target, "from", self.source, *arrived, *marked),
            *("ipproto", self.protocol, port, str(self.port)),
        )


@dataclass(frozen=True, slots=True)
class KernelSaid:
    """The kernel's trace and counters in one network namespace during an operation."""

    place: str
    """The pod or machine."""
    traced: str = ""
    """Output of ``nft monitor trace``, with handles."""
    before: str = ""
    """Counters of /proc/net/snmp, netstat, xfrm_stat and dev, and queue statistics."""
    after: str = ""
    routes: tuple[tuple[RouteQuestion, str], ...] = ()
    """Output of ``ip route get`` for each question, or its error if there is no route."""
    trouble: str = ""
    """Why there is no trace; empty if there is one."""


class KernelTracing(Protocol):
    """The methods of a provider with the ability ``KERNEL_TRACE``."""

    def trace_kernel(  # noqa: PLR0913, PLR0917  each differs from call to call
        self,
        lab: LabHandle,
        intent: Intent,
        places: Mapping[str, Sequence[RouteQuestion]],
        table: str,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[KernelSaid, ...]:
        """Trace in each of ``places`` while ``during`` runs, then query routes.

        ``table`` is an nftables table with flag ``owner`` that marks the packets to trace. The
        kernel removes it when the process that loaded it exits.

        Raises BrokenError when the lab's machines do not exist. Raises DeadlineError when the trace
        does not finish in time.
        """
