"""What a network add-on is, the registry of all add-ons, and what several of them need on a node.

Each add-on is an object of a plug-in; ours are modules of this package with an ``ADDON``. To add
one here, add its file, and its versions and images to ``bundle/upstream.json``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from lab.machines.bundle.manifest import Manifest
from lab.machines.cluster.cluster import Cluster
from lab.machines.cluster.documents import Document
from lab.machines.cluster.linux.operations import (
    Operations,
    SystemdUnit,
    WriteFile,
    inputs_digest,
    run_once,
    unit_file,
)
from lab.topology.footprint import POD_RULES, POD_TABLE, NetworkAddon, network_addons
from lab.topology.intent import Intent, MachineIntent, Translation

DaemonSet = tuple[str, str]
Waves = tuple[tuple[Document, ...], ...]
"""Documents; a later wave may use kinds that an earlier one defines."""


class Addon(NetworkAddon, ABC):
    """A network add-on of clusters; the defaults add nothing."""

    bundled = ""
    """Its name in ``bundle/upstream.json``; empty if every bundle has its images."""
    daemon_set: DaemonSet | None = None
    """The one of :meth:`daemon_sets`, where it is always the same."""
    routing_daemons = False
    """Whether it brings the nodes' routing daemons; otherwise the lab starts its own."""
    kube_proxy = True
    writes_plugins = False
    """Whether its pods write CNI plugins on a node, so that links there would lead nowhere."""
    account = ""
    """Account of its programs on Windows nodes; empty if they need none."""

    def images(self, cluster: Cluster) -> tuple[str, ...]:
        """Images that a Linux node needs, without tags."""
        return ()

    def daemon_sets(self, intent: Intent) -> tuple[DaemonSet, ...]:
        """Those that must run on every node before the cluster's DNS pods can have addresses."""
        return (self.daemon_set,) if self.daemon_set else ()

    def archives(self, intent: Intent) -> tuple[Path, ...]:
        """Files with images that are no part of the bundle; every Linux node gets them."""
        return ()

    def pinned(self, cluster: Cluster) -> bool:
        """Whether the images must have the versions of ``bundle/upstream.json``."""
        return False

    def waves(self, cluster: Cluster, intent: Intent, manifest: Manifest) -> Waves:
        """Its documents."""
        return ()

    def node_documents(self, cluster: Cluster, intent: Intent) -> tuple[Document, ...]:
        """Documents with the settings it needs on Node objects of nodes that kubeadm joins."""
        return ()

    @abstractmethod
    def prepare_node(self, cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
        """Operations on a node that runs pods: CNI configuration, masquerading."""

    def packages(self, machine: MachineIntent) -> frozenset[str]:
        """The Debian packages that a machine's image must have."""
        return frozenset()

    def unfit(self, intent: Intent) -> str:
        """Why it cannot provide an Intent's network, as a clause; empty if it can."""
        return ""


@cache
def addons() -> Mapping[str, Addon]:
    """The add-on of each topology whose pod network a cluster can provide."""
    return {
        topology: addon for topology, addon in network_addons().items() if isinstance(addon, Addon)
    }


FLANNEL_CONFIG = "/etc/cni/net.d/10-flannel.conflist"
BRIDGE_CONFIG = "/etc/cni/net.d/10-hybridlab.conflist"
POD_NETWORK_UNIT = "hybridlab-pods.service"


def load_masquerade(machine: MachineIntent) -> Operations:
    """Load the masquerading table at every start of the machine."""
    assert machine.translation is not None, "a node that runs pods"
    rules = WriteFile(POD_RULES, masquerade(machine.translation))
    unit = unit_file(
        POD_NETWORK_UNIT, "Masquerading of the pods' packets", *_masquerading_unit(machine)
    )
    return (rules, unit, SystemdUnit(POD_NETWORK_UNIT, inputs_digest((rules, unit))))


def masquerade(translation: Translation) -> str:
    """Masquerade pods' packets to all destinations except those that the Intent exempts."""
    kept = ", ".join((*translation.not_masqueraded, "224.0.0.0/4"))
    return f"""table ip {POD_TABLE} {{
}}
delete table ip {POD_TABLE}
table ip {POD_TABLE} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {translation.local_cidr} ip daddr != {{ {kept} }} masquerade fully-random
  }}
}}
"""


def _masquerading_unit(machine: MachineIntent) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The unit's ordering and the lines of its section.

    The bridge is created before the first pod, and then gets its MTU: bridge netfilter takes 1500
    for a bridge that is created with another one, as the CNI plugin creates it.

    A node that answers ARP for its pods does so for every address that it routes elsewhere, because
    pod addresses are known only at run time.
    """
    lines: list[str] = []
    if machine.bridge:
        name, mtu = machine.bridge.name, machine.bridge.mtu
        lines.append(f"ExecStart=-/usr/sbin/ip link add name {name} type bridge")
        lines.append(f"ExecStart=/usr/sbin/ip link set dev {name} mtu {mtu}")
    devices = tuple(dict.fromkeys(proxy.device for proxy in machine.proxies))
    lines += [
        f"ExecStart=/usr/sbin/sysctl -q -w net.ipv4.conf.{device}.proxy_arp=1 "
        f"net.ipv4.neigh.{device}.proxy_delay=0"
        for device in devices
    ]
    after = "network-pre.target" + (" hybridlab-network.service" if devices else "")
    order = ("Before=kubelet.service", f"After={after}")
    return order, (*run_once(f"/usr/sbin/nft -f {POD_RULES}"), *lines)
