"""Which labs can be had of virtual machines at all, whatever the hypervisors. Pure."""

from __future__ import annotations

from lab._errors import PreflightError
from lab.cluster import flannel
from lab.topology.intent import Intent

_ROUTED = frozenset({"upstream-tor", "hard-way"})
"""Topologies whose clusters need no network add-on: the nodes' bridges and the router do."""
WITH_CLUSTER = flannel.TOPOLOGIES | _ROUTED
"""Topologies that a real cluster's pod network can be made for."""


def unfit(intent: Intent) -> str:
    """Why there can be no such lab on virtual machines; empty where there can.

    Daemons beside Kubernetes are started by the embedded provider alone.
    """
    run = dict.fromkeys(daemon.name for one in intent.machines for daemon in one.daemons)
    if run:
        return (
            f"topology '{intent.topology}' has {', '.join(run)} on its machines, which only the "
            "embedded provider starts so far"
        )
    if intent.kubernetes and intent.topology not in WITH_CLUSTER:
        return (
            f"no bundle has the network add-on of topology '{intent.topology}', "
            "so there is no Kubernetes cluster of it yet"
        )
    return ""


def require_fit(intent: Intent) -> None:
    """Refuse what cannot be had.

    Raises
    ------
    PreflightError
        Saying why, and what can be had instead.

    """
    why = unfit(intent)
    if why:
        daemons = any(one.daemons for one in intent.machines)
        without = "" if daemons else "; or '--pods namespaces' for a lab without Kubernetes"
        raise PreflightError(
            f"checking scenario '{intent.scenario}' for virtual machines",
            why,
            f"'--provider netns' brings it up in network namespaces{without}",
        )
