"""kubeadm's configuration (v1beta4) for a cluster, as data. Pure.

Versions 1.33 to 1.36 read the same form; what differs between them is decided here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_interface, ip_network
from typing import Any

from lab.cluster import proxy
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import API_PORT, Cluster, ClusterNode
from lab.cluster.documents import Document
from lab.cluster.linux.runtime import SOCKET
from lab.topology.intent import Intent

KUBEADM = "kubeadm.k8s.io/v1beta4"
KUBELET = "kubelet.config.k8s.io/v1beta1"
RESOLVER = "/etc/hybridlab/resolv.conf"
"""What the kubelet gives to pods that take the node's resolver: the lab has no other names."""
NODE_PORTS = (30000, 32767)
"""kube-apiserver's default range, both ends in it."""
ETCD = "registry.k8s.io/etcd"
_SECONDS = {
    "controlPlaneComponentHealthCheck": 240,
    "kubeletHealthCheck": 240,
    "kubernetesAPICall": 60,
    "etcdAPICall": 120,
    "tlsBootstrap": 300,
    "discovery": 300,
}
"""kubeadm's own defaults of its timeouts, in seconds, but for ``kubeletHealthCheck`` (``4m``)."""
_LEASE_SECONDS = 40
"""The kubelet's default of ``nodeLeaseDurationSeconds``; it renews four times in it."""
_GRACE_SECONDS = 50
"""The controller manager's default of ``node-monitor-grace-period`` since 1.32."""
_SLOWEST = 4
"""A dead node must be told in minutes, however slow the machines are."""
_IGNORED = ("NumCPU", "Mem")
"""Preflight errors: processors and memory are the scenario's to decide."""


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
        if machine.name in planes or _address(machine.interfaces[0].addresses) == cluster.endpoint
    ]
    found = ["localhost", "127.0.0.1", cluster.endpoint]
    for machine in fronts:
        found += [machine.name, _address(machine.interfaces[0].addresses)]
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
            "nodeRegistration": _registration(first),
            "localAPIEndpoint": {"advertiseAddress": first.address, "bindPort": API_PORT},
            "skipPhases": ["addon/coredns"],  # the lab's own has the scenario's address
            "timeouts": _timeouts(around.patience),
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
        "nodeRegistration": _registration(node),
        "timeouts": _timeouts(around.patience),
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
    they live, and are believed dead later.
    """
    slow = min(patience, _SLOWEST)
    paced = {"nodeLeaseDurationSeconds": _LEASE_SECONDS * slow} if slow > 1 else {}
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
        **paced,
    }


def controller_manager_arguments(cluster: Cluster, patience: int) -> dict[str, str]:
    """What differs from kubeadm's own: nodes' parts of the pod network are the plan's."""
    slow = min(patience, _SLOWEST)
    grace = {"node-monitor-grace-period": f"{_GRACE_SECONDS * slow}s"} if slow > 1 else {}
    return {
        "allocate-node-cidrs": "false",
        "node-cidr-mask-size": str(_node_prefix(cluster)),
        **grace,
        **_leases(cluster, patience),
    }


def scheduler_arguments(cluster: Cluster, patience: int) -> dict[str, str]:
    """What differs from kubeadm's own."""
    return _leases(cluster, patience)


def api_server_arguments(intent: Intent) -> dict[str, str]:
    """What differs from kubeadm's own: a range of NodePorts that holds the plan's."""
    first, last = NODE_PORTS
    ports = [
        service.node_port
        for machine in intent.machines
        if machine.translation
        for service in machine.translation.services
        if service.node_port
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
    if extra := api_server_arguments(intent):
        document["apiServer"]["extraArgs"] = _args(extra)
    if slow > 1:
        document["etcd"]["local"]["extraArgs"] = _args(etcd_arguments(slow))
    return document


def etcd_arguments(patience: int) -> dict[str, str]:
    """Clocks of etcd (100 ms, 1000 ms), slower where the machines are."""
    return {
        "heartbeat-interval": str(100 * patience),
        "election-timeout": str(1000 * patience),
    }


def _registration(node: ClusterNode) -> Document:
    return {
        "name": node.name,
        "criSocket": SOCKET,
        "imagePullPolicy": "Never",
        "taints": [],  # the plan has probe pods on control planes, too
        "ignorePreflightErrors": list(_IGNORED),
        "kubeletExtraArgs": _args({"node-ip": node.address}),
    }


def _leases(cluster: Cluster, patience: int) -> dict[str, str]:
    """One that is alone needs no election; slow ones must not lose it for being slow."""
    if len(cluster.control_planes()) == 1:
        return {"leader-elect": "false"}
    if patience == 1:
        return {}
    return {
        "leader-elect-lease-duration": f"{15 * patience}s",
        "leader-elect-renew-deadline": f"{10 * patience}s",
        "leader-elect-retry-period": f"{2 * patience}s",
    }


def _timeouts(patience: int) -> Document:
    return {name: f"{seconds * patience}s" for name, seconds in _SECONDS.items()}


def _node_prefix(cluster: Cluster) -> int:
    """Prefix length of the nodes' parts; all have the same but those that a scenario names."""
    return max(
        (ip_network(node.pod_cidr).prefixlen for node in cluster.nodes if node.pod_cidr),
        default=24,
    )


def _args(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _address(addresses: Iterable[str]) -> str:
    return str(ip_interface(next(iter(addresses))).ip)
