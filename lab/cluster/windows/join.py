"""What a control plane gives to a node that joins. Secret: none of it is shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from lab._deadline import Deadline
from lab.cluster.cluster import ClusterNode


@dataclass(frozen=True, slots=True)
class HardWayJoin:
    """What a node has instead of a token where nobody uses kubeadm."""

    kubelet_kubeconfig: bytes = field(repr=False)
    """With the node's own client certificate in it."""
    ca: bytes = field(repr=False)
    """The cluster's CA, PEM."""


@dataclass(frozen=True, slots=True)
class Join:
    """All that lets one node in."""

    endpoint: str
    """Of the API server, ``"10.9.176.11:6443"``."""
    token: str = field(repr=False)
    """kubeadm's, for minutes; empty by hand."""
    ca_hash: str
    """``"sha256:..."`` of the CA's public key; empty by hand."""
    proxy_kubeconfig: bytes = field(repr=False)
    network_kubeconfig: bytes | None = field(default=None, repr=False)
    """flanneld's; None where none runs."""
    by_hand: HardWayJoin | None = None


class NodeApi(Protocol):
    """What of the cluster's API a joining node needs somebody to ask."""

    def registered(self, name: str, deadline: Deadline) -> bool:
        """Whether there is a Node of that name."""

    def set_pod_cidr(self, node: ClusterNode, deadline: Deadline) -> None:
        """Wait for the Node, and give it the plan's pod CIDR."""
