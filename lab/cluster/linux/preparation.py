"""Everything that a Linux machine is before it is in the cluster, and what it needs of the bundle.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.cluster import dns, flannel, kubeadm
from lab.cluster.bundle.manifest import ContainerImage, Manifest
from lab.cluster.cluster import Cluster, ClusterNode
from lab.cluster.linux import (
    balancer,
    by_hand,
    by_hand_worker,
    kubelet,
    machine,
    medium,
    pod_network,
    runtime,
)
from lab.cluster.linux.operations import Enabled, Operation, Operations, WriteFile
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
    if cluster.topology in flannel.TOPOLOGIES:
        found.append(flannel.IMAGE)
    return tuple(sorted(found))


def programs(cluster: Cluster, node: ClusterNode) -> tuple[str, ...]:
    """The programs that the node runs, as the bundle calls them."""
    if cluster.how == "kubeadm":
        return (*runtime.PROGRAMS, *KUBEADM_PROGRAMS, *_plugins(cluster))
    if node.pod_cidr is None:
        return by_hand.PROGRAMS
    return (*runtime.PROGRAMS, *by_hand_worker.PROGRAMS, *_plugins(cluster))


def lacking(cluster: Cluster, manifest: Manifest) -> tuple[str, ...]:
    """What the cluster's Linux nodes need and the bundle has not, in words."""
    return tuple(sorted(set(_lacking(cluster, manifest))))


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
        *pod_network.on_node(cluster, intent, own),
        *runtime.running(manifest),
        *(medium.imported(image) for image in images(cluster, node, manifest)),
    )


def images(cluster: Cluster, node: ClusterNode, manifest: Manifest) -> tuple[ContainerImage, ...]:
    """The images that are put on the node."""
    return tuple(manifest.image(name) for name in repositories(cluster, node))


def balanced(cluster: Cluster, intent: Intent) -> tuple[str, Operations] | None:
    """The machine that balances, and what is done there; None where nothing is to balance."""
    found = balancer.machine(cluster, intent)
    return (found.name, balancer.balancing(cluster)) if found else None


def _kubelet(cluster: Cluster) -> Iterator[Operation]:
    if cluster.how == "kubeadm":
        yield from medium.programs(KUBEADM_PROGRAMS)
        yield from kubelet.for_kubeadm()
        yield Enabled(kubelet.UNIT)


def _plugins(cluster: Cluster) -> tuple[str, ...]:
    used = ["bridge", "host-local", "loopback", "portmap"]
    used += ["flannel"] if cluster.topology in flannel.TOPOLOGIES else []
    return tuple(f"cni/{name}" for name in used)


def _lacking(cluster: Cluster, manifest: Manifest) -> Iterator[str]:
    there = {program.name for program in manifest.programs if program.os == "linux"}
    tagged = {image.name for image in manifest.images if image.os == "linux"}
    held = {name.rpartition(":")[0] for name in tagged}
    for node in cluster.nodes:
        if node.os != "linux":
            continue
        yield from (f"program {name}" for name in programs(cluster, node) if name not in there)
        yield from (f"image {name}" for name in repositories(cluster, node) if name not in held)
        if node.version != manifest.kubernetes:
            yield f"kubelet {node.version} for node '{node.name}'"
