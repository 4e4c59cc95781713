"""ovn-kubernetes on a cluster, each node a zone with its own databases. Pure.

Never run: it needs a newer OVN than Debian 12's, and a kernel with ``openvswitch`` and ``geneve``.
Open vSwitch is the machine's own, from its distribution. ovn-kubernetes takes over an existing
bridge and creates the rest of the switch itself: the bridge has the network interface's addresses
and MAC, and is recreated at every start before the kubelet.

It allocates the nodes' pod CIDRs itself unless a node has one already, so each node gets the
plan's. kube-proxy is left out: OVN's load balancers implement the Services.

Source of its footprint: ovn-kubernetes 1.2, ``go-controller/pkg/types`` and
``dist/images/ovnkube.sh``.
"""

from __future__ import annotations

import json
from ipaddress import ip_network

from lab.machines.addons.addon import BRIDGE_CONFIG, FLANNEL_CONFIG, Addon, Waves
from lab.machines.bundle.manifest import Manifest
from lab.machines.cluster.cluster import API_PORT, Cluster
from lab.machines.cluster.documents import Document, administrator, render
from lab.machines.cluster.linux.operations import (
    Operations,
    Remove,
    SystemdUnit,
    WriteFile,
    inputs_digest,
    require_program,
    run_once,
    unit_file,
)
from lab.topology.footprint import Footprint
from lab.topology.intent import Intent, MachineIntent
from lab.topology.kinds.ovn import EXTERNAL_BRIDGE

NAMESPACE = "ovn-kubernetes"
IMAGE = "ghcr.io/ovn-kubernetes/ovn-kubernetes/ovn-kube-ubuntu"
PACKAGE = "openvswitch-switch"
ACCOUNT = "ovn"
DAEMON_SET = "ovnkube-node"
SUBNETS = "k8s.ovn.org/node-subnets"
ZONE = "k8s.ovn.org/zone-name"
"""Label of a Node; without it ``ovnkube.sh`` puts the node into the global zone."""


_SCRIPT = "/usr/local/lib/hybridlab/external-bridge"
_BRIDGE_UNIT = "hybridlab-external-bridge.service"


def external_bridge(machine: MachineIntent) -> Operations:
    """Start Open vSwitch, and put every bridged interface of the Intent into its bridge."""
    script = WriteFile(_SCRIPT, "".join(f"{line}\n" for line in _bridge_lines(machine)), 0o755)
    unit = unit_file(
        _BRIDGE_UNIT,
        "The node segment's interface in an Open vSwitch bridge",
        (
            "Requires=openvswitch-switch.service",
            "After=openvswitch-switch.service hybridlab-network.service",
            "Before=kubelet.service",
        ),
        run_once(_SCRIPT),
    )
    return (
        require_program("ovs-vsctl", PACKAGE),
        SystemdUnit("openvswitch-switch.service"),
        script,
        unit,
        SystemdUnit(_BRIDGE_UNIT, inputs_digest((script, unit))),
    )


def _bridge_lines(machine: MachineIntent) -> tuple[str, ...]:
    lines = ["#!/bin/sh", "# Make the node segment's interface a port of a bridge.", "set -eu"]
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


class OvnKubernetes(Addon):
    """ovn-kubernetes: a switch on every node, and load balancers instead of kube-proxy."""

    topologies = frozenset({"ovn"})
    bundled = "ovn"
    footprint = Footprint(
        tables=("ovn-kubernetes",),
        paths=("/etc/cni/net.d/10-ovn-kubernetes.conf", "/run/ovn-kubernetes"),
        switches=("br-int",),
    )
    daemon_set = (NAMESPACE, DAEMON_SET)
    routing_daemons = True
    kube_proxy = False

    def images(self, cluster: Cluster) -> tuple[str, ...]:
        return (IMAGE,)

    def pinned(self, cluster: Cluster) -> bool:
        """The documents are written for one release."""
        return True

    def waves(self, cluster: Cluster, intent: Intent, manifest: Manifest) -> Waves:
        prefixes = [ip_network(node.pod_cidr).prefixlen for node in cluster.nodes if node.pod_cidr]
        documents = render(
            "addons/ovn_kubernetes.yaml",
            namespace=NAMESPACE,
            account=ACCOUNT,
            daemon_set=DAEMON_SET,
            bridge=EXTERNAL_BRIDGE,
            image=manifest.image(IMAGE).name,
            endpoint=cluster.endpoint,
            port=API_PORT,
            mtu=cluster.pod_mtu,
            pods=f"{cluster.pod_cidr}/{max(prefixes)}",
            services=cluster.service_cidr,
        )
        return ((*administrator(ACCOUNT, NAMESPACE), *documents),)

    def node_documents(self, cluster: Cluster, intent: Intent) -> tuple[Document, ...]:
        """Each node's zone and its pod CIDR from the plan; a node that has a pod CIDR keeps it."""
        return tuple(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "annotations": {
                        SUBNETS: json.dumps({"default": [node.pod_cidr]}, separators=(",", ":"))
                    },
                    "labels": {ZONE: node.name},
                    "name": node.name,
                },
            }
            for node in cluster.nodes
            if node.os == "linux" and node.pod_cidr  # Windows nodes have not joined yet
        )

    def prepare_node(self, cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
        """Remove other CNI configurations and put the node's interface into a bridge."""
        others = Remove((FLANNEL_CONFIG, BRIDGE_CONFIG))
        return (others, *external_bridge(machine))

    def packages(self, machine: MachineIntent) -> frozenset[str]:
        return frozenset({PACKAGE}) if machine.chassis else frozenset()

    def unverified(self, intent: Intent) -> str:
        return (
            "ovn-kubernetes' documents follow its templates; no cluster has been brought up with it"
        )


ADDON = OvnKubernetes()
