"""What a node translates: Services and their backends, and what leaves with its address."""

from __future__ import annotations

from dataclasses import dataclass

from lab.scenario.terms import Policy, ServicePort


@dataclass(frozen=True, slots=True)
class Backend:
    """One ready endpoint of a Service."""

    pod: str
    address: str
    node: str
    """Where the pod is."""


@dataclass(frozen=True, slots=True)
class ProxiedService:
    """One Service, as this node's kube-proxy must program it."""

    name: str
    address: str
    ports: tuple[ServicePort, ...]
    backends: tuple[Backend, ...]
    affinity: int | None = None
    """Seconds for which a client keeps its backend after its last connection; None where each
    connection draws anew."""
    inside: Policy = "cluster"
    """Kubernetes' internalTrafficPolicy: of packets to the Service's address."""
    outside: Policy = "cluster"
    """Kubernetes' externalTrafficPolicy: of packets to its ports on nodes."""
    health_port: int | None = None
    """Where each node says how many backends it has (healthCheckNodePort)."""

    def node_ports(self) -> tuple[int, ...]:
        """The ports that it has on every node."""
        return tuple(port.node_port for port in self.ports if port.node_port is not None)


@dataclass(frozen=True, slots=True)
class HeadlessService:
    """A Service without an address: its name stands for its backends' addresses."""

    name: str
    backends: tuple[Backend, ...]


@dataclass(frozen=True, slots=True)
class Translation:
    """What a node translates.

    Traffic to Services from outside ``local_cidr`` (the node's own pod CIDR) is masqueraded,
    and so is NodePort and hairpin traffic. Pods' traffic to anything outside ``not_masqueraded``
    leaves with the node's address (flannel's ip-masq, the Windows OutBoundNAT policy).
    """

    local_cidr: str | None
    """None on a node without pods."""
    not_masqueraded: tuple[str, ...]
    services: tuple[ProxiedService, ...]
    refuses: bool = True
    """Whether packets that no backend is there for are refused, as by kube-proxy on Linux;
    else they are lost."""
    short_circuits: bool = True
    """Whether a port that is for local backends alone takes packets of the node's own, and of
    its own pods, to any backend, as kube-proxy on Linux has it."""
