"""kube-proxy's configuration on Linux nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lab.cluster.cluster import Cluster
from lab.cluster.documents import Document
from lab.scenario.terms import ProxyMode

KUBECONFIG = "/var/lib/kube-proxy/kubeconfig.conf"
"""Where kubeadm's DaemonSet has it."""
TABLES: Mapping[ProxyMode, tuple[str, ...]] = {
    "nftables": ("kube-proxy",),
    "iptables": ("nat", "filter", "mangle"),
}
"""Those of nftables that each mode makes on a node."""


def configuration(cluster: Cluster) -> Document:
    """What every kube-proxy on Linux reads.

    What does not come from the node's own pods is
    masqueraded, as the Intent says. NodePorts are answered on every network that nodes are on:
    by itself nftables mode has them on the node's first address alone, where a client on the
    other network is refused (kube-proxy's reference, ``--nodeport-addresses``). How many
    connections a kernel tracks is its owner's to say: kube-proxy ends where it may not.
    """
    several = {"nodePortAddresses": list(cluster.networks)} if len(cluster.networks) > 1 else {}
    untouched = {"conntrack": {"maxPerCore": 0, "min": 0}} if cluster.host.shared_kernel else {}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": cluster.proxy_mode,
        "clusterCIDR": cluster.pod_cidr,
        "detectLocalMode": "NodeCIDR",
        **several,
        **untouched,
        "clientConnection": {"kubeconfig": KUBECONFIG},
    }
