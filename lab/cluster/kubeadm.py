"""kubeadm's configuration (v1beta4) for a cluster, as data. Pure.

Versions 1.33 to 1.36 read the same form; what differs between them is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from lab.cluster import pace, proxy
from lab.cluster.addons.registry import addons
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import API_PORT, Cluster, ClusterNode
from lab.cluster.documents import Document
from lab.cluster.linux.runtime import SOCKET
from lab.topology.intent import Intent

KUBEADM = "kubeadm.k8s.io/v1beta4"
KUBELET = "kubelet.config.k8s.io/v1beta1"
RESOLVER = "/etc/hybridlab/resolv.conf"
"""What the kubelet gives to pods that take the node's resolver: the lab has no other names."""
PATCHES = "/etc/hybridlab/kubeadm-patches"
"""Where a machine has kubeadm's patches of static pods."""
NODE_PORTS = (30000, 32767)
"""kube-apiserver's default range, both ends in it."""
ETCD = "registry.k8s.io/etcd"
_IGNORED = ("NumCPU", "Mem")
"""Preflight errors: processors and memory are the scenario's to decide."""
_OF_THE_KERNEL = "SystemVerification"
"""Refuses cgroup v1, and a kernel whose configuration is not in the node's own ``/boot``."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a cluster's configuration depends on besides the cluster itself."""

    management: Mapping[str, str]
    """Each machine's management address: the API is reached by it from outside of the lab."""
    patience: int = 1
    """By how much slower than hardware the machines are."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a node shows to be let in."""

    token: str
    ca_hash: str
    certificate_key: str = ""
    """For a further control plane."""


def endpoint(cluster: Cluster) -> str:
    """Address and port of the API, as every node uses it."""
    return f"{cluster.endpoint}:{API_PORT}"


def names(cluster: Cluster, intent: Intent, around: Surroundings) -> tuple[str, ...]:
    """Every name and address that the API may be asked by; of the router where it balances."""
    planes = {node.name for node in cluster.control_planes()}
    fronts = [
        machine
        for machine in intent.machines
        if machine.name in planes or machine.address() == cluster.endpoint
    ]
    found = ["localhost", "127.0.0.1", cluster.endpoint]
    for machine in fronts:
        found += [machine.name, machine.address()]
        found += [around.management[machine.name]] if machine.name in around.management else []
    return tuple(dict.fromkeys(found))


def first_service(cluster: Cluster) -> str:
    """Address of the Service ``kubernetes``: the first of the range."""
    return str(ip_network(cluster.service_cidr)[1])


def init(
    cluster: Cluster, intent: Intent, manifest: Manifest, around: Surroundings
) -> tuple[Document, ...]:
    """What ``kubeadm init`` reads, on the first control plane."""
    first = cluster.control_planes()[0]
    return (
        {
            "apiVersion": KUBEADM,
            "kind": "InitConfiguration",
            # without one, kubeadm makes a token that lives a day
            "bootstrapTokens": [{"ttl": "15m0s", "usages": ["signing", "authentication"]}],
            "nodeRegistration": _registration(cluster, first),
            "localAPIEndpoint": {"advertiseAddress": first.address, "bindPort": API_PORT},
            "skipPhases": _skipped(cluster),
            **_patched(around.patience),
            "timeouts": pace.timeouts(around.patience),
        },
        _cluster(cluster, intent, manifest, around),
        kubelet(cluster, around.patience),
        proxy.configuration(cluster),
    )


def join(
    cluster: Cluster, node: ClusterNode, ticket: Ticket, around: Surroundings
) -> tuple[Document, ...]:
    """What ``kubeadm join`` reads."""
    document: dict[str, Any] = {
        "apiVersion": KUBEADM,
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "apiServerEndpoint": endpoint(cluster),
                "token": ticket.token,
                "caCertHashes": [ticket.ca_hash],
            }
        },
        "nodeRegistration": _registration(cluster, node),
        **_patched(around.patience),
        "timeouts": pace.timeouts(around.patience),
    }
    if node.role == "control-plane":
        document["controlPlane"] = {
            "localAPIEndpoint": {"advertiseAddress": node.address, "bindPort": API_PORT},
            "certificateKey": ticket.certificate_key,
        }
    return (document,)


