"""The abilities to watch packets: capture at devices, and trace through the kernel's rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from lab._deadline import Deadline
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent

Direction = Literal["in", "out", "other"]
"""Direction at the device; ``other`` is incoming for another MAC."""

SNAP_BYTES = 262_144
"""Most bytes kept per packet; more than the kernel ever delivers at once."""


@dataclass(frozen=True, slots=True)
class Tap:
    """One device, and the pod or machine in whose network namespace it is."""

    place: str
    device: str

    def __str__(self) -> str:
        return f"{self.place} {self.device}"


@dataclass(frozen=True, slots=True)
class Frame:
    """One packet at a device, from its Ethernet header on."""

    at: int
    """Nanoseconds since 1970, by the clock of the device's computer."""
    direction: Direction
    data: bytes
    length: int
    """Bytes of the whole packet; greater than ``len(data)`` if it was truncated."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The packets captured at one tap."""

    tap: Tap
    frames: tuple[Frame, ...]
    missed: int = 0
    """Packets not kept because the tap's limit was reached."""
    trouble: str = ""
    """Why nothing could be captured there; empty if it could."""
    blind: bool = False
    """Whether nothing of its whole machine can be captured, so that it says nothing of packets."""


class Capturing(Protocol):
    """The methods of a provider with the ability ``CAPTURE``."""

    def capture(  # noqa: PLR0913, PLR0917  each of them differs from call to call
        self,
        lab: LabHandle,
        intent: Intent,
        taps: Sequence[Tap],
        limit: int,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[Taken, ...]:
        """Capture all packets at the taps while ``during`` runs; results in the order of the taps.

        ``during`` is called once every tap is open. ``limit`` is bytes kept per tap. A tap that
        cannot be opened does not affect the others. Nothing is left behind in any case.

        Raises BrokenError when the lab's machines do not exist. Raises DeadlineError when the
        capture does not finish in time.
        """

    def stream_packets(
        self,
        lab: LabHandle,
        intent: Intent,
        tap: Tap,
        heard: Callable[[Taken], None],
        deadline: Deadline,
    ) -> None:
        """Capture all packets at a tap, or without a device at all of its place, as they come.

        ``heard`` is called once for each device when its tap is open, then with the packets since
        the last call, at least every second; the capture ends when it raises. Nothing is left
        behind in any case.

        Raises BrokenError when the lab's machines do not exist, DeadlineError at the deadline.
        """


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
class TracedFlow:
    """The packets of a probe, in terms of each kernel."""

    protocol: str
    ends: Mapping[str, Collection[tuple[str, str, int]]]
    """By pod or machine: the pairs of addresses that they have there, with the server's port."""
    table: str
    """Linux: an nftables table with flag ``owner`` that marks them. The kernel removes it when the
    process that loaded it exits."""


@dataclass(frozen=True, slots=True)
class PacketDrop:
    """Packets of a probe that a component of Windows' network stack dropped."""

    component: str
    direction: str
    """``"inbound"`` or ``"outbound"``, as Windows names it."""
    count: int
    reason: str
    """In Windows' words."""


@dataclass(frozen=True, slots=True)
class KernelTrace:
    """The kernel's trace and counters in one network namespace during an operation.

    Of Windows only ``drops``, of a whole machine.
    """

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
    """What could not be asked, and why; empty if everything was."""
    drops: tuple[PacketDrop, ...] = ()


class KernelTracing(Protocol):
    """The methods of a provider with the ability ``KERNEL_TRACE``."""

    def trace_kernel(  # noqa: PLR0913, PLR0917  each differs from call to call
        self,
        lab: LabHandle,
        intent: Intent,
        places: Mapping[str, Sequence[RouteQuestion]],
        flow: TracedFlow,
        during: Callable[[], None],
        deadline: Deadline,
    ) -> tuple[KernelTrace, ...]:
        """Trace a flow in each of ``places`` while ``during`` runs, then query routes.

        Raises BrokenError when the lab's machines do not exist. Raises DeadlineError when the trace
        does not finish in time.
        """
