"""ovn-kubernetes on a cluster, each node a zone with databases of its own. Pure.

Form: its own templates (``dist/templates/ovnkube-single-node-zone`` and ``-control-plane``) and
start script (``ovnkube.sh``), daemonset version 1.2.0. Never run: it wants a newer OVN than Debian
12's, and a kernel with ``openvswitch`` and ``geneve``. Open
vSwitch is the machine's own, from its distribution. ovn-kubernetes takes over a bridge that is
there, and makes the rest of the switch itself: the bridge has the card's addresses and MAC, and is
made again at every start, before the kubelet.

It hands nodes their part of the pod network out itself, unless a node has one already: so each
is given the plan's. kube-proxy is left out; OVN's load balancers are the Services.

Source of what it makes on a node: ovn-kubernetes 1.2, ``go-controller/pkg/types`` and
``dist/images/ovnkube.sh``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Any

from lab.cluster.addons.addon import Addon
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import API_PORT, Cluster
from lab.cluster.documents import Document, administrator
from lab.cluster.footprint import Footprint
from lab.cluster.linux import pod_network
from lab.cluster.linux.operations import (
    Operations,
    Remove,
    Run,
    SystemdUnit,
    WriteFile,
    inputs_digest,
)
from lab.topology.intent import Intent, MachineIntent
from lab.topology.ovn import EXTERNAL_BRIDGE

NAMESPACE = "ovn-kubernetes"
IMAGE = "ghcr.io/ovn-kubernetes/ovn-kubernetes/ovn-kube-ubuntu"
PACKAGE = "openvswitch-switch"
"""Debian's, on every Linux node."""
ACCOUNT = "ovn"
DAEMON_SET = "ovnkube-node"
VERSION = "1.2.0"
"""Of the form of its daemon sets, which the start script asks for."""
SUBNETS = "k8s.ovn.org/node-subnets"
ZONE = "k8s.ovn.org/zone-name"
"""A Node's label; ``ovnkube.sh`` takes a node without it for one of the zone of all."""
_HOST_PATHS = {
    "host-cni-bin": ("/opt/cni/bin", "/opt/cni/bin"),
    "host-cni-conf": ("/etc/cni/net.d", "/etc/cni/net.d"),
    "host-databases": ("/var/lib/openvswitch", "/etc/ovn"),
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
_DATABASES = (*_COMMON, "host-databases", "host-etc")
_ZONE = {"OVN_ENABLE_INTERCONNECT": "true", "OVN_SSL_ENABLE": "no"}
_MODE = {**_ZONE, "OVN_GATEWAY_MODE": "local"}
_LOCAL = {"OVN_NORTH": "local", "OVN_SOUTH": "local"}
"""Databases are those of the pod itself."""


def documents(cluster: Cluster, manifest: Manifest) -> tuple[Document, ...]:
    """Everything but what is on the nodes themselves."""
    control_plane = {"node-role.kubernetes.io/control-plane": ""}
    return (
        *administrator(ACCOUNT, NAMESPACE),
        _settings(cluster),
        _workload("Deployment", "ovnkube-control-plane", control_plane, [_manager(manifest)]),
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


def zones(cluster: Cluster) -> Iterator[Document]:
    """Each node's zone, and its part of the pod network, which it keeps where it has one."""
    for node in cluster.nodes:
        if node.os == "linux" and node.pod_cidr:  # others have not joined yet
            subnets = json.dumps({"default": [node.pod_cidr]}, separators=(",", ":"))
            yield {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "annotations": {SUBNETS: subnets},
                    "labels": {ZONE: node.name},
                    "name": node.name,
                },
            }


def _manager(manifest: Manifest) -> Document:
    volumes = (*_COMMON, "host-log-ovnkube")
    return _container(manifest, "ovnkube-cluster-manager", "ovn-cluster-manager", volumes, _MODE)


def _nodes(manifest: Manifest) -> list[Document]:
    gateway = {"OVN_GATEWAY_OPTS": f"--gateway-interface={EXTERNAL_BRIDGE}"}
    controller = _container(
        manifest,
        "ovnkube-controller",
        "ovnkube-controller-with-node",
        tuple(_HOST_PATHS),
        {**_MODE, **_LOCAL, **gateway},
    )
    controller["securityContext"] = {"privileged": True, "runAsUser": 0}
    local = {**_ZONE, **_LOCAL}
    return [
        _container(manifest, "nb-ovsdb", "local-nb-ovsdb", _DATABASES, _ZONE),
        _container(manifest, "sb-ovsdb", "local-sb-ovsdb", _DATABASES, _ZONE),
        _container(manifest, "ovn-northd", "run-ovn-northd", _COMMON, local),
        controller,
        _container(manifest, "ovn-controller", "ovn-controller", _COMMON, local),
    ]


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


_SCRIPT = "/usr/local/lib/hybridlab/external-bridge"
_BRIDGE_UNIT = "hybridlab-external-bridge.service"


def external_bridge(machine: MachineIntent) -> Operations:
    """Open vSwitch running, and every card that the Intent has in a bridge put into one."""
    there = "command -v ovs-vsctl >/dev/null"
    script = WriteFile(_SCRIPT, "".join(f"{line}\n" for line in _bridge_lines(machine)), 0o755)
    unit = WriteFile(f"/etc/systemd/system/{_BRIDGE_UNIT}", _BRIDGE_UNIT_TEXT)
    return (
        Run(
            ("sh", "-c", f"{there} || {{ echo 'ovs-vsctl is not installed' >&2; exit 1; }}"),
            unless=there,
            hint=f"build the machine's image again with package '{PACKAGE}' in its recipe",
        ),
        SystemdUnit("openvswitch-switch.service"),
        script,
        unit,
        SystemdUnit(_BRIDGE_UNIT, inputs_digest((script, unit))),
    )


def _bridge_lines(machine: MachineIntent) -> tuple[str, ...]:
    lines = ["#!/bin/sh", "# The node segment's card becomes a port of a bridge.", "set -eu"]
    for card in machine.interfaces:
        if card.card is None:
            continue
        settings = f"fail_mode=standalone 'other_config:hwaddr=\"{card.mac}\"'"
        clauses = (
            "ovs-vsctl --timeout=60",
            f"--may-exist add-br {card.name}",
            f"set Bridge {card.name} {settings}",
            f"--may-exist add-port {card.name} {card.card}",
        )
        lines += [
            " -- ".join(clauses),
            f"ip link set {card.card} mtu {card.mtu} up",
            f"ip address flush dev {card.card} scope global",
            f"ip link set {card.name} mtu {card.mtu} up",
        ]
        lines += [f"ip address replace {address} dev {card.name}" for address in card.addresses]
        lines += [
            f"ip route replace {route.destination} via {route.via} dev {card.name}"
            for route in machine.routes
            if route.device == card.name and route.via
        ]
    return tuple(lines)


_BRIDGE_UNIT_TEXT = f"""[Unit]
Description=The card of the lab's node segment in a bridge of Open vSwitch
Requires=openvswitch-switch.service
After=openvswitch-switch.service hybridlab-network.service
Before=kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={_SCRIPT}

[Install]
WantedBy=multi-user.target
"""


class OvnKubernetes(Addon):
    """ovn-kubernetes: a switch on every node, and load balancers in place of kube-proxy."""

    topologies = frozenset({"ovn"})
    footprint = Footprint(
        tables=("ovn-kubernetes",),
        paths=("/etc/cni/net.d/10-ovn-kubernetes.conf", "/run/ovn-kubernetes"),
        switches=("br-int",),
    )
    daemon_set = (NAMESPACE, DAEMON_SET)
    routing_daemons = True
    kube_proxy = False

    def images(self, cluster: Cluster) -> tuple[str, ...]:
        """One."""
        del cluster
        return (IMAGE,)

    def waves(
        self, cluster: Cluster, intent: Intent, manifest: Manifest
    ) -> tuple[tuple[Document, ...], ...]:
        """All at once."""
        del intent
        return (documents(cluster, manifest),)

    def node_documents(self, cluster: Cluster, intent: Intent) -> tuple[Document, ...]:
        """The zone of each, and the part of the pod network that the plan gives it."""
        del intent
        return tuple(zones(cluster))

    def prepare_node(self, cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
        """Other CNI configurations are removed; the node's card is in a bridge."""
        del cluster, intent
        others = Remove((pod_network.FLANNEL_CONFIG, pod_network.BRIDGE_CONFIG))
        return (others, *external_bridge(machine))

    def packages(self, machine: MachineIntent) -> frozenset[str]:
        """Open vSwitch."""
        return frozenset({PACKAGE}) if machine.chassis else frozenset()

    def unverified(self, intent: Intent) -> str:
        """All of it."""
        del intent
        return (
            "ovn-kubernetes' documents are written as its templates have them; no cluster of it "
            "was ever brought up by us"
        )


ADDON = OvnKubernetes()
