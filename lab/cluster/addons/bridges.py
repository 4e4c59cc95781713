"""No add-on: the nodes' own bridges, and the routes around them that the router or the lab has."""

from __future__ import annotations

from lab.cluster.addons.addon import Addon
from lab.cluster.cluster import Cluster
from lab.cluster.footprint import Footprint
from lab.cluster.linux import pod_network
from lab.cluster.linux.operations import Operations, Remove, WriteFile
from lab.topology.intent import Intent, MachineIntent


class Bridges(Addon):
    """A bridge on each node, by the plugins that Kubernetes' nodes have."""

    topologies = frozenset({"upstream-tor", "upstream-vrrp", "hard-way"})
    footprint = Footprint(devices=("cni0", "cbr0"), paths=("/run/hybridlab/pod-addresses",))
    """Where the nodes' own CNI plugins make the pod network, and no add-on does."""
    FLANNEL = Footprint(
        devices=("cbr0", "cni0", "flannel.*"),
        tables=("flannel-*",),
        paths=("/run/flannel",),
        tunnel="correct net-conf.json (VNI {vni}, Port {port}), ip link del {name}, and restart "
        "flanneld on this node",
    )

    def prepare_node(self, cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
        """The bridge's CNI configuration, and the node's own table that masquerades."""
        del cluster, intent
        config = WriteFile(pod_network.BRIDGE_CONFIG, pod_network.bridge_config(machine))
        return (
            Remove((pod_network.FLANNEL_CONFIG,)),
            config,
            *pod_network.masqueraded(machine),
        )


ADDON = Bridges()
