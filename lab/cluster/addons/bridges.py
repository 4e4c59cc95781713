"""No add-on: the nodes' own bridges, and the routes around them that the router or the lab has."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from lab.cluster.addons.addon import Addon
from lab.cluster.cluster import Cluster
from lab.cluster.footprint import Footprint
from lab.cluster.linux import pod_network
from lab.cluster.linux.operations import Operations, Remove, WriteFile
from lab.topology.intent import Intent, MachineIntent


def bridge_config(machine: MachineIntent) -> str:
    """A bridge with the node's part of the pod network, its gateway and MTU as the Intent has it.

    What has been handed out is noted in ``/run``: no pod's address outlives a restart.
    """
    bridge, kubelet = machine.bridge, machine.kubelet
    assert bridge is not None, "a node that runs pods"
    assert kubelet is not None, "a node that runs pods"
    gateway = IPv4Interface(bridge.addresses[0]).ip
    document = {
        "cniVersion": "1.0.0",
        "name": "hybridlab",
        "plugins": [
            {
                "type": "bridge",
                "bridge": bridge.name,
                "isGateway": True,
                "isDefaultGateway": True,
                "forceAddress": True,
                "ipMasq": False,
                "hairpinMode": True,
                "mtu": bridge.mtu,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[_range(str(kubelet.pod_cidr), gateway)]],
                    "dataDir": "/run/hybridlab/pod-addresses",
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _range(subnet: str, gateway: IPv4Address) -> dict[str, str]:
    """What pods get addresses from: none before the node's own, which may be other machines'."""
    found = {"subnet": subnet, "gateway": str(gateway)}
    if gateway != IPv4Network(subnet)[1]:
        found["rangeStart"] = str(gateway + 1)
    return found


class Bridges(Addon):
    """A bridge on each node, by the plugins that Kubernetes' nodes have."""

    topologies = frozenset({"upstream-tor", "upstream-vrrp", "hard-way"})
    footprint = Footprint(devices=("cni0", "cbr0"), paths=("/run/hybridlab/pod-addresses",))
    """Where the nodes' own CNI plugins make the pod network, and no add-on does."""

    def prepare_node(self, cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
        """The bridge's CNI configuration, and the node's own table that masquerades."""
        del cluster, intent
        config = WriteFile(pod_network.BRIDGE_CONFIG, bridge_config(machine))
        return (
            Remove((pod_network.FLANNEL_CONFIG,)),
            config,
            *pod_network.masqueraded(machine),
        )


ADDON = Bridges()
