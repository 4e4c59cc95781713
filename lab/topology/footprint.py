"""What a network add-on creates by itself on a Linux node, as each add-on declares it. Pure data.

State checks accept it, and a node that leaves the cluster loses it. Objects that the Intent has
itself are compared with the Intent.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

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

    def has_port(self, name: str) -> bool:
        """Whether a device of this name leads to a pod."""
        return any(fnmatchcase(name, one) for one in self.ports)

    def has_table(self, name: str) -> bool:
        """Whether the add-on owns the nftables table of this name."""
        return any(fnmatchcase(name, one) for one in self.tables)


LAB = Footprint(tables=("host-limits", "ovn-kubernetes", "open-vswitch"))
"""What the embedded provider creates besides the Intent's devices and routes."""


def footprint(topology: str, by: By = "kubernetes") -> Footprint:
    """Footprint of a topology's network add-on, or of the lab if that creates the pod network."""
    if by == "lab":
        return LAB
    from lab.machines.addons.addon import addons  # noqa: PLC0415  not for labs of namespaces

    return addons()[topology].footprint


def bird_of(intent: Intent, machine: MachineIntent, by: By) -> bird.Control:
    """How to query a machine's BIRD: on a cluster node it belongs to the add-on."""
    return footprint(intent.topology, by).control if machine.kubelet else _OF_THE_LAB