def kubelet(cluster: Cluster, patience: int) -> Document:
    """Every Linux kubelet's configuration.

    No image is ever collected: none could be pulled again. Emulated ones say less often that
    they live, and are believed dead later. The swap of a host that shares its kernel stays on.
    """
    host: dict[str, Any] = {}
    if cluster.host.shared_kernel:
        host["failSwapOn"] = False
    if cluster.host.cgroup_v1:
        host["failCgroupV1"] = False
    return {
        "apiVersion": KUBELET,
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd",
        "clusterDNS": [cluster.dns_address],
        "clusterDomain": cluster.domain,
        "containerRuntimeEndpoint": SOCKET,
        "resolvConf": RESOLVER,
        "rotateCertificates": True,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "2%",
            "nodefs.inodesFree": "2%",
            "imagefs.available": "2%",
        },
        **host,
        **pace.kubelet(patience),
    }


def controller_manager_arguments(cluster: Cluster, patience: int) -> dict[str, str]:
    """What differs from kubeadm's own: nodes' parts of the pod network are the plan's."""
    return {
        "allocate-node-cidrs": "false",
        "node-cidr-mask-size": str(_node_prefix(cluster)),
        **pace.controller_manager(patience),
        **pace.election(len(cluster.control_planes()), patience),
    }


def scheduler_arguments(cluster: Cluster, patience: int) -> dict[str, str]:
    """What differs from kubeadm's own."""
    return pace.election(len(cluster.control_planes()), patience)


def api_server_arguments(intent: Intent, patience: int) -> dict[str, str]:
    """What differs from kubeadm's own: a range of NodePorts that holds the plan's."""
    return {**_node_port_range(intent), **pace.api_server(patience)}


def _node_port_range(intent: Intent) -> dict[str, str]:
    first, last = NODE_PORTS
    ports = [
        port
        for machine in intent.machines
        if machine.translation
        for service in machine.translation.services
        for port in service.node_ports()
    ]
    if all(first <= port <= last for port in ports):
        return {}
    return {"service-node-port-range": f"{min(ports)}-{max(ports)}"}


def _cluster(
    cluster: Cluster, intent: Intent, manifest: Manifest, around: Surroundings
) -> Document:
    slow = around.patience
    document: dict[str, Any] = {
        "apiVersion": KUBEADM,
        "kind": "ClusterConfiguration",
        "kubernetesVersion": f"v{cluster.version}",
        "clusterName": f"hybridlab-{cluster.name}",
        "controlPlaneEndpoint": endpoint(cluster),
        "encryptionAlgorithm": "ECDSA-P256",  # RSA's keys take long on an emulated processor
        "networking": {
            "dnsDomain": cluster.domain,
            "podSubnet": cluster.pod_cidr,
            "serviceSubnet": cluster.service_cidr,
        },
        "apiServer": {"certSANs": list(names(cluster, intent, around))},
        "controllerManager": {"extraArgs": _args(controller_manager_arguments(cluster, slow))},
        "scheduler": {"extraArgs": _args(scheduler_arguments(cluster, slow))},
        "etcd": {"local": {"imageTag": manifest.image(ETCD).name.rpartition(":")[2]}},
    }
    if extra := api_server_arguments(intent, slow):
        document["apiServer"]["extraArgs"] = _args(extra)
    if extra := pace.etcd(slow):
        document["etcd"]["local"]["extraArgs"] = _args(extra)
    return document


def _skipped(cluster: Cluster) -> list[str]:
    """The lab's own CoreDNS has the scenario's address; OVN's load balancers are the Services."""
    without = [] if addons()[cluster.topology].kube_proxy else ["addon/kube-proxy"]
    return ["addon/coredns", *without]


def _registration(cluster: Cluster, node: ClusterNode) -> Document:
    host = cluster.host
    ignored = (*_IGNORED, _OF_THE_KERNEL) if host.shared_kernel or host.cgroup_v1 else _IGNORED
    return {
        "name": node.name,
        "criSocket": SOCKET,
        "imagePullPolicy": "Never",
        "taints": [],  # the plan has probe pods on control planes, too
        "ignorePreflightErrors": list(ignored),
        "kubeletExtraArgs": _args({"node-ip": node.address}),
    }


def _node_prefix(cluster: Cluster) -> int:
    """Prefix length of the nodes' parts; all have the same but those that a scenario names."""
    return max(
        (ip_network(node.pod_cidr).prefixlen for node in cluster.nodes if node.pod_cidr),
        default=24,
    )


def _patched(patience: int) -> dict[str, Any]:
    return {"patches": {"directory": PATCHES}} if patience > 1 else {}


def _args(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]
