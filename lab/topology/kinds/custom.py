"""A pod network by somebody's own manifests: what it makes on the nodes is not known.

It is judged like an existing cluster's network that is not recognised: by what Kubernetes itself
promises. It exists on clusters alone.
"""

from __future__ import annotations

from dataclasses import replace

from lab.plan.plan import Plan, PlannedNode
from lab.topology import machines
from lab.topology.intent import Intent, MachineIntent
from lab.topology.registry import Topology, files, parameter

KIND = "custom"


def build(plan: Plan) -> Intent:
    """Plan to Intent: nodes without devices of a pod network."""
    nodes = tuple(_node(plan, node) for node in plan.nodes)
    made = machines.assemble(plan, nodes, machines.router(plan))
    assert made.kubernetes is not None, "every lab's cluster is planned"
    own = replace(
        made.kubernetes, manifests=parameter(plan, "manifests"), archives=parameter(plan, "images")
    )
    return replace(made, kubernetes=own, cni="")


def _node(plan: Plan, planned: PlannedNode) -> MachineIntent:
    unknown = machines.NodeNetwork(
        bridge=None, gateway_offset=0, mtu=plan.node_mtu, not_masqueraded=()
    )
    node = machines.node(plan, planned, unknown)
    own = {pod.port for pod in node.pods}
    return replace(
        node,
        routes=tuple(route for route in node.routes if route.destination == "default"),
        neighbours=tuple(entry for entry in node.neighbours if entry.device not in own),
    )


TOPOLOGY = Topology(
    kind=KIND,
    title="A network plug-in of your own, by its manifests; on a cluster only",
    parameters={
        "manifests": files(
            "Files with the plug-in's Kubernetes objects, relative to the scenario's",
            ("cni.yaml",),
        ),
        "images": files(
            "Archives (docker or OCI) of its container images, relative to the scenario's file; "
            "other images are pulled by the nodes",
            (),
        ),
    },
    build=build,
    limits=(),
    systems=frozenset({"linux"}),
)
