"""CoreDNS in a cluster, with the scenario's address and domain. Pure."""

from __future__ import annotations

from lab.machines.bundle.manifest import Manifest
from lab.machines.cluster.cluster import Cluster
from lab.machines.cluster.documents import Document, render
from lab.topology.intent import Intent

NAMESPACE = "kube-system"
IMAGE = "registry.k8s.io/coredns/coredns"
REPLICAS = 2
"""Number of replicas, as kubeadm has it; one if a single Linux node would run both."""


def documents(cluster: Cluster, manifest: Manifest) -> tuple[Document, ...]:
    """All documents of CoreDNS: kubeadm's add-on with the scenario's address and Corefile."""
    return render(
        "cluster/coredns.yaml",
        corefile=corefile(cluster.domain, cluster.name_server),
        replicas=replicas(cluster),
        image=manifest.image(IMAGE).name,
        address=cluster.dns_address,
    )


def corefile(domain: str, name_server: str | None = None) -> str:
    """CoreDNS' own configuration.

    The services node resolves names outside the cluster. Without one the lab has no other names and
    its machines let no pod out to ask for any, so every other name is answered NXDOMAIN at once.
    That needs a server block of its own: in one block with ``kubernetes``, ``template`` would come
    first, whatever the order here.
    """
    others = f"forward . {name_server}" if name_server else _NO_OTHERS
    return f"""{domain}:53 in-addr.arpa:53 ip6.arpa:53 {{
    errors
    health {{
        lameduck 5s
    }}
    ready
    kubernetes {domain} in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 30
    }}
    reload
    loadbalance
}}
.:53 {{
    errors
    {others}
}}
"""


_NO_OTHERS = """template ANY ANY {
        rcode NXDOMAIN
    }"""


def replicas(cluster: Cluster) -> int:
    """Number of CoreDNS replicas, limited by the Linux nodes that run pods."""
    able = [node for node in cluster.nodes if node.os == "linux" and node.pod_cidr]
    return min(REPLICAS, len(able))


def replicas_of(intent: Intent) -> int:
    """The same for the cluster that an Intent asks for."""
    linux = [
        machine.kubelet for machine in intent.machines if machine.os == "linux" and machine.kubelet
    ]
    return min(REPLICAS, len([machine for machine in linux if machine.pod_cidr]))
