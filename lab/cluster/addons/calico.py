"""Calico, with VXLAN or BGP: by plain manifests, or by its operator for Windows nodes.

Calico hands addresses out itself, in blocks. So that its blocks are those of the plan, every node
has a pool of its own, of exactly one block, that no other node may use. What it makes on a node is
from nodes of Calico 3.31, as they were seen.

The manifests have the shape of upstream's ``manifests/calico-vxlan.yaml`` and ``calico.yaml``
(3.31): Calico's objects are Kubernetes' custom resources, a DaemonSet is on every node, and one
Deployment frees what removed nodes have held. eBPF, IPIP and the upgrade of other networks'
addresses are left out. The account may do all in the cluster, as the operator's may.

Sources of the operator's documents: Calico's documentation ("Installation reference", "Install
Calico for Windows", "Configure BGP peering", "nftables data plane", "Felix configuration"), and the
operator's own sources (``installation_types.go``: 25 pools at most; ``--manage-crds``). Operator
1.40.8 and Calico's API server 3.31 have taken these documents once, by hand; no test can do it
again, because the operator is not available where the lab is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from lab.cluster.addons.addon import Addon
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import API_PORT, Cluster
from lab.cluster.documents import Document, administrator
from lab.cluster.footprint import Footprint
from lab.cluster.linux import pod_network
from lab.cluster.linux.operations import Operations, Remove
from lab.topology import bird
from lab.topology.intent import Intent, MachineIntent

VXLAN, BGP = "calico-vxlan", "calico-bgp"
TOPOLOGIES = frozenset({VXLAN, BGP})
NAMESPACE, DAEMON_SET = "calico-system", "calico-node"
"""On every Linux node, in both ways."""
NODE, CNI = "quay.io/calico/node", "quay.io/calico/cni"
CONTROLLERS = "quay.io/calico/kube-controllers"
IMAGES = (CNI, CONTROLLERS, NODE)
"""On every Linux node, in both ways."""
OPERATOR_IMAGES = (
    "quay.io/tigera/operator",
    *(f"quay.io/calico/{one}" for one in ("apiserver", "typha")),
)
"""On every Linux node beside those: the operator says what runs where."""
_NODE_NAME = "kubernetes.io/hostname"
AS_NUMBER = "projectcalico.org/ASNumber"
"""A Node's annotation."""
POOL_KIND = "ippools.crd.projectcalico.org"


@dataclass(frozen=True, slots=True)
class IPPool:
    """One node's."""

    name: str
    cidr: str
    block_size: int
    """Prefix length: the pool is one block."""
    node_selector: str


@dataclass(frozen=True, slots=True)
class Setting:
    """One object of Calico's API: its kind there, its name, and its ``spec``."""

    kind: str
    name: str
    spec: Mapping[str, Any]


def by_operator(cluster: Cluster) -> bool:
    """Whether the operator installs it; else the lab's own manifests do."""
    return any(node.os == "windows" for node in cluster.nodes)


def calico_images(cluster: Cluster) -> tuple[str, ...]:
    """What a Linux node needs, without tags."""
    return (*IMAGES, *(OPERATOR_IMAGES if by_operator(cluster) else ()))


def node_pools(cluster: Cluster) -> tuple[IPPool, ...]:
    """In the cluster's order."""
    return tuple(node_pool(node.name, node.pod_cidr) for node in cluster.nodes if node.pod_cidr)


def node_pool(node: str, pod_cidr: str) -> IPPool:
    """That of one node, with its part of the pod network."""
    prefix = ip_network(pod_cidr).prefixlen
    return IPPool(f"of-{node}", pod_cidr, prefix, f"{_NODE_NAME} == '{node}'")


def pool_spec(topology: str, pool: IPPool) -> dict[str, Any]:
    """A pool's ``spec`` as Kubernetes has it."""
    return {
        "blockSize": pool.block_size,
        "cidr": pool.cidr,
        "ipipMode": "Never",
        "natOutgoing": True,
        "nodeSelector": pool.node_selector,
        "vxlanMode": "Always" if topology == VXLAN else "Never",
    }


