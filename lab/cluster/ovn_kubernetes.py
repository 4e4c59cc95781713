"""ovn-kubernetes on a cluster, with the databases on one machine. Pure.

Form: its own templates (``dist/templates/ovnkube-db``, ``-master`` and ``-node``) and start script
(``ovnkube.sh``), daemonset version 1.2.0. Never run: it wants a newer OVN than Debian 12's. Open
vSwitch is the machine's own, from its distribution: :mod:`lab.cluster.linux.external_bridge`.

It hands nodes their part of the pod network out itself, unless a node has one already: so each
is given the plan's. kube-proxy is left out; OVN's load balancers are the Services.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Any

from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import API_PORT, Cluster
from lab.cluster.documents import Document, administrator
from lab.topology.intent import Intent
from lab.topology.ovn import EXTERNAL_BRIDGE

TOPOLOGIES = frozenset({"ovn"})
NAMESPACE = "ovn-kubernetes"
IMAGE = "ghcr.io/ovn-kubernetes/ovn-kubernetes/ovn-kube-ubuntu"
PACKAGE = "openvswitch-switch"
"""Debian's, on every Linux node."""
ACCOUNT = "ovn"
DAEMON_SET = "ovnkube-node"
VERSION = "1.2.0"
"""Of the form of its daemon sets, which the start script asks for."""
NORTHBOUND_PORT, SOUTHBOUND_PORT = 6641, 6642
SUBNETS = "k8s.ovn.org/node-subnets"
_HOST_PATHS = {
    "host-cni-bin": ("/opt/cni/bin", "/opt/cni/bin"),
    "host-cni-conf": ("/etc/cni/net.d", "/etc/cni/net.d"),
    "host-databases": ("/var/lib/openvswitch", "/etc/openvswitch"),
    "host-databases-ovn": ("/var/lib/openvswitch", "/etc/ovn"),
    "host-etc": ("/etc/openvswitch", "/etc/openvswitch"),
    "host-log": ("/var/log/openvswitch", "/var/log/openvswitch"),
    "host-log-ovn": ("/var/log/openvswitch", "/var/log/ovn"),
    "host-log-ovnkube": ("/var/log/ovn-kubernetes", "/var/log/ovn-kubernetes"),
    "host-netns": ("/run/netns", "/var/run/netns"),
    "host-run": ("/run/openvswitch", "/var/run/openvswitch"),
    "host-run-ovn": ("/run/openvswitch", "/var/run/ovn"),
    "host-run-ovnkube": ("/run/ovn-kubernetes", "/var/run/ovn-kubernetes"),
    "host-slash": ("/", "/host"),
}
"""Volume: the machine's directory, and where its containers see it."""
_SHARED = "host-netns"
"""What the runtime mounts there later is seen, too: a pod's network namespace."""
_COMMON = ("host-log", "host-log-ovn", "host-run", "host-run-ovn")


def documents(cluster: Cluster, intent: Intent, manifest: Manifest) -> tuple[Document, ...]:
    """Everything but what stands on the nodes themselves."""
    return (
        *administrator(ACCOUNT, NAMESPACE),
        _settings(cluster),
        _service(),
        _workload("Deployment", "ovnkube-db", _at_central(intent), _databases(manifest)),
        _workload("Deployment", "ovnkube-master", _at_central(intent), _masters(manifest)),
        _workload("DaemonSet", DAEMON_SET, {}, _nodes(manifest)),
    )


def _settings(cluster: Cluster) -> Document:
    prefixes = [ip_network(node.pod_cidr).prefixlen for node in cluster.nodes if node.pod_cidr]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "ovn-config", "namespace": NAMESPACE},
        "data": {
            "k8s_apiserver": f"https://{cluster.endpoint}:{API_PORT}",
            "mtu": str(cluster.pod_mtu),
            "net_cidr": f"{cluster.pod_cidr}/{max(prefixes)}",
            "svc_cidr": cluster.service_cidr,
        },
    }


def subnets(cluster: Cluster) -> Iterator[Document]:
    """The nodes' parts of the pod network, which it takes from them where they have one."""
    for node in cluster.nodes:
        if node.os == "linux" and node.pod_cidr:  # others have not joined yet
            subnets = json.dumps({"default": [node.pod_cidr]}, separators=(",", ":"))
            yield {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"annotations": {SUBNETS: subnets}, "name": node.name},
            }


def _service() -> Document:
    """Without a selector: the databases say themselves where they are."""
    ports = (("north", NORTHBOUND_PORT), ("south", SOUTHBOUND_PORT))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "ovnkube-db", "namespace": NAMESPACE},
        "spec": {
            "clusterIP": "None",
            "ports": [
                {"name": name, "port": port, "protocol": "TCP", "targetPort": port}
                for name, port in ports
            ],
        },
    }


