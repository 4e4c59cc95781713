"""One thing on a node that is not as the Intent has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_interface
from typing import Literal

from lab.cluster.footprint import By, Footprint
from lab.cluster.observers.facts import NodeFacts
from lab.cluster.observers.passage import Barrier
from lab.topology.intent import MachineIntent

Kind = Literal[
    "pod-missing",
    "pod-link-down",
    "pod-address",
    "pod-gateway",
    "pod-mtu",
    "pod-neighbour",
    "pod-resolver",
    "pod-not-listening",
    "hairpin-off",
    "bridge-missing",
    "bridge-down",
    "bridge-address",
    "bridge-mtu",
    "bridge-filter-off",
    "proxy-missing",
    "service-rules-missing",
    "service-missing",
    "stale-backend",
    "backend-missing",
    "wrong-policy",
    "wrong-affinity",
    "wrong-refusal",
    "masquerade-missing",
    "masquerade-exception-missing",
    "forwarding-off",
    "route-missing",
    "wrong-route",
    "learned-route-missing",
    "wrong-learned-route",
    "session-down",
    "session-waiting",
    "stray-route",
    "neighbour-missing",
    "stale-neighbour",
    "neighbour-silent",
    "tunnel-missing",
    "tunnel-down",
    "wrong-vni",
    "wrong-port",
    "tunnel-local",
    "tunnel-address",
    "tunnel-mac",
    "tunnel-mtu",
    "entry-missing",
    "wrong-entry",
    "link-missing",
    "link-down",
    "link-address",
    "link-mtu",
    "link-mac",
    "gateway-missing",
    "gateway-barred",
    "unplugged",
    "tunnel-port-dropped",
    "tunnel-port-rejected",
    "node-port-barred",
    "name-server-barred",
    "packets-barred",
    "packets-lost",
    "slowed",
    "program-down",
    "runtime-down",
    "proxy-stopped",
    "flanneld-down",
    "wrong-subnet",
    "cni-config-missing",
    "certificate-expired",
    "disk-full",
    "dns-scaled-down",
    "felix-down",
    "wrong-pool",
    "wrong-encapsulation",
    "wrong-as",
    "duplicate-address",
    "duplicate-mac",
    "duplicate-pod-cidr",
    "tunnel-end-missing",
    "port-unbound",
    "logical-port",
    "logical-route",
    "balancers-missing",
    "balancer-missing",
    "balancer-stale",
]


@dataclass(frozen=True, slots=True)
class Difference:
    """What is not as it should be, how to see it, and how to mend it."""

    kind: Kind
    node: str
    object: str
    """``"tunnel flannel.4096"``, ``"route to 10.244.2.0/24"``."""
    intended: str
    observed: str
    shows: str
    """The command that shows it, on the node."""
    mends: str
    """The command that mends it, on the node, or what to do."""
    barrier: Barrier | None = None
    """The rule that bars packets, where it is one: which packets they are."""
    others: tuple[tuple[str, str], ...] = ()
    """Machine and device, or ``"pod NAME"``, of those that have the same, where it is a thing
    that one alone may have."""
    place: str = ""
    """The machine that the commands are for, where it is not the node."""
    concerns: tuple[tuple[str, str], ...] = ()
    """Machine and object of what hangs on it, on other machines too: ``("worker2", "route to
    10.244.0.64/26")``."""

    def __str__(self) -> str:
        return (
            f"{self.node}: {self.object}: {self.observed}, not {self.intended}; "
            f"see: {self.shows}; mend: {self.mends}"
        )


@dataclass(frozen=True, slots=True)
class Look:
    """What one hop after the other is judged by."""

    intended: MachineIntent
    observed: NodeFacts
    by: By
    beside: Footprint
    """What is there as well, and is as it should be."""

    def differs(  # noqa: PLR0913, PLR0917  a difference is all of these
        self, kind: Kind, what: str, intended: str, observed: str, shows: str, mends: str
    ) -> Difference:
        """A difference of this node."""
        return Difference(kind, self.intended.name, what, intended, observed, shows, mends)

    def works(self, device: str) -> bool:
        """Whether a device is there and up; what hangs on it is not told where it is not."""
        link = self.observed.link(device)
        return link is not None and link.up and link.carrier

    def ranges(self) -> tuple[str, ...]:
        """The prefixes of the lab, as far as the machine knows them: nodes', pods', Services'."""
        return tuple(dict.fromkeys(self._ranges()))

    def _ranges(self) -> Iterator[str]:
        machine = self.intended
        for interface in machine.interfaces:
            yield from (str(ip_interface(text).network) for text in interface.held)
        yield from (one.destination for one in machine.routes if one.destination != "default")
        if machine.translation:
            yield from machine.translation.not_masqueraded
            yield from (f"{service.address}/32" for service in machine.translation.services)
            if machine.translation.local_cidr:
                yield machine.translation.local_cidr