def calico_settings(cluster: Cluster, intent: Intent) -> tuple[Setting, ...]:
    """Calico's own, but for the pools.

    What a node sends to its own pods has the node's address, whatever other cards it has.
    """
    felix: dict[str, Any] = {"nftablesMode": "Enabled"}
    if cluster.topology == VXLAN:
        tunnel = next(machine.tunnel for machine in intent.machines if machine.tunnel)
        felix |= {"vxlanMTU": tunnel.mtu, "vxlanPort": tunnel.port, "vxlanVNI": tunnel.vni}
    return (
        Setting("IPAMConfiguration", "default", {"strictAffinity": True}),
        Setting("FelixConfiguration", "default", felix),
        *(
            Setting(
                "FelixConfiguration",
                f"node.{node.name}",
                {"deviceRouteSourceAddress": node.address},
            )
            for node in cluster.nodes
            if node.os == "linux" and node.pod_cidr
        ),
        *(_bgp(cluster, intent) if cluster.topology == BGP else ()),
    )


def _bgp(cluster: Cluster, intent: Intent) -> Iterator[Setting]:
    router = _router(intent)
    asn = next(machine.speaker.asn for machine in _nodes(cluster, intent) if machine.speaker)
    mesh = {"asNumber": asn, "nodeToNodeMeshEnabled": True}
    without = {"nodeToNodeMeshEnabled": False}
    yield Setting("BGPConfiguration", "default", mesh if router is None else without)
    if router and router.speaker:
        peer = {
            "asNumber": router.speaker.asn,
            "nodeSelector": "all()",
            "peerIP": router.speaker.address,
            "sourceAddress": "UseNodeIP",
        }
        yield Setting("BGPPeer", router.name, peer)


def as_number_documents(cluster: Cluster, intent: Intent) -> Iterator[Document]:
    """What Nodes say of the autonomous systems that they are: Calico reads it there."""
    for machine in _nodes(cluster, intent):
        number = as_number(intent, machine)
        if number and machine.os == "linux":  # others have not joined yet
            yield {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"annotations": {AS_NUMBER: number}, "name": machine.name},
            }


def as_number(intent: Intent, machine: MachineIntent) -> str | None:
    """A node's own: it has one where nodes peer with the router, and not with each other."""
    own = machine.speaker is not None and _router(intent) is not None
    return str(machine.speaker.asn) if own and machine.speaker else None


def _nodes(cluster: Cluster, intent: Intent) -> tuple[MachineIntent, ...]:
    return tuple(intent.machine(node.name) for node in cluster.nodes)


def _router(intent: Intent) -> MachineIntent | None:
    """The one that nodes peer with; None where they peer with each other."""
    return next((one for one in intent.machines if one.kind == "router" and one.speaker), None)


