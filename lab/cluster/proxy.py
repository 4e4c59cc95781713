"""kube-proxy's configuration on Linux nodes. Pure."""

from __future__ import annotations

from lab.cluster.cluster import Cluster
from lab.cluster.documents import Document

KUBECONFIG = "/var/lib/kube-proxy/kubeconfig.conf"
"""Where kubeadm's DaemonSet has it."""


def configuration(cluster: Cluster) -> Document:
    """What every kube-proxy on Linux reads.

    nftables, as the Intent's own translation is; what does not come from the node's own pods is
    masqueraded, as the Intent says.
    """
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": cluster.pod_cidr,
        "detectLocalMode": "NodeCIDR",
        "clientConnection": {"kubeconfig": KUBECONFIG},
    }
