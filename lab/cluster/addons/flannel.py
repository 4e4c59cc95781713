"""flannel on a cluster's Linux nodes: its documents, and its CNI configuration. Pure.

What it makes is what the Intent has: tunnels for ``overlay`` and ``kubeinit``, routes to the other
nodes for ``host-gateway``. It masquerades nothing: which packets are, differs by topology, and is
the node's own table.

Source of what it makes on a node: flannel 0.28, ``pkg/trafficmngr`` and ``pkg/subnet``.
"""

from __future__ import annotations

import json
from ipaddress import ip_network
from typing import Any

from lab.cluster.addons.addon import Addon
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import API_PORT, Cluster
from lab.cluster.documents import Document
from lab.cluster.footprint import Footprint
from lab.cluster.linux import pod_network
from lab.cluster.linux.operations import Operations, Remove, WriteFile
from lab.topology.intent import Intent, MachineIntent

NAMESPACE = "kube-flannel"
IMAGE = "ghcr.io/flannel-io/flannel"
ACCOUNT = "flannel"
DAEMON_SET = "kube-flannel-ds"
TOPOLOGIES = frozenset({"overlay", "kubeinit", "host-gateway"})
SUBNET = "/run/flannel/subnet.env"
"""flanneld writes it once it has the node's part of the network; the CNI plugin reads it."""
_START_SECONDS, _LOOK_SECONDS = 600, 30
_LABEL = {"app": "flannel"}


def backend(cluster: Cluster, intent: Intent) -> dict[str, Any]:
    """What stands under ``Backend`` in ``net-conf.json``.

    The VNI of a tunnel is the topology's parameter; with ``direct_routing`` the nodes' routes
    to each other's pods do not lead into the tunnel.
    """
    if cluster.topology == "host-gateway":
        return {"Type": "host-gw"}
    machine = _tunnelled(intent)
    tunnel = machine.tunnel
    assert tunnel is not None, "looked for"
    found: dict[str, Any] = {"Type": "vxlan", "VNI": tunnel.vni, "Port": tunnel.port}
    others = [route for route in machine.routes if route.destination != "default"]
    if others and all(route.device != tunnel.name for route in others):
        found["DirectRouting"] = True
    return found


def cni_config(cluster: Cluster, intent: Intent) -> str:
    """The node's CNI configuration; flanneld tells the plugin the rest in ``subnet.env``."""
    del cluster
    bridge = next(machine.bridge.name for machine in intent.machines if machine.bridge)
    # without "ipMasq", the plugin masquerades what flanneld does not
    delegate = {
        "bridge": bridge,
        "hairpinMode": True,
        "ipMasq": False,
        "isDefaultGateway": True,
    }
    document = {
        "name": "cbr0",
        "cniVersion": "0.3.1",
        "plugins": [
            {"type": "flannel", "delegate": delegate},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def subnet_line(pod_cidr: str) -> str:
    """The line of :data:`SUBNET` that has the node's part of the network: its first address."""
    network = ip_network(pod_cidr)
    return f"FLANNEL_SUBNET={network[1]}/{network.prefixlen}"


def documents(cluster: Cluster, intent: Intent, manifest: Manifest) -> tuple[Document, ...]:
    """Everything of flannel, as its own kube-flannel.yml has it.

    The CNI plugin and its configuration are on the nodes already.
    """
    network = {"Network": cluster.pod_cidr, "Backend": backend(cluster, intent)}
    return (
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": NAMESPACE,
                "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": ACCOUNT, "namespace": NAMESPACE},
        },
        _role(),
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "flannel"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "flannel",
            },
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kube-flannel-cfg", "namespace": NAMESPACE, "labels": _LABEL},
            "data": {
                "cni-conf.json": cni_config(cluster, intent),
                "net-conf.json": json.dumps(network, indent=2) + "\n",
            },
        },
        _daemon_set(cluster, manifest),
    )


def _tunnelled(intent: Intent) -> MachineIntent:
    return next(machine for machine in intent.machines if machine.tunnel)


def _role() -> Document:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "flannel"},
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
        ],
    }


