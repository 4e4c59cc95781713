"""Configuration of kubeadm (v1beta4) and kube-proxy, and timeouts for emulated machines.

Versions 1.33 to 1.36 read the same format; the differences between them are decided here.

An emulated processor is ten times slower or worse. Programs that monitor each other by timeouts
then take a slow peer for a dead one, and periodic work eats all of the processor. ``patience``
multiplies such intervals; at 1 all of them are Kubernetes' defaults.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from lab.machines.addons.addon import addons
from lab.machines.bundle.manifest import Manifest
from lab.machines.cluster.cluster import API_PORT, Cluster, ClusterNode
from lab.machines.cluster.documents import Document
from lab.scenario.terms import ProxyMode
from lab.topology.intent import Intent

_LEASE_SECONDS = 40
"""The kubelet's default of ``nodeLeaseDurationSeconds``; it renews the lease four times in it."""
_GRACE_SECONDS = 50
"""The controller manager's default of ``node-monitor-grace-period`` since 1.32."""
_SLOWEST = 4
"""Limit of the factor: a dead node must be noticed within minutes, however slow machines are."""
_ETCD_CHECK_SECONDS = 2
"""kube-apiserver's default for its health check of etcd."""
_LOOK_SECONDS = 3
"""Interval of HAProxy's health checks; three failures in a row take a server out."""
_PROBE_SECONDS = 30
"""Between two probes of a static pod; kubeadm's own intervals are 1 (readiness) and 10."""
_LIVENESS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
_READINESS = {"kube-apiserver": 20, "kube-scheduler": 36, "etcd": 36}
"""Static pods that have this probe, and the minor since which they certainly have it: a patch of
a probe that does not exist makes an invalid pod.
"""
_TIMEOUTS = {
    "controlPlaneComponentHealthCheck": 240,
    "kubeletHealthCheck": 240,
    "kubernetesAPICall": 60,
    "etcdAPICall": 120,
    "tlsBootstrap": 300,
    "discovery": 300,
}
"""kubeadm's default timeouts, in seconds."""


def etcd_arguments(patience: int) -> dict[str, str]:
    """Intervals of etcd (defaults 100 ms and 1000 ms); it does not log each slow request."""
    if patience == 1:
        return {}
    return {
        "heartbeat-interval": str(100 * patience),
        "election-timeout": str(1000 * patience),
        "log-level": "error",
    }


def health_check_seconds(patience: int) -> int:
    """Seconds between HAProxy's health checks of an API server, and the timeout of each."""
    return _LOOK_SECONDS * min(patience, _SLOWEST)


def leader_election(cluster: Cluster, patience: int) -> dict[str, str]:
    """A single control plane needs no election; slow ones must not lose it for being slow."""
    if len(cluster.control_planes()) == 1:
        return {"leader-elect": "false"}
    if patience == 1:
        return {}
    return {
        "leader-elect-lease-duration": f"{15 * patience}s",
        "leader-elect-renew-deadline": f"{10 * patience}s",
        "leader-elect-retry-period": f"{2 * patience}s",
    }


def static_pod_patches(version: str, patience: int) -> dict[str, str]:
    """Patches of the static pods for kubeadm, content by file name.

    Each probe is a TLS handshake per second and program, and most of them query etcd.
    """
    if patience == 1:
        return {}
    minor = int(version.split(".")[1])
    paced = {"periodSeconds": _PROBE_SECONDS, "timeoutSeconds": _PROBE_SECONDS}
    patches = {}
    for name in _LIVENESS:
        container: dict[str, object] = {"name": name, "livenessProbe": paced}
        if minor >= _READINESS.get(name, minor + 1):
            container["readinessProbe"] = paced
        patches[f"{name}+strategic.json"] = json.dumps({"spec": {"containers": [container]}}) + "\n"
    return patches


PROXY_KUBECONFIG = "/var/lib/kube-proxy/kubeconfig.conf"
"""Path of the configuration in kubeadm's DaemonSet."""
PROXY_TABLES: Mapping[ProxyMode, tuple[str, ...]] = {
    "nftables": ("kube-proxy",),
    "iptables": ("nat", "filter", "mangle"),
}
"""nftables tables that each mode creates on a node."""