ACCOUNT = "calico-node"
CNI_CONFIG = "10-calico.conflist"
_GROUP = "crd.projectcalico.org"
_KINDS = {
    "BGPConfiguration": "bgpconfigurations",
    "BGPFilter": "bgpfilters",
    "BGPPeer": "bgppeers",
    "BlockAffinity": "blockaffinities",
    "CalicoNodeStatus": "caliconodestatuses",
    "ClusterInformation": "clusterinformations",
    "FelixConfiguration": "felixconfigurations",
    "GlobalNetworkPolicy": "globalnetworkpolicies",
    "GlobalNetworkSet": "globalnetworksets",
    "HostEndpoint": "hostendpoints",
    "IPAMBlock": "ipamblocks",
    "IPAMConfig": "ipamconfigs",
    "IPAMHandle": "ipamhandles",
    "IPPool": "ippools",
    "IPReservation": "ipreservations",
    "KubeControllersConfiguration": "kubecontrollersconfigurations",
    "NetworkPolicy": "networkpolicies",
    "NetworkSet": "networksets",
    "StagedGlobalNetworkPolicy": "stagedglobalnetworkpolicies",
    "StagedKubernetesNetworkPolicy": "stagedkubernetesnetworkpolicies",
    "StagedNetworkPolicy": "stagednetworkpolicies",
    "Tier": "tiers",
}
"""Kinds and their plurals."""
_OF_NAMESPACES = {
    "NetworkPolicy", "NetworkSet", "StagedKubernetesNetworkPolicy", "StagedNetworkPolicy"
}  # fmt: skip
_POLICY_GROUP = "policy.networking.k8s.io"
_POLICY_KINDS = {
    "AdminNetworkPolicy": "adminnetworkpolicies",
    "BaselineAdminNetworkPolicy": "baselineadminnetworkpolicies",
}
"""Of Kubernetes' own, which Calico watches."""
_STORED = {"IPAMConfiguration": "IPAMConfig"}
"""Where a kind has another name as it is stored."""
_HOST_PATHS = {
    "cni-bin": ("/opt/cni/bin", "/host/opt/cni/bin"),
    "cni-conf": ("/etc/cni/net.d", "/host/etc/cni/net.d"),
    "lib-calico": ("/var/lib/calico", "/var/lib/calico"),
    "modules": ("/lib/modules", "/lib/modules"),
    "run-calico": ("/run/calico", "/var/run/calico"),
}
"""Volume: the machine's directory, and where its containers see it."""
_SKIPPED = "bandwidth,flannel,host-local,loopback,portmap,tuning"
"""Programs of Calico's image that nodes have already, or have no use for."""
_HEALTH_PORT = 9099
"""Felix's, on the node's loopback address."""
_START_SECONDS, _LOOK_SECONDS = 600, 30
_NODE_LABEL = {"k8s-app": "calico-node"}
_CONTROLLERS_LABEL = {"k8s-app": "calico-kube-controllers"}


def manifest_waves(
    cluster: Cluster, intent: Intent, manifest: Manifest
) -> tuple[tuple[Document, ...], ...]:
    """The kinds, then all else."""
    settings = calico_settings(cluster, intent)
    return (
        (*administrator(ACCOUNT, NAMESPACE), *_crds()),
        (
            *(_pool_document(cluster, one) for one in node_pools(cluster)),
            *(_crd_object(_STORED.get(one.kind, one.kind), one.name, one.spec) for one in settings),
            _daemon_set(cluster, manifest),
            _controllers_deployment(cluster, manifest),
        ),
    )


def cni_config(cluster: Cluster) -> str:
    """What the installer writes on a node, once it has put the node's name in."""
    document = {
        "name": "k8s-pod-network",
        "cniVersion": "0.3.1",
        "plugins": [
            {
                "type": "calico",
                "datastore_type": "kubernetes",
                "nodename": "__KUBERNETES_NODE_NAME__",
                "mtu": cluster.pod_mtu,
                "ipam": {"type": "calico-ipam"},
                "policy": {"type": "k8s"},
                "kubernetes": {"kubeconfig": "__KUBECONFIG_FILEPATH__"},
            },
            {"type": "portmap", "snat": True, "capabilities": {"portMappings": True}},
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _crds() -> Iterator[Document]:
    """Any content is taken: it is the lab's own, and Calico's, which check it themselves."""
    for kind, plural in _KINDS.items():
        yield _crd(_GROUP, "v1", kind, plural)
    for kind, plural in _POLICY_KINDS.items():
        yield _crd(_POLICY_GROUP, "v1alpha1", kind, plural)


def _crd(group: str, version: str, kind: str, plural: str) -> Document:
    metadata: dict[str, Any] = {"name": f"{plural}.{group}"}
    if group == _POLICY_GROUP:  # the API server has them protected
        approved = "https://github.com/kubernetes-sigs/network-policy-api/pull/30"
        metadata["annotations"] = {"api-approved.kubernetes.io": approved}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": group,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
            },
            "scope": "Namespaced" if kind in _OF_NAMESPACES else "Cluster",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    },
                }
            ],
        },
    }


def _pool_document(cluster: Cluster, pool: IPPool) -> Document:
    return _crd_object("IPPool", pool.name, pool_spec(cluster.topology, pool))


def _crd_object(kind: str, name: str, spec: Any) -> Document:
    own = {"autoAllocateBlocks": True} if kind == "IPAMConfig" else {}
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {**own, **spec},
    }


