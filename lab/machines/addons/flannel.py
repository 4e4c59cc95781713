"""flannel on a cluster's Linux nodes: its documents and its CNI configuration. Pure.

It creates what the Intent has: tunnels for ``overlay`` and ``kubeinit``, routes to the other nodes
for ``host-gateway``. It masquerades nothing: that differs by topology, and the node's own table
does it.

Source of its footprint: flannel 0.28, ``pkg/trafficmngr`` and ``pkg/subnet``.
"""

from __future__ import annotations

import json
from ipaddress import ip_network
from typing import Any

from lab.machines.addons.addon import BRIDGE_CONFIG, FLANNEL_CONFIG, Addon, Waves, load_masquerade
from lab.machines.bundle.manifest import Manifest
from lab.machines.cluster.cluster import API_PORT, Cluster
from lab.machines.cluster.documents import render
from lab.machines.cluster.linux.operations import Operations, Remove, WriteFile
from lab.topology.footprint import Footprint
from lab.topology.intent import Intent, MachineIntent

NAMESPACE = "kube-flannel"
IMAGE = "ghcr.io/flannel-io/flannel"
ACCOUNT = "flannel"
DAEMON_SET = "kube-flannel-ds"
_ROUTED = "host-gateway"
TOPOLOGIES = frozenset({"overlay", "kubeinit", _ROUTED})
SUBNET = "/run/flannel/subnet.env"
"""flanneld writes it once it knows the node's pod CIDR; the CNI plugin reads it."""


def cni_config(intent: Intent) -> str:
    """The node's CNI configuration; flanneld passes the rest to the plugin in ``subnet.env``."""
    bridge = next(machine.bridge.name for machine in intent.machines if machine.bridge)
    # without "ipMasq", the plugin masquerades because flanneld does not
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
    """The line of :data:`SUBNET` with the node's pod CIDR, written as its first address."""
    network = ip_network(pod_cidr)
    return f"FLANNEL_SUBNET={network[1]}/{network.prefixlen}"


def network_config(cluster: Cluster, intent: Intent) -> str:
    """``net-conf.json``, the same for Linux and Windows nodes."""
    network = {"Network": cluster.pod_cidr, "Backend": _backend(cluster, intent)}
    return json.dumps(network, indent=2) + "\n"


def _backend(cluster: Cluster, intent: Intent) -> dict[str, Any]:
    """The value of ``Backend`` in ``net-conf.json``.

    A tunnel's VNI is the topology's parameter; with ``direct_routing`` nodes on one segment route
    to each other's pods without the tunnel.
    """
    if cluster.topology == _ROUTED:
        return {"Type": "host-gw"}
    machine, tunnel = next(
        (machine, machine.tunnel) for machine in intent.machines if machine.tunnel
    )
    backend: dict[str, Any] = {"Type": "vxlan", "VNI": tunnel.vni, "Port": tunnel.port}
    others = [route for route in machine.routes if route.destination != "default"]
    if others and all(route.device != tunnel.name for route in others):
        backend["DirectRouting"] = True
    return backend


class Flannel(Addon):
    """flannel with tunnels or with routes to the other nodes."""

    topologies = TOPOLOGIES
    footprint = Footprint(
        devices=("cbr0", "cni0", "flannel.*"),
        keeps_routes=frozenset({_ROUTED}),
        tables=("flannel-*",),
        paths=("/run/flannel",),
        tunnel="correct net-conf.json (VNI {vni}, Port {port}), ip link del {name}, and restart "
        "flanneld on this node",
    )
    daemon_set = (NAMESPACE, DAEMON_SET)
    account = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"

    def images(self, cluster: Cluster) -> tuple[str, ...]:
        return (IMAGE,)

    def waves(self, cluster: Cluster, intent: Intent, manifest: Manifest) -> Waves:
        documents = render(
            "addons/flannel.yaml",
            cni_config=cni_config(intent),
            network=network_config(cluster, intent),
            image=manifest.image(IMAGE).name,
            endpoint=cluster.endpoint,
            port=API_PORT,
        )
        return (documents,)

    def prepare_node(self, cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
        """The node's CNI configuration and its own masquerading table."""
        config = WriteFile(FLANNEL_CONFIG, cni_config(intent))
        return (Remove((BRIDGE_CONFIG,)), config, *load_masquerade(machine))

    def unfit(self, intent: Intent) -> str:
        """Why flannel cannot provide an Intent's network, as a clause; empty if it can.

        It sets the routes to other nodes' pods itself, and would replace the scenario's.
        """
        assert intent.kubernetes is not None, "only called for clusters"
        pods = ip_network(intent.kubernetes.pod_cidr)
        for machine in intent.machines:
            for route in machine.routes:
                if route.requested and ip_network(route.destination).overlaps(pods):
                    return (
                        f"node '{machine.name}' asks for a route to {route.destination}, which is "
                        "in the pod range, and flannel sets those routes itself"
                    )
        return ""


ADDON = Flannel()
