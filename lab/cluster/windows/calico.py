"""Calico by its operator, with Windows nodes: what the cluster is given. Pure.

From Calico's documentation for its operator (3.27 and later), as sig-windows-tools points to it.
VXLAN on UDP 4789 without cross-subnet mode; BGP is off, IPIP does not exist on Windows. Not run
with Windows by us.
"""

from __future__ import annotations

from lab.cluster.cluster import API_PORT, Cluster

Document = dict[str, object]
OPERATOR = "tigera-operator"
BLOCK_BITS = 26
"""Prefix length of the blocks that nodes get; one block a Windows node."""


def documents(cluster: Cluster) -> tuple[Document, ...]:
    """In the order in which they are applied, after the operator's own."""
    return services_endpoint(cluster), installation(cluster), strict_affinity()


def services_endpoint(cluster: Cluster) -> Document:
    """Where the API server is: on Windows no service address works before kube-proxy does."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kubernetes-services-endpoint", "namespace": OPERATOR},
        "data": {
            "KUBERNETES_SERVICE_HOST": cluster.endpoint,
            "KUBERNETES_SERVICE_PORT": str(API_PORT),
        },
    }


def installation(cluster: Cluster) -> Document:
    """The operator's own resource, with its Windows data plane on."""
    pool = {
        "blockSize": BLOCK_BITS,
        "cidr": cluster.pod_cidr,
        "encapsulation": "VXLAN",
        "natOutgoing": "Enabled",
        "nodeSelector": "all()",
    }
    return {
        "apiVersion": "operator.tigera.io/v1",
        "kind": "Installation",
        "metadata": {"name": "default"},
        "spec": {
            "calicoNetwork": {"bgp": "Disabled", "windowsDataplane": "HNS", "ipPools": [pool]},
            "serviceCIDRs": [cluster.service_cidr],
        },
    }


def strict_affinity() -> Document:
    """No node borrows an address of another's block: Windows cannot route to one."""
    return {
        "apiVersion": "projectcalico.org/v3",
        "kind": "IPAMConfiguration",
        "metadata": {"name": "default"},
        "spec": {"strictAffinity": True},
    }
