"""Topologies that clusters are made for as documented, and what of them nobody has run. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lab.topology.intent import Intent

_NEVER = "no cluster of it was ever brought up by us"
UNVERIFIED: Mapping[str, str] = {
    "calico-bgp": f"Calico's operator and its BGP settings are written as documented; {_NEVER}",
    "calico-vxlan": f"Calico's operator and its VXLAN settings are written as documented; {_NEVER}",
    "ovn": f"ovn-kubernetes' documents are written as its templates have them; {_NEVER}",
}
"""Topology, and what of it was made without ever having been run."""


def unverified(intent: Intent) -> str:
    """What nobody has tried of clusters such as an Intent asks for; empty where all was."""
    why = UNVERIFIED.get(intent.topology) if intent.kubernetes else None
    return f"unverified: {why}" if why else ""