def _daemon_set(cluster: Cluster, manifest: Manifest) -> Document:
    pod = {
        **_pod_spec(),
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
        "initContainers": [_cni_container(cluster, manifest)],
        "containers": [_node_container(cluster, manifest)],
        "volumes": [
            {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
            for name, (path, _) in _HOST_PATHS.items()
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": DAEMON_SET, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": _NODE_LABEL},
            "template": {"metadata": {"labels": _NODE_LABEL}, "spec": pod},
        },
    }


def _controllers_deployment(cluster: Cluster, manifest: Manifest) -> Document:
    container = {
        "name": "calico-kube-controllers",
        "image": manifest.image(CONTROLLERS).name,
        "imagePullPolicy": "Never",
        "env": [
            {"name": "ENABLED_CONTROLLERS", "value": "node"},
            {"name": "DATASTORE_TYPE", "value": "kubernetes"},
            *_api_variables(cluster),
        ],
    }
    pod = {
        **_pod_spec(),
        "priorityClassName": "system-cluster-critical",
        "tolerations": [{"effect": "NoSchedule", "operator": "Exists"}],
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "calico-kube-controllers", "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _CONTROLLERS_LABEL},
            "strategy": {"type": "Recreate"},
            "template": {"metadata": {"labels": _CONTROLLERS_LABEL}, "spec": pod},
        },
    }


def _pod_spec() -> dict[str, Any]:
    return {"nodeSelector": {"kubernetes.io/os": "linux"}, "serviceAccountName": ACCOUNT}


def _cni_container(cluster: Cluster, manifest: Manifest) -> Document:
    return {
        "name": "install-cni",
        "image": manifest.image(CNI).name,
        "imagePullPolicy": "Never",
        "command": ["/opt/cni/bin/install"],
        "env": [
            {"name": "CALICO_CNI_SERVICE_ACCOUNT", "value": ACCOUNT},
            {"name": "CNI_CONF_NAME", "value": CNI_CONFIG},
            {"name": "CNI_NETWORK_CONFIG", "value": cni_config(cluster)},
            {"name": "SKIP_CNI_BINARIES", "value": _SKIPPED},
            {"name": "SLEEP", "value": "false"},
            _from_field("KUBERNETES_NODE_NAME", "spec.nodeName"),
            *_api_variables(cluster),
        ],
        "securityContext": {"privileged": True},
        "volumeMounts": _mounts("cni-bin", "cni-conf"),
    }


def _node_container(cluster: Cluster, manifest: Manifest) -> Document:
    bgp = cluster.topology == BGP
    given = {
        "CALICO_CNI_SERVICE_ACCOUNT": ACCOUNT,
        "CALICO_DISABLE_FILE_LOGGING": "true",
        "CALICO_NETWORKING_BACKEND": "bird" if bgp else "vxlan",
        "CLUSTER_TYPE": "k8s,bgp" if bgp else "k8s",
        "DATASTORE_TYPE": "kubernetes",
        "FELIX_DEFAULTENDPOINTTOHOSTACTION": "ACCEPT",
        "FELIX_HEALTHENABLED": "true",
        "FELIX_IPV6SUPPORT": "false",
        "IP": "autodetect",
        "IP_AUTODETECTION_METHOD": "kubernetes-internal-ip",
        "NO_DEFAULT_POOLS": "true",
        "WAIT_FOR_DATASTORE": "true",
    }
    health = {"host": "127.0.0.1", "port": _HEALTH_PORT}
    return {
        "name": "calico-node",
        "image": manifest.image(NODE).name,
        "imagePullPolicy": "Never",
        "env": [
            *({"name": name, "value": value} for name, value in given.items()),
            _from_field("NODENAME", "spec.nodeName"),
            *_api_variables(cluster),
        ],
        "resources": {"requests": {"cpu": "100m"}},
        "securityContext": {"privileged": True},
        "startupProbe": {
            "httpGet": {**health, "path": "/readiness"},
            "failureThreshold": _START_SECONDS,
            "periodSeconds": 1,
            "timeoutSeconds": _LOOK_SECONDS,
        },
        "readinessProbe": {
            "httpGet": {**health, "path": "/readiness"},
            "periodSeconds": 10,
            "timeoutSeconds": _LOOK_SECONDS,
        },
        "volumeMounts": _mounts("cni-conf", "lib-calico", "modules", "run-calico"),
    }