def kube_proxy_config(cluster: Cluster) -> Document:
    """The configuration of every kube-proxy on Linux.

    Traffic from elsewhere than the node's own pods is masqueraded, as the Intent says. NodePorts
    are open on every network that nodes have addresses in: by default nftables mode opens them
    on the node's first address alone, and refuses clients on the other network (kube-proxy's
    reference, ``--nodeport-addresses``). The conntrack limit is left to the kernel's owner:
    kube-proxy exits if it may not set it.
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
        "clientConnection": {"kubeconfig": PROXY_KUBECONFIG},
    }


KUBEADM = "kubeadm.k8s.io/v1beta4"
SOCKET = "unix:///run/containerd/containerd.sock"
KUBELET = "kubelet.config.k8s.io/v1beta1"
RESOLVER = "/etc/hybridlab/resolv.conf"
"""The resolver file that the kubelet gives to pods with the node's DNS; it knows no other names."""
PATCHES = "/etc/hybridlab/kubeadm-patches"
NODE_PORTS = (30000, 32767)
"""kube-apiserver's default range, both ends included."""
ETCD = "registry.k8s.io/etcd"
_IGNORED = ("NumCPU", "Mem")
"""Preflight errors to ignore: the scenario decides on processors and memory."""
_OF_THE_KERNEL = "SystemVerification"
"""Preflight error for cgroup v1, and for a kernel without its configuration in ``/boot``."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a cluster's configuration depends on besides the cluster itself."""

    management: Mapping[str, str]
    """Management address of each machine; the API is reached at it from outside the lab."""
    patience: int = 1


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a node needs to join the cluster."""

    token: str
    ca_hash: str
    certificate_key: str = ""


def api_endpoint(cluster: Cluster) -> str:
    """Address and port of the API, as every node uses it."""
    return f"{cluster.endpoint}:{API_PORT}"


def api_names(cluster: Cluster, intent: Intent, around: Surroundings) -> tuple[str, ...]:
    """Every name and address of the API, for its certificate; the router's too if it balances."""
    planes = {node.name for node in cluster.control_planes()}
    fronts = [
        machine
        for machine in intent.machines
        if machine.name in planes or machine.address() == cluster.endpoint
    ]
    names = ["localhost", "127.0.0.1", cluster.endpoint]
    for machine in fronts:
        names += [machine.name, machine.address()]
        names += [around.management[machine.name]] if machine.name in around.management else []
    return tuple(dict.fromkeys(names))


def first_service(cluster: Cluster) -> str:
    """Address of the Service ``kubernetes``, the first of the range."""
    return str(ip_network(cluster.service_cidr)[1])


def init_documents(
    cluster: Cluster, intent: Intent, manifest: Manifest, around: Surroundings
) -> tuple[Document, ...]:
    """The documents for ``kubeadm init`` on the first control plane."""
    first = cluster.control_planes()[0]
    proxy = () if addons()[cluster.topology].kube_proxy else ("addon/kube-proxy",)
    return (
        {
            "apiVersion": KUBEADM,
            "kind": "InitConfiguration",
            # without one, kubeadm makes a token that is valid for a day
            "bootstrapTokens": [{"ttl": "15m0s", "usages": ["signing", "authentication"]}],
            "nodeRegistration": _registration(cluster, first),
            "localAPIEndpoint": {"advertiseAddress": first.address, "bindPort": API_PORT},
            # the lab has its own CoreDNS with its own address; OVN implements Services
            "skipPhases": ["addon/coredns", *proxy],
            **_at_pace(around.patience),
        },
        _cluster_config(cluster, intent, manifest, around),
        kubelet_config(cluster, around.patience),
        kube_proxy_config(cluster),
    )


def join_documents(
    cluster: Cluster, node: ClusterNode, ticket: Ticket, around: Surroundings
) -> tuple[Document, ...]:
    """The documents for ``kubeadm join``."""
    document: dict[str, Any] = {
        "apiVersion": KUBEADM,
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "apiServerEndpoint": api_endpoint(cluster),
                "token": ticket.token,
                "caCertHashes": [ticket.ca_hash],
            }
        },
        "nodeRegistration": _registration(cluster, node),
        **_at_pace(around.patience),
    }
    if node.role == "control-plane":
        document["controlPlane"] = {
            "localAPIEndpoint": {"advertiseAddress": node.address, "bindPort": API_PORT},
            "certificateKey": ticket.certificate_key,
        }
    return (document,)


STORAGE: Mapping[str, Any] = {
    "imageGCHighThresholdPercent": 100,
    "evictionHard": {
        "memory.available": "50Mi",
        "nodefs.available": "2%",
        "nodefs.inodesFree": "2%",
        "imagefs.available": "2%",
    },
}
"""Of every kubelet: images are never garbage-collected, since none could be pulled again, and a
host's disk may be rather full."""


