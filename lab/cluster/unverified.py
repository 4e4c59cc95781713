"""Topologies that clusters are made for as documented, and what of them nobody has run. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lab.cluster import calico
from lab.topology.intent import Intent

_NEVER = "no cluster of it was ever brought up by us"
UNVERIFIED: Mapping[str, str] = {
    **dict.fromkeys(
        calico.TOPOLOGIES,
        "Calico's operator, which Windows nodes ask for; without it, clusters of Linux nodes were "
        "brought up by us",
    ),
    "ovn": f"ovn-kubernetes' documents are written as its templates have them; {_NEVER}",
}
"""Topology, and what of it was made without ever having been run."""


def unverified(intent: Intent) -> str:
    """What nobody has tried of clusters such as an Intent asks for; empty where all was."""
    if intent.kubernetes is None:
        return ""
    windows = any(machine.os == "windows" and machine.kubelet for machine in intent.machines)
    if intent.topology in calico.TOPOLOGIES and not windows:
        return ""
    why = UNVERIFIED.get(intent.topology)
    return f"unverified: {why}" if why else ""
