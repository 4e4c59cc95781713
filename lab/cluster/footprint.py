"""What a network add-on makes on a Linux node by itself, as each declares it. Pure data.

Whoever looks at a node takes it as intended, and a node that leaves the cluster loses it. What the
Intent has itself is judged by the Intent.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from lab.topology import bird
from lab.topology.intent import Intent, MachineIntent

By = Literal["lab", "kubernetes"]
"""Who has made bridge, tunnel, pods and Services: the lab, with the Intent's own names and MACs,
or kubelet, kube-proxy and the network add-on, which choose some of them."""


_OF_THE_LAB = bird.Control()


@dataclass(frozen=True, slots=True)
class Footprint:
    """Of one add-on; names may have the wildcards of file names."""

    devices: tuple[str, ...] = ()
    """A node that leaves loses them."""
    ports: tuple[str, ...] = ()
    """Of devices that lead to a pod each: whatever pod that is, the route by it is right."""
    tables: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    control: bird.Control = _OF_THE_LAB
    tunnel: str = ""
    """The command that makes a wrong one again, from its ``name``, ``vni`` and ``port``."""

    def has_port(self, name: str) -> bool:
        """Whether a device of that name leads to a pod."""
        return any(fnmatchcase(name, one) for one in self.ports)

    def has_table(self, name: str) -> bool:
        """Whether a table of nftables of that name is the add-on's."""
        return any(fnmatchcase(name, one) for one in self.tables)


LAB = Footprint(tables=("host-limits", "ovn-kubernetes", "open-vswitch"))
"""What the embedded provider makes beside what the Intent's devices and routes are."""


def footprint(topology: str, by: By = "kubernetes") -> Footprint:
    """Of the add-on that makes a topology's pod network, or of the lab where it does so itself."""
    if by == "lab":
        return LAB
    from lab.cluster.addons.addon import addons  # noqa: PLC0415  not for labs of namespaces

    return addons()[topology].footprint


def bird_of(intent: Intent, machine: MachineIntent, by: By) -> bird.Control:
    """How the BIRD of one machine is asked: that of a cluster's node is the add-on's."""
    return footprint(intent.topology, by).control if machine.kubelet else _OF_THE_LAB