def _api_variables(cluster: Cluster) -> tuple[Document, ...]:
    """Asked before any Service works, and so without one."""
    return (
        {"name": "KUBERNETES_SERVICE_HOST", "value": cluster.endpoint},
        {"name": "KUBERNETES_SERVICE_PORT", "value": str(API_PORT)},
    )


def _mounts(*names: str) -> list[Document]:
    return [{"name": one, "mountPath": _HOST_PATHS[one][1]} for one in names]


def _from_field(name: str, path: str) -> Document:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


OPERATOR_NAMESPACE = "tigera-operator"
REGISTRY = "quay.io/"
OPERATOR = "quay.io/tigera/operator"
MOST_POOLS = 25
"""Of an Installation (``+kubebuilder:validation:MaxItems``)."""
_OPERATOR_LABEL = {"name": "tigera-operator", "k8s-app": "tigera-operator"}


def operator_unfit(intent: Intent) -> str:
    """Why the operator cannot make the plan's pod addresses; empty where it can."""
    nodes = sum(1 for machine in intent.machines if machine.kubelet and machine.kubelet.pod_cidr)
    if nodes <= MOST_POOLS:
        return ""
    return (
        f"{nodes} nodes run pods, each has an IP pool of its own, and Calico's operator, which "
        f"Windows nodes ask for, takes {MOST_POOLS}"
    )


def operator_waves(
    cluster: Cluster, intent: Intent, manifest: Manifest
) -> tuple[tuple[Document, ...], ...]:
    """The operator, what it is to make, and Calico's settings, each once the kinds are there."""
    return (
        operator_documents(cluster, manifest),
        installation(cluster),
        tuple(_setting_document(one) for one in calico_settings(cluster, intent)),
    )


def operator_documents(cluster: Cluster, manifest: Manifest) -> tuple[Document, ...]:
    """The operator, which brings its own kinds, and where it finds the API.

    Its rights are a cluster administrator's: it grants to others what it has itself.
    """
    return (
        *administrator("tigera-operator", OPERATOR_NAMESPACE),
        services_endpoint(cluster),
        _operator_deployment(manifest),
    )


def services_endpoint(cluster: Cluster) -> Document:
    """Where the API server is: no service address works before kube-proxy does."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kubernetes-services-endpoint", "namespace": OPERATOR_NAMESPACE},
        "data": {
            "KUBERNETES_SERVICE_HOST": cluster.endpoint,
            "KUBERNETES_SERVICE_PORT": str(API_PORT),
        },
    }


def installation(cluster: Cluster) -> tuple[Document, ...]:
    """What the operator is to make.

    The data plane is kube-proxy's own, nftables. Nodes have a management card too, so that Calico
    is told to take the address that the kubelet gives.
    """
    network = {
        "bgp": "Enabled" if cluster.topology == BGP else "Disabled",
        "hostPorts": "Enabled",
        "ipPools": list(_operator_pools(cluster)),
        "linuxDataplane": "Nftables",
        "mtu": cluster.pod_mtu,
        "nodeAddressAutodetectionV4": {"kubernetes": "NodeInternalIP"},
    }
    if cluster.topology == VXLAN:
        network["windowsDataplane"] = "HNS"
    return (
        {
            "apiVersion": "operator.tigera.io/v1",
            "kind": "Installation",
            "metadata": {"name": "default"},
            "spec": {
                "calicoNetwork": network,
                "flexVolumePath": "None",
                "kubeletVolumePluginPath": "None",
                "registry": REGISTRY,
                "serviceCIDRs": [cluster.service_cidr],
            },
        },
        {
            "apiVersion": "operator.tigera.io/v1",
            "kind": "APIServer",
            "metadata": {"name": "default"},
            "spec": {},
        },
    )


def _operator_pools(cluster: Cluster) -> Iterator[Document]:
    encapsulation = "VXLAN" if cluster.topology == VXLAN else "None"
    for pool in node_pools(cluster):
        yield {
            "blockSize": pool.block_size,
            "cidr": pool.cidr,
            "encapsulation": encapsulation,
            "name": pool.name,
            "natOutgoing": "Enabled",
            "nodeSelector": pool.node_selector,
        }


def _setting_document(one: Setting) -> Document:
    """By Calico's own API."""
    return {
        "apiVersion": "projectcalico.org/v3",
        "kind": one.kind,
        "metadata": {"name": one.name},
        "spec": one.spec,
    }


