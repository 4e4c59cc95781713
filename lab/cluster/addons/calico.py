"""Calico, with VXLAN or with BGP: by plain manifests, or by its operator where Windows nodes are.

Source of what it makes on a node: nodes of Calico 3.31.
"""

from __future__ import annotations

from lab.cluster.addons import calico_manifests, calico_operator, calico_settings
from lab.cluster.addons.addon import Addon
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import Cluster
from lab.cluster.documents import Document
from lab.cluster.footprint import Footprint
from lab.cluster.linux import pod_network
from lab.cluster.linux.operations import Operations, Remove
from lab.topology import bird
from lab.topology.intent import Intent, MachineIntent


class Calico(Addon):
    """Calico; it brings the CNI configuration, the masquerading and the nodes' BIRD itself."""

    topologies = calico_settings.TOPOLOGIES
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
    daemon_set = (calico_settings.NAMESPACE, calico_settings.DAEMON_SET)
    routing_daemons = True

    def images(self, cluster: Cluster) -> tuple[str, ...]:
        """Those of the nodes, and of the operator where it installs them."""
        return calico_settings.images(cluster)

    def waves(
        self, cluster: Cluster, intent: Intent, manifest: Manifest
    ) -> tuple[tuple[Document, ...], ...]:
        """Kinds first, then what is of them."""
        if calico_settings.by_operator(cluster):
            return calico_operator.waves(cluster, intent, manifest)
        return calico_manifests.waves(cluster, intent, manifest)

    def node_documents(self, cluster: Cluster, intent: Intent) -> tuple[Document, ...]:
        """The autonomous system of each node that has one of its own."""
        return tuple(calico_settings.systems(cluster, intent))

    def prepare_node(self, cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
        """Other CNI configurations are removed."""
        del cluster, intent, machine
        return (Remove((pod_network.FLANNEL_CONFIG, pod_network.BRIDGE_CONFIG)),)

    def unfit(self, intent: Intent) -> str:
        """Why the operator cannot make the plan's pod addresses."""
        return calico_operator.unfit(intent) if _has_windows(intent) else ""

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
