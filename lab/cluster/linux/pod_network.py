"""The part of the pod network that a Linux node itself provides. Pure.

A bridge for the node's pod CIDR, and the table that masquerades what the Intent says, for network
add-ons that do not provide both themselves.
"""

from __future__ import annotations

from lab.cluster.linux.operations import (
    Operations,
    SystemdUnit,
    WriteFile,
    inputs_digest,
    run_once,
    unit_file,
)
from lab.topology.intent import MachineIntent, Translation

FLANNEL_CONFIG = "/etc/cni/net.d/10-flannel.conflist"
BRIDGE_CONFIG = "/etc/cni/net.d/10-hybridlab.conflist"
TABLE = "hybridlab-pods"
RULES = "/etc/hybridlab/pods.nft"
"""Replaces the table, whatever exists."""
_POD_NETWORK_UNIT = "hybridlab-pods.service"


def masqueraded(machine: MachineIntent) -> Operations:
    """Load the masquerading table at every start of the machine."""
    assert machine.translation is not None, "a node that runs pods"
    rules = WriteFile(RULES, masquerade(machine.translation))
    unit = unit_file(_POD_NETWORK_UNIT, "Masquerading of the pods' packets", *_service(machine))
    return (rules, unit, SystemdUnit(_POD_NETWORK_UNIT, inputs_digest((rules, unit))))


def masquerade(translation: Translation) -> str:
    """Masquerade pods' packets to all destinations except those that the Intent exempts."""
    kept = ", ".join((*translation.not_masqueraded, "224.0.0.0/4"))
    return f"""table ip {TABLE} {{
}}
delete table ip {TABLE}
table ip {TABLE} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {translation.local_cidr} ip daddr != {{ {kept} }} masquerade fully-random
  }}
}}
"""


def _service(machine: MachineIntent) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The unit's ordering and the lines of its section.

    A node that answers ARP for its pods does so for every address that it routes elsewhere, because
    pod addresses are known only at run time. The bridge is created before the first pod.
    """
    answering: list[str] = []
    for device in dict.fromkeys(one.device for one in machine.proxies):
        if machine.bridge and device == machine.bridge.name:
            made = f"link add name {device} mtu {machine.bridge.mtu} type bridge"
            answering.append(f"ExecStart=-/usr/sbin/ip {made}")
        answering.append(
            f"ExecStart=/usr/sbin/sysctl -q -w net.ipv4.conf.{device}.proxy_arp=1 "
            f"net.ipv4.neigh.{device}.proxy_delay=0"
        )
    after = "network-pre.target" + (" hybridlab-network.service" if answering else "")
    order = ("Before=kubelet.service", f"After={after}")
    return order, (*run_once(f"/usr/sbin/nft -f {RULES}"), *answering)
