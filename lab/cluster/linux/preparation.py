"""Everything that a Linux machine is before it is in the cluster, and what it needs of the bundle.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.cluster import dns, kubeadm
from lab.cluster.addons.registry import addons
from lab.cluster.bundle.manifest import ContainerImage, Manifest
from lab.cluster.cluster import Cluster, ClusterNode
from lab.cluster.linux import balancer, kubelet, machine, medium, membership, runtime
from lab.cluster.linux.operations import Enabled, Operation, Operations, Run, WriteFile
from lab.topology.intent import Intent

AGNHOST = "registry.k8s.io/e2e-test-images/agnhost"
KUBEADM_PROGRAMS = ("kubeadm", "kubectl", "kubelet")
_PLANE_IMAGES = tuple(
    f"registry.k8s.io/{name}"
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
)
_PROXY_IMAGE = "registry.k8s.io/kube-proxy"


def repositories(cluster: Cluster, node: ClusterNode) -> tuple[str, ...]:
    """The images that may be wanted on the node, by name without tag."""
    if node.pod_cidr is None:
        return ()
    found = [runtime.PAUSE, dns.IMAGE, AGNHOST]
    if cluster.how == "kubeadm":
        found.append(_PROXY_IMAGE)
        found += _PLANE_IMAGES if node.role == "control-plane" else ()
    found += addons()[cluster.topology].images(cluster)
    return tuple(sorted(found))


def prepared(cluster: Cluster, intent: Intent, node: ClusterNode, manifest: Manifest) -> Operations:
    """The machine with its medium, programs, container runtime, images and CNI configuration."""
    own = intent.machine(node.name)
    head = (*machine.prepared(cluster, intent, own), *medium.mount())
    if node.pod_cidr is None:
        return head
    resolver = WriteFile(kubeadm.RESOLVER, f"nameserver {cluster.dns_address}\n")
    return (
        *head,
        resolver,
        *_kubelet(cluster),
        *addons()[cluster.topology].prepare_node(cluster, intent, own),
        *runtime.running(manifest, cluster.host),
        *(medium.imported(image) for image in images(cluster, node, manifest)),
        *_member_running(cluster),
    )


def images(cluster: Cluster, node: ClusterNode, manifest: Manifest) -> tuple[ContainerImage, ...]:
    """The images that are put on the node."""
    return tuple(manifest.image(name) for name in repositories(cluster, node))


def balanced(cluster: Cluster, intent: Intent, patience: int) -> tuple[str, Operations] | None:
    """The machine that balances, and what is done there; None where nothing is to balance."""
    found = balancer.machine(cluster, intent)
    return (found.name, balancer.balancing(cluster, intent, patience)) if found else None


def _kubelet(cluster: Cluster) -> Iterator[Operation]:
    if cluster.how == "kubeadm":
        yield from medium.programs(KUBEADM_PROGRAMS)
        yield from kubelet.for_kubeadm()
        yield Enabled(kubelet.UNIT)


def _member_running(cluster: Cluster) -> Iterator[Operation]:
    """The kubelet of a node that has joined; kubeadm starts that of one which has not."""
    if cluster.how == "kubeadm":
        runs = f"systemctl is-active --quiet {kubelet.UNIT}"
        start = ("systemctl", "start", kubelet.UNIT)
        yield Run(start, unless=f"[ ! -e {membership.MARK} ] || {runs}")
