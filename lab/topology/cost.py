"""The predicted cost of an Intent on the embedded provider."""

from __future__ import annotations

from collections.abc import Mapping

from lab._dataclass import dataclass
from lab.topology.intent import Intent

START_SECONDS = 0.15
"""Seconds to start Python, holder and responder."""
SECONDS_A_NAMESPACE = 0.0008
SECONDS_A_MESSAGE = 1 / 20_000
"""Per netlink message; measured on 2 cores (20,000 a second)."""
SECONDS_A_SERVICE = 0.0001
"""Seconds per Service and node to make, parse and commit the rules; measured: 200,100 in 16 s."""
SECONDS_A_DAEMON = 0.05
"""Seconds to start a daemon; a stage then settles as long as its slowest daemon."""
KIB_A_NAMESPACE = 400
"""Kernel memory of a namespace; measured 280 to 380 KiB."""
KIB_A_SERVICE = 5
"""Kernel memory per Service and node; measured: 1.0 GB for the rules of 200,100."""
PROCESSES_MIB = 40
"""Resident memory of holder and responder."""


@dataclass(frozen=True, slots=True)
class Cost:
    """A lab's predicted cost, and the counts that it is computed from."""

    seconds: float
    memory_mib: int
    disk_gib: int
    """Maximum size of the disks."""
    counts: Mapping[str, int]
    """By noun: ``{"namespace": 17}``."""


def cost(intent: Intent) -> Cost:
    """Predict the cost on 2 cores; an estimate for people, good to about a factor of two."""
    machines = intent.everything()
    pods = sum(len(machine.pods) for machine in machines)
    namespaces = 1 + len(machines) + pods
    links = len(intent.segments) + pods * 2
    links += sum(2 * len(m.interfaces) + bool(m.bridge) + bool(m.tunnel) for m in machines)
    routes = sum(len(machine.routes) for machine in machines) + pods
    neighbours = sum(
        len(machine.neighbours)
        + len(machine.forwarding)
        + len(machine.proxies)
        + sum(len(pod.neighbours) for pod in machine.pods)
        for machine in machines
    )
    services = sum(len(m.translation.services) for m in machines if m.translation)
    daemons = [daemon for machine in machines for daemon in machine.daemons]
    settling: dict[int, float] = {}
    for daemon in daemons:
        settling[daemon.stage] = max(settling.get(daemon.stage, 0.0), daemon.settles_seconds)
    messages = links * 4 + routes + neighbours
    seconds = (
        START_SECONDS
        + namespaces * SECONDS_A_NAMESPACE
        + messages * SECONDS_A_MESSAGE
        + services * SECONDS_A_SERVICE
        + len(daemons) * SECONDS_A_DAEMON
        + sum(settling.values())
    )
    kib = namespaces * KIB_A_NAMESPACE + services * KIB_A_SERVICE
    memory = PROCESSES_MIB + kib // 1024
    memory += sum(daemon.memory_mib for daemon in daemons)
    counts = {
        "namespace": namespaces,
        "link": links,
        "route": routes,
        "neighbour": neighbours,
        "programmed Service": services,
    }
    if daemons:
        counts["daemon"] = len(daemons)
    return Cost(round(seconds, 2), memory, 0, counts)
