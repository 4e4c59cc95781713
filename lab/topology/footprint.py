"""What a network add-on creates by itself on a Linux node, as each add-on declares it. Pure data.

State checks accept it, and a node that leaves the cluster loses it. Objects that the Intent has
itself are compared with the Intent. What a cluster needs of an add-on besides is no matter of the
core: see :mod:`lab.machines.addons.addon`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from lab._plugins import objects
from lab.topology import bird
from lab.topology.intent import Intent, MachineIntent

By = Literal["lab", "kubernetes"]
"""Who creates bridge, tunnel, pods and Services: the lab, with the Intent's own names and MACs,
or kubelet, kube-proxy and the network add-on, which choose some of them.
"""


_OF_THE_LAB = bird.Control()


@dataclass(frozen=True, slots=True)
class Footprint:
    """The footprint of one add-on; names may contain shell wildcards."""

    devices: tuple[str, ...] = ()
    """Devices; deleted when the node leaves."""
    ports: tuple[str, ...] = ()
    """Devices that lead to a pod each: a route to any pod through its device is right."""
    tables: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    control: bird.Control = _OF_THE_LAB
    tunnel: str = ""
    """Command that recreates a wrong tunnel device, with ``name``, ``vni`` and ``port``."""
    own_macs: bool = False
    """Whether it chooses its tunnels' MACs, writes down none, and masquerades (Felix)."""
    keeps_routes: frozenset[str] = frozenset()
    """Topologies where it puts a node's routes to other nodes' pods back, within 10 s."""

    def has_port(self, name: str) -> bool:
        """Whether a device of this name leads to a pod."""
        return any(fnmatchcase(name, port) for port in self.ports)

    def has_table(self, name: str) -> bool:
        """Whether the add-on owns the nftables table of this name."""
        return any(fnmatchcase(name, table) for table in self.tables)


class NetworkAddon:
    """A network add-on of clusters, as far as every part of the lab must know it."""

    topologies: frozenset[str] = frozenset()
    footprint: Footprint
    """What it creates by itself on a Linux node."""

    def unverified(self, intent: Intent) -> str:  # noqa: ARG002  overridden
        """Which part of it has never been run in such a cluster, as a clause; empty if all has."""
        return ""


@cache
def network_addons() -> Mapping[str, NetworkAddon]:
    """The add-on of each topology whose pod network a cluster can provide."""
    by_topology: dict[str, NetworkAddon] = {}
    for addon in objects("addons", NetworkAddon):
        by_topology |= dict.fromkeys(addon.topologies, addon)
    return by_topology


def cluster_footprint(intent: Intent) -> Footprint:
    """Footprint of the add-on of an Intent's cluster; nothing where pods are the lab's own."""
    return Footprint() if intent.kubernetes is None else find_footprint(intent.topology)


POD_TABLE = "hybridlab-pods"
"""The nftables table that masquerades the pods of a cluster node, if its add-on does not."""
POD_RULES = "/etc/hybridlab/pods.nft"
"""The file that replaces the table, whatever exists."""
LAB = Footprint(tables=("host-limits", "ovn-kubernetes", "open-vswitch"))
"""What the embedded provider creates besides the Intent's devices and routes."""


def find_footprint(topology: str, by: By = "kubernetes") -> Footprint:
    """Footprint of a topology's network add-on, or of the lab if that creates the pod network.

    Nothing where no installed add-on has the topology.
    """
    if by == "lab":
        return LAB
    addon = network_addons().get(topology)
    return addon.footprint if addon else Footprint()


def bird_of(intent: Intent, machine: MachineIntent, by: By) -> bird.Control:
    """How to query a machine's BIRD: on a cluster node it belongs to the add-on."""
    return find_footprint(intent.topology, by).control if machine.kubelet else _OF_THE_LAB