def _operator_deployment(manifest: Manifest) -> Document:
    pod = {
        "dnsPolicy": "ClusterFirstWithHostNet",
        "hostNetwork": True,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "serviceAccountName": "tigera-operator",
        "tolerations": [{"operator": "Exists"}],
        "containers": [_operator_container(manifest)],
        "volumes": [{"name": "var-lib-calico", "hostPath": {"path": "/var/lib/calico"}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "tigera-operator",
            "namespace": OPERATOR_NAMESPACE,
            "labels": _OPERATOR_LABEL,
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"name": "tigera-operator"}},
            "template": {"metadata": {"labels": _OPERATOR_LABEL}, "spec": pod},
        },
    }


def _operator_container(manifest: Manifest) -> Document:
    image = manifest.image(OPERATOR).name
    return {
        "name": "tigera-operator",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["operator"],
        "args": ["--manage-crds=true"],
        "env": [
            {"name": "WATCH_NAMESPACE", "value": ""},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "OPERATOR_NAME", "value": "tigera-operator"},
            {"name": "TIGERA_OPERATOR_INIT_IMAGE_VERSION", "value": image.rpartition(":")[2]},
        ],
        "envFrom": [
            {"configMapRef": {"name": "kubernetes-services-endpoint", "optional": True}},
        ],
        "volumeMounts": [
            {"name": "var-lib-calico", "mountPath": "/var/lib/calico", "readOnly": True}
        ],
    }


class Calico(Addon):
    """Calico; it brings the CNI configuration, the masquerading and the nodes' BIRD itself."""

    topologies = TOPOLOGIES
    footprint = Footprint(
        devices=("cali*", "vxlan.calico"),
        ports=("cali*",),
        tables=("calico",),
        paths=(
            "/etc/cni/net.d/10-calico.conflist",
            "/etc/cni/net.d/calico-kubeconfig",
            "/run/calico",
            "/var/lib/calico",
        ),
        control=bird.Control("/run/calico/bird.ctl"),
        tunnel="correct FelixConfiguration 'default' (vxlanVNI {vni}, vxlanPort {port}), and see "
        "that calico-node runs on this node: Felix makes {name} anew",
    )
    daemon_set = (NAMESPACE, DAEMON_SET)
    routing_daemons = True

    def images(self, cluster: Cluster) -> tuple[str, ...]:
        """Those of the nodes, and of the operator where it installs them."""
        return calico_images(cluster)

    def waves(
        self, cluster: Cluster, intent: Intent, manifest: Manifest
    ) -> tuple[tuple[Document, ...], ...]:
        """Kinds first, then what is of them."""
        if by_operator(cluster):
            return operator_waves(cluster, intent, manifest)
        return manifest_waves(cluster, intent, manifest)

    def node_documents(self, cluster: Cluster, intent: Intent) -> tuple[Document, ...]:
        """The autonomous system of each node that has one of its own."""
        return tuple(as_number_documents(cluster, intent))

    def prepare_node(self, cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
        """Other CNI configurations are removed."""
        del cluster, intent, machine
        return (Remove((pod_network.FLANNEL_CONFIG, pod_network.BRIDGE_CONFIG)),)

    def unfit(self, intent: Intent) -> str:
        """Why the operator cannot make the plan's pod addresses."""
        return operator_unfit(intent) if _has_windows(intent) else ""

    def unverified(self, intent: Intent) -> str:
        """The operator."""
        if not _has_windows(intent):
            return ""
        return (
            "Calico's operator, which Windows nodes ask for; without it, clusters of Linux nodes "
            "were brought up by us"
        )


def _has_windows(intent: Intent) -> bool:
    return any(machine.kubelet and machine.os == "windows" for machine in intent.machines)


ADDON = Calico()
