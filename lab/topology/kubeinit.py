"""Kubeinit's cluster: a VXLAN overlay over nodes on several hypervisors.

On Windows the overlay is sdnoverlay's, which is flannel's VXLAN, so the same limits hold. A
services node is in front of the cluster. Source: Deploying a Kubernetes cluster with Windows
containers support (Kubeinit's author, July 2022), and Kubeinit's own defaults.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.scenario.findings import Problem
from lab.scenario.scenario import Scenario
from lab.topology import overlay
from lab.topology.registry import Topology


def check(scenario: Scenario) -> Iterator[Problem]:
    """The overlay's checks, and what makes the cluster Kubeinit's: hypervisors, a services node."""
    yield from overlay.check(scenario)
    if scenario.hypervisors is None:
        what = "there are no hypervisors, and Kubeinit's nodes run on hypervisors"
        yield Problem(("topology", "kind"), what, 'write "hypervisors: {count: 2}"')
    if not any(group.role == "services" for group in scenario.nodes):
        what = "there is no services node, which Kubeinit puts in front of the cluster"
        yield Problem(("nodes",), what, 'give a Linux node "role: services"', at_key=True)


TOPOLOGY = Topology(
    kind="kubeinit",
    title="Kubeinit: a VXLAN overlay (sdnoverlay) over nodes on several hypervisors",
    parameters={key: overlay.TOPOLOGY.parameters[key] for key in ("vni", "port")},
    build=overlay.build,
    also=("k8s-libvirt", "sdnoverlay"),
    limits=overlay.TOPOLOGY.limits,
    check=check,
)
