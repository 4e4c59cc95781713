"""No add-on: the nodes' own bridges, and routes between them on the router or the nodes."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from lab.machines.addons.addon import BRIDGE_CONFIG, FLANNEL_CONFIG, Addon, load_masquerade
from lab.machines.cluster.cluster import Cluster
from lab.machines.cluster.linux.operations import Operations, Remove, WriteFile
from lab.topology.footprint import Footprint
from lab.topology.intent import Intent, MachineIntent


def bridge_config(machine: MachineIntent) -> str:
    """A bridge for the node's pod CIDR, with the Intent's gateway and MTU.

    Allocated addresses are recorded in ``/run``: no pod's address survives a restart.
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
    """The range of pod addresses; those below the gateway may belong to other machines."""
    block = {"subnet": subnet, "gateway": str(gateway)}
    if gateway != IPv4Network(subnet)[1]:
        block["rangeStart"] = str(gateway + 1)
    return block


class Bridges(Addon):
    """A bridge on each node, by the standard CNI plugins."""

    topologies = frozenset({"upstream-tor", "upstream-vrrp", "hard-way"})
    footprint = Footprint(devices=("cni0", "cbr0"), paths=("/run/hybridlab/pod-addresses",))

    def prepare_node(self, cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
        """The bridge's CNI configuration and the node's own masquerading table."""
        config = WriteFile(BRIDGE_CONFIG, bridge_config(machine))
        return (Remove((FLANNEL_CONFIG,)), config, *load_masquerade(machine))


ADDON = Bridges()