def _daemon_set(cluster: Cluster, manifest: Manifest) -> Document:
    pod = {
        "hostNetwork": True,
        "priorityClassName": "system-node-critical",
        "serviceAccountName": ACCOUNT,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "containers": [_container(cluster, manifest)],
        "volumes": [
            {"name": "run", "hostPath": {"path": "/run/flannel", "type": "DirectoryOrCreate"}},
            {"name": "flannel-cfg", "configMap": {"name": "kube-flannel-cfg"}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": DAEMON_SET, "namespace": NAMESPACE, "labels": _LABEL},
        "spec": {
            "selector": {"matchLabels": _LABEL},
            "template": {"metadata": {"labels": _LABEL}, "spec": pod},
        },
    }


def _container(cluster: Cluster, manifest: Manifest) -> Document:
    return {
        "name": "kube-flannel",
        "image": manifest.image(IMAGE).name,
        "imagePullPolicy": "Never",
        "command": ["/opt/bin/flanneld"],
        "args": [
            "--kube-subnet-mgr",
            "--iface=$(NODE_ADDRESS)",
            "--ip-masq=false",
            "--iptables-forward-rules=false",
        ],
        "env": [
            _from_field("NODE_ADDRESS", "status.hostIP"),
            _from_field("POD_NAME", "metadata.name"),
            _from_field("POD_NAMESPACE", "metadata.namespace"),
            # asked before any Service works, and so without one
            {"name": "KUBERNETES_SERVICE_HOST", "value": cluster.endpoint},
            {"name": "KUBERNETES_SERVICE_PORT", "value": str(API_PORT)},
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "50Mi"}},
        # ready when the node's pods can have addresses, and not asked again after that
        "startupProbe": {
            "exec": {"command": ["/bin/cat", SUBNET]},
            "failureThreshold": _START_SECONDS,
            "periodSeconds": 1,
            "timeoutSeconds": _LOOK_SECONDS,
        },
        "securityContext": {
            "privileged": False,
            "capabilities": {"add": ["NET_ADMIN", "NET_RAW"]},
        },
        "volumeMounts": [
            {"name": "run", "mountPath": "/run/flannel"},
            {"name": "flannel-cfg", "mountPath": "/etc/kube-flannel/"},
        ],
    }


def _from_field(name: str, path: str) -> Document:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


class Flannel(Addon):
    """flannel, with tunnels or with routes to the other nodes."""

    topologies = TOPOLOGIES
    footprint = Footprint(
        devices=("cbr0", "cni0", "flannel.*"),
        tables=("flannel-*",),
        paths=("/run/flannel",),
        tunnel="correct net-conf.json (VNI {vni}, Port {port}), ip link del {name}, and restart "
        "flanneld on this node",
    )
    daemon_set = (NAMESPACE, DAEMON_SET)
    account = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"

    def images(self, cluster: Cluster) -> tuple[str, ...]:
        """One."""
        del cluster
        return (IMAGE,)

    def waves(
        self, cluster: Cluster, intent: Intent, manifest: Manifest
    ) -> tuple[tuple[Document, ...], ...]:
        """All at once."""
        return (documents(cluster, intent, manifest),)

    def prepare_node(self, cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
        """Its CNI configuration, and the node's own table that masquerades."""
        config = WriteFile(pod_network.FLANNEL_CONFIG, cni_config(cluster, intent))
        return (
            Remove((pod_network.BRIDGE_CONFIG,)),
            config,
            *pod_network.masqueraded(machine),
        )

    def unfit(self, intent: Intent) -> str:
        """Why flannel cannot make what an Intent has, a clause; empty where it can.

        It sets the routes to other nodes' pods itself, whatever stands there.
        """
        assert intent.kubernetes is not None, "asked of clusters alone"
        pods = ip_network(intent.kubernetes.pod_cidr)
        for machine in intent.machines:
            for route in machine.routes:
                if route.asked and ip_network(route.destination).overlaps(pods):
                    return (
                        f"node '{machine.name}' asks for a route to {route.destination}, "
                        "which is of the pods, and flannel sets those itself"
                    )
        return ""


ADDON = Flannel()
