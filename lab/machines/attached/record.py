"""What was found out about an existing cluster, and how it is to be probed: the lab's record.

It is stored with the lab in place of a scenario, as JSON.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass

from lab._errors import BrokenError
from lab.scenario.terms import Os, Role

RECORD = "scenario.yaml"
"""Where the record is in the lab's directory: where other labs have their scenario."""
IMAGE = "registry.k8s.io/e2e-test-images/agnhost"
VERSION = "2.63.0"
PODS = 2
"""Probe pods of a node."""
MOST_NODES = 50
RATE = 200
"""Connections that one node's probe pods make in a second."""


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """Which cluster: a kubeconfig, and a context of it."""

    kubeconfig: str
    """Paths as in the variable ``KUBECONFIG``."""
    context: str

    def kubectl(self, words: str) -> str:
        """A command line for the cluster, for any shell of the user."""
        context = shlex.quote(f"--context={self.context}")
        if os.pathsep in self.kubeconfig:  # kubectl's own option takes one file
            files = shlex.quote(f"KUBECONFIG={self.kubeconfig}")
            return f"env {files} kubectl {context} {words}"
        file = shlex.quote(f"--kubeconfig={self.kubeconfig}")
        return f"kubectl {file} {context} {words}"


@dataclass(frozen=True, slots=True)
class ProbeTerms:
    """How the cluster is to be probed: what its owner allows."""

    image: str = f"{IMAGE}:{VERSION}"
    prefix: str = ""
    """Registry and path to pull from instead of the image's own registry."""
    pull_secrets: tuple[str, ...] = ()
    namespace: str = ""
    """An existing namespace; empty for one of the lab's own."""
    tolerations: tuple[str, ...] = ()
    """Taints as kubectl writes them: ``key``, ``key=value``, ``key=value:effect``."""
    nodes: tuple[str, ...] = ()
    """Labels that nodes must have, as ``key=value``, or names of nodes; empty for all."""
    node_ports: bool = True
    host_network: bool = False
    """Whether a pod in each node's own network sends for the node."""
    debug_pods: bool = False
    """Whether a privileged pod on each Linux node reads the node's own state."""
    from_here: bool = False
    """Whether this machine probes the node ports, too."""
    most_nodes: int = MOST_NODES
    rate: int = RATE

    @property
    def pulled(self) -> str:
        """The image as pods have it."""
        if not self.prefix:
            return self.image
        return f"{self.prefix.rstrip('/')}/{self.image.rpartition('/')[2]}"


@dataclass(frozen=True, slots=True)
class NodeFound:
    """One node, as the API reports it."""

    name: str
    os: Os
    role: Role
    build: str
    """``Debian GNU/Linux 12 (bookworm)``, ``10.0.20348.2762``."""
    version: str
    """The kubelet's."""
    addresses: tuple[str, ...]
    """IPv4, the internal one first; then those of devices that the CNI reports."""
    pod_cidr: str
    """Empty if the API does not say."""
    hostname: str
    """The value of its label ``kubernetes.io/hostname``."""
    zone: str
    ready: bool
    taints: tuple[str, ...]
    remarks: tuple[str, ...]
    """What is unusual: ``NotReady: KubeletNotReady``, ``cordoned``, ``on Wine``."""
    wine: bool = False
    """Whether it is no Windows, but Kubernetes' Windows programs on Wine."""


@dataclass(frozen=True, slots=True)
class DnsFound:
    """The cluster's DNS."""

    namespace: str
    service: str
    address: str
    domain: str
    pods: tuple[tuple[str, str, str], ...]
    """Name, node and address of each ready pod behind it."""


@dataclass(frozen=True, slots=True)
class ClusterFound:
    """What was found out about a cluster."""

    server: str
    version: str
    nodes: tuple[NodeFound, ...]
    """Those to probe."""
    others: tuple[tuple[str, str], ...]
    """Nodes that are left out, and why."""
    cni: str
    """Empty if it is not recognised."""
    cni_seen: str
    """The object by which it was recognised."""
    pod_cidrs: tuple[str, ...]
    pod_cidrs_from: str
    service_cidrs: tuple[str, ...]
    service_cidrs_from: str
    dns: DnsFound | None
    proxy_mode: str
    """Empty if it is unknown."""
    unknown: tuple[tuple[str, str], ...]
    """What could not be found out, and why."""


@dataclass(frozen=True, slots=True)
class AttachedRecord:
    """A lab on an existing cluster: everything that its commands need."""

    lab: str
    address: ClusterAddress
    terms: ProbeTerms
    cluster: ClusterFound
    namespace: str
    """The namespace of its objects. The lab's own namespace has a random suffix, because others may
    use the cluster."""
    prefix: str = ""
    """What the names of its objects begin with in a namespace that others use, too."""

    @property
    def shared(self) -> bool:
        """Whether the namespace is not the lab's and stays."""
        return bool(self.terms.namespace)


def to_text(record: AttachedRecord) -> str:
    """The record as JSON."""
    from pydantic import TypeAdapter  # noqa: PLC0415  slow

    return TypeAdapter(AttachedRecord).dump_json(record, indent=1).decode() + "\n"


def from_text(text: str) -> AttachedRecord:
    """Parse the output of :func:`to_text`.

    Raises ValueError when it is not one.
    """
    from pydantic import TypeAdapter  # noqa: PLC0415  slow

    return TypeAdapter(AttachedRecord).validate_json(text)


def read_record(text: str) -> AttachedRecord:
    """The record of a lab that is attached.

    Raises BrokenError when this version cannot read it.
    """
    try:
        return from_text(text)
    except ValueError as error:
        raise BrokenError(
            "reading the record of a lab on an existing cluster",
            f"this version of lab cannot read it: {str(error).splitlines()[0]}",
            "use the version that wrote it for 'lab detach'",
        ) from error