def kubelet_config(cluster: Cluster, patience: int) -> Document:
    """The configuration of every Linux kubelet.

    Emulated nodes report less often and are considered dead later. The swap of a host that shares
    its kernel stays on.
    """
    more: dict[str, Any] = {}
    if cluster.host.shared_kernel:
        more["failSwapOn"] = False
    if cluster.host.cgroup_v1:
        more["failCgroupV1"] = False
    if patience > 1:
        more["nodeLeaseDurationSeconds"] = _LEASE_SECONDS * min(patience, _SLOWEST)
    return {
        "apiVersion": KUBELET,
        "kind": "KubeletConfiguration",
        "cgroupDriver": "systemd",
        "clusterDNS": [cluster.dns_address],
        "clusterDomain": cluster.domain,
        "containerRuntimeEndpoint": SOCKET,
        "resolvConf": RESOLVER,
        "rotateCertificates": True,
        **STORAGE,
        **more,
    }


def controller_manager_arguments(cluster: Cluster, patience: int) -> dict[str, str]:
    """Arguments besides kubeadm's own: the plan assigns the nodes' pod CIDRs.

    Only a CIDR that the scenario sets may have another prefix length than the others.
    """
    cidrs = [ip_network(node.pod_cidr) for node in cluster.nodes if node.pod_cidr]
    slow = min(patience, _SLOWEST)
    grace = {"node-monitor-grace-period": f"{_GRACE_SECONDS * slow}s"} if slow > 1 else {}
    return {
        "allocate-node-cidrs": "false",
        "node-cidr-mask-size": str(max((cidr.prefixlen for cidr in cidrs), default=24)),
        **grace,
        **leader_election(cluster, patience),
    }


def api_server_arguments(intent: Intent, patience: int) -> dict[str, str]:
    """Arguments besides kubeadm's own: a NodePort range that contains the plan's ports.

    On slow machines etcd's health check is longer, and priority and fairness are off to save
    processor time.
    """
    arguments = {}
    first, last = NODE_PORTS
    ports = [
        port
        for machine in intent.machines
        if machine.translation
        for service in machine.translation.services
        for port in service.node_ports()
    ]
    if not all(first <= port <= last for port in ports):
        arguments["service-node-port-range"] = f"{min(ports)}-{max(ports)}"
    if patience > 1:
        seconds = f"{_ETCD_CHECK_SECONDS * patience}s"
        arguments["enable-priority-and-fairness"] = "false"
        arguments |= {"etcd-healthcheck-timeout": seconds, "etcd-readycheck-timeout": seconds}
    return arguments


def _cluster_config(
    cluster: Cluster, intent: Intent, manifest: Manifest, around: Surroundings
) -> Document:
    slow = around.patience
    document: dict[str, Any] = {
        "apiVersion": KUBEADM,
        "kind": "ClusterConfiguration",
        "kubernetesVersion": f"v{cluster.version}",
        "clusterName": f"hybridlab-{cluster.name}",
        "controlPlaneEndpoint": api_endpoint(cluster),
        "encryptionAlgorithm": "ECDSA-P256",  # RSA's keys take long on an emulated processor
        "networking": {
            "dnsDomain": cluster.domain,
            "podSubnet": cluster.pod_cidr,
            "serviceSubnet": cluster.service_cidr,
        },
        "apiServer": {"certSANs": list(api_names(cluster, intent, around))},
        "controllerManager": {"extraArgs": _args(controller_manager_arguments(cluster, slow))},
        "scheduler": {"extraArgs": _args(leader_election(cluster, slow))},
        "etcd": {"local": {"imageTag": manifest.image(ETCD).name.rpartition(":")[2]}},
    }
    if extra := api_server_arguments(intent, slow):
        document["apiServer"]["extraArgs"] = _args(extra)
    if extra := etcd_arguments(slow):
        document["etcd"]["local"]["extraArgs"] = _args(extra)
    return document


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


def _at_pace(patience: int) -> dict[str, Any]:
    """Timeouts of kubeadm, and the patches of the static pods if machines are slow."""
    timeouts = {name: f"{seconds * patience}s" for name, seconds in _TIMEOUTS.items()}
    patches = {"patches": {"directory": PATCHES}} if patience > 1 else {}
    return {"timeouts": timeouts, **patches}


def _args(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]
