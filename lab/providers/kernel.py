"""What a provider adds that can ask the kernel what it does with packets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lab._deadline import Deadline
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent


@dataclass(frozen=True, slots=True)
class RouteQuestion:
    """By which device a packet of the probe's is sent on, and by which the Intent has it sent."""

    source: str
    target: str
    protocol: str
    port: int
    """The one that is asked; an answer comes from it."""
    answer: bool
    arrives: str
    """The device; empty where the packet begins."""
    leaves: str

    def command(self, mark: str) -> tuple[str, ...]:
        """What asks it of the kernel; ``mark`` is empty where packets have none."""
        arrived = ("iif", self.arrives) if self.arrives else ()
        port = "sport" if self.answer else "dport"
        marked = ("mark", mark) if mark else ()
        return (
            *("ip", "route", "get", self.target, "from", self.source, *arrived, *marked),
            *("ipproto", self.protocol, port, str(self.port)),
        )


@dataclass(frozen=True, slots=True)
class KernelSaid:
    """What the kernel said in one network namespace while something ran."""

    place: str
    """The pod or machine."""
    traced: str = ""
    """What ``nft monitor trace`` printed, with handles."""
    before: str = ""
    """The namespace's counters: /proc/net/snmp, netstat, xfrm_stat and dev, and those of queues."""
    after: str = ""
    routes: tuple[tuple[RouteQuestion, str], ...] = ()
    """What ``ip route get`` answers to each question; its error where there is no route."""
    trouble: str = ""
    """Why it said nothing; empty where it could be asked."""


class KernelTracing(Protocol):
    """What a provider has that can trace packets through the kernel's rules."""

    def trace_kernel(  # noqa: PLR0913, PLR0917  each of them differs from call to call
        self,
        lab: LabHandle,
        intent: Intent,
        places: Mapping[str, Sequence[RouteQuestion]],
        table: str,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[KernelSaid, ...]:
        """What the kernel says in each of the places while ``during`` runs, and of routes after it.

        ``table`` is an nftables table, owned by who loads it, that marks the packets to be traced.
        The kernel removes it when its process ends, however that is.

        Raises BrokenError when the lab's machines are not there. Raises DeadlineError when it has
        not ended in time.
        """