def _at_central(intent: Intent) -> dict[str, str]:
    assert intent.logical is not None, "a topology of OVN"
    return {"kubernetes.io/hostname": intent.logical.central}


def _databases(manifest: Manifest) -> list[Document]:
    volumes = (*_COMMON, "host-databases", "host-databases-ovn")
    return [
        _container(manifest, f"{side}-ovsdb", f"{side}-ovsdb", volumes, _database(side, port))
        for side, port in (("nb", NORTHBOUND_PORT), ("sb", SOUTHBOUND_PORT))
    ]


def _database(side: str, port: int) -> dict[str, str]:
    return {f"OVN_{side.upper()}_PORT": str(port), "OVN_SSL_ENABLE": "no"}


def _masters(manifest: Manifest) -> list[Document]:
    ovnkube = (*_COMMON, "host-log-ovnkube")
    return [
        _container(manifest, "ovn-northd", "run-ovn-northd", _COMMON, {"OVN_SSL_ENABLE": "no"}),
        _container(manifest, "ovnkube-master", "ovn-master", ovnkube, _MODE),
    ]


def _nodes(manifest: Manifest) -> list[Document]:
    ovnkube = tuple(name for name in _HOST_PATHS if not name.startswith("host-databases"))
    node = _container(manifest, "ovnkube-node", "ovn-node", ovnkube, _NODE_MODE)
    node["securityContext"] = {"privileged": True, "runAsUser": 0}
    return [
        _container(manifest, "ovn-controller", "ovn-controller", _COMMON, {"OVN_SSL_ENABLE": "no"}),
        node,
    ]


_MODE = {"OVN_GATEWAY_MODE": "local", "OVN_SSL_ENABLE": "no"}
_NODE_MODE = {**_MODE, "OVN_GATEWAY_OPTS": f"--gateway-interface={EXTERNAL_BRIDGE}"}
_FROM_SETTINGS = {
    "K8S_APISERVER": "k8s_apiserver",
    "OVN_MTU": "mtu",
    "OVN_NET_CIDR": "net_cidr",
    "OVN_SVC_CIDR": "svc_cidr",
}
_FROM_FIELDS = {
    "K8S_NODE": "spec.nodeName",
    "K8S_NODE_IP": "status.hostIP",
    "OVN_KUBERNETES_NAMESPACE": "metadata.namespace",
}


def _container(
    manifest: Manifest,
    name: str,
    command: str,
    volumes: tuple[str, ...],
    environment: Mapping[str, str],
) -> dict[str, Any]:
    given: dict[str, Any] = {
        key: {"value": value}
        for key, value in {"OVN_DAEMONSET_VERSION": VERSION, **environment}.items()
    }
    given |= {
        key: {"valueFrom": {"configMapKeyRef": {"key": own, "name": "ovn-config"}}}
        for key, own in _FROM_SETTINGS.items()
    }
    given |= {
        key: {"valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in _FROM_FIELDS.items()
    }
    return {
        "name": name,
        "image": manifest.image(IMAGE).name,
        "imagePullPolicy": "Never",
        "command": ["/root/ovnkube.sh", command],
        "env": [{"name": key, **value} for key, value in given.items()],
        "securityContext": {"capabilities": {"add": ["NET_ADMIN", "SYS_NICE"]}, "runAsUser": 0},
        "volumeMounts": [_mount(one) for one in volumes],
    }


def _mount(name: str) -> Document:
    mount = {"name": name, "mountPath": _HOST_PATHS[name][1]}
    return {**mount, "mountPropagation": "Bidirectional"} if name == _SHARED else mount


def _workload(
    kind: str, name: str, where: Mapping[str, str], containers: list[Document]
) -> Document:
    label = {"name": name}
    mounted = {one["name"] for container in containers for one in container["volumeMounts"]}
    pod = {
        "dnsPolicy": "Default",
        "hostNetwork": True,
        "hostPID": kind == "DaemonSet",
        "nodeSelector": {"kubernetes.io/os": "linux", **where},
        "priorityClassName": "system-node-critical",
        "serviceAccountName": ACCOUNT,
        "tolerations": [{"operator": "Exists"}],
        "containers": containers,
        "volumes": [
            {"name": one, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
            for one, (path, _) in _HOST_PATHS.items()
            if one in mounted
        ],
    }
    spec: dict[str, Any] = {
        "selector": {"matchLabels": label},
        "template": {"metadata": {"labels": label}, "spec": pod},
    }
    if kind == "Deployment":
        spec |= {"replicas": 1, "strategy": {"type": "Recreate"}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }
