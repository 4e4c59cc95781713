"""What a provider adds that can ask the kernel what it does with packets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lab._deadline import Deadline
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent


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
    trouble: str = ""
    """Why it said nothing; empty where it could be asked."""


class KernelTracing(Protocol):
    """What a provider has that can trace packets through the kernel's rules."""

    def trace_kernel(  # noqa: PLR0913, PLR0917  each of them differs from call to call
        self,
        lab: LabHandle,
        intent: Intent,
        places: Sequence[str],
        table: str,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[KernelSaid, ...]:
        """What the kernel says in each of the places while ``during`` runs.

        ``table`` is an nftables table, owned by who loads it, that marks the packets to be traced.
        The kernel removes it when its process ends, however that is.

        Raises BrokenError when the lab's machines are not there. Raises DeadlineError when it has
        not ended in time.
        """
