"""One thing on a node that is not as the Intent has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_interface
from typing import Literal

from lab.cluster.footprint import By, Footprint
from lab.facts.node import NodeFacts
from lab.facts.translations import Barrier
from lab.matrix.finding import IN_POD, Finding
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

FAULT_OF: Mapping[str, str] = {
    "link-down": "node-link-down",
    "pod-link-down": "pod-link-down",
    "wrong-vni": "wrong-vni",
    "wrong-port": "wrong-udp-port",
    "tunnel-port-dropped": "tunnel-udp-dropped",
    "tunnel-port-rejected": "tunnel-udp-rejected",
    "forwarding-off": "ip-forward-off",
    "route-missing": "route-missing",
    "entry-missing": "fdb-entry-missing",
    "stale-neighbour": "stale-neighbour",
    "bridge-mtu": "mtu-black-hole",
    "tunnel-mtu": "mtu-black-hole",
    "link-mtu": "mtu-black-hole",
    "pod-mtu": "mtu-black-hole",
    "packets-lost": "packet-loss",
    "slowed": "slow-link",
    "duplicate-address": "duplicate-pod-address",
    "duplicate-pod-cidr": "duplicate-node-pod-cidr",
    "stale-backend": "service-backend-stale",
    "balancer-stale": "service-backend-stale",
    "balancers-missing": "service-rules-missing",
    "service-rules-missing": "service-rules-missing",
    "node-port-barred": "nodeport-blocked",
    "masquerade-missing": "masquerade-missing",
    "masquerade-exception-missing": "outboundnat-exception-missing",
    "name-server-barred": "dns-unreachable",
    "duplicate-mac": "two-nodes-one-mac",
    "session-down": "bgp-session-down",
    "gateway-missing": "gateway-dead",
    "gateway-barred": "gateway-dead",
    "proxy-stopped": "kube-proxy-stopped",
    "flanneld-down": "flanneld-killed",
    "runtime-down": "containerd-stopped",
    "wrong-subnet": "wrong-pod-cidr",
    "cni-config-missing": "cni-config-missing",
    "certificate-expired": "kubelet-certificate-expired",
    "disk-full": "disk-full",
    "dns-scaled-down": "coredns-scaled-down",
    "felix-down": "felix-killed",
    "wrong-pool": "wrong-pool",
    "wrong-encapsulation": "wrong-encapsulation",
    "wrong-as": "wrong-as-number",
}
"""What is observed, and the fault of the catalogue that looks like it. Other kinds have none."""


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


def found(difference: Difference, hop: int) -> Finding:
    """The finding that a difference is; ``hop`` is -1 where it is not on the path."""
    inside = difference.shows.startswith(IN_POD)
    pod = difference.object.rpartition("pod ")[2]  # "neighbour 10.244.1.1 of pod worker1-p1"
    return Finding(
        kind=difference.kind,
        fault=FAULT_OF.get(difference.kind, ""),
        node=difference.node,
        object=difference.object,
        intended=difference.intended,
        observed=difference.observed,
        shows=difference.shows,
        mends=difference.mends,
        place=pod if inside else difference.place or difference.node,
        hop=hop,
    )
