"""Topologies that clusters are made for as documented, and that nobody has brought up. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lab.topology.intent import Intent

UNVERIFIED: Mapping[str, str] = {
    "calico-bgp": "Calico's operator and its BGP settings are written as documented",
    "calico-vxlan": "Calico's operator and its VXLAN settings are written as documented",
    "kubeinit": "the services node's HAProxy and DNS are made as golden files have them",
    "ovn": "ovn-kubernetes' documents are written as its templates have them",
    "upstream-vrrp": "keepalived, BIRD and the tunnel are units of each machine, as on namespaces",
}
"""Topology, and what of it was made without ever having been run."""


def unverified(intent: Intent) -> str:
    """What nobody has tried of the cluster that an Intent asks for; empty where it was."""
    why = UNVERIFIED.get(intent.topology) if intent.kubernetes else None
    return f"unverified: {why}; no cluster of it was ever brought up by us" if why else ""
