"""Waiting for a cluster: every node Ready, and its DNS answering."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError
from lab.cluster import dns, signatures
from lab.cluster.cluster import Cluster
from lab.cluster.linux.api import AGAIN_SECONDS, ClusterApi
from lab.cluster.linux.site import ClusterSite

READY_SECONDS = 300.0
"""For all nodes together, on hardware, once all have joined."""
DNS_SECONDS = 240.0
LOG_SECONDS = 20.0
_LOG_LINES = 60
_SHOWN_LINES = 8


def condition(node: Mapping[str, Any] | None) -> str:
    """``"Ready"``, or what the node says of why it is not. Pure."""
    if node is None:
        return "not registered"
    found = {one["type"]: one for one in node["status"].get("conditions", ())}
    ready = found.get("Ready")
    if ready is None:
        return "has no condition Ready yet"
    if ready["status"] == "True":
        return "Ready"
    return f"{ready.get('reason', 'NotReady')}: {ready.get('message', '')}".strip()


def unready(nodes: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> dict[str, str]:
    """Those of the names that are not Ready, and why. Pure."""
    said = {name: condition(nodes.get(name)) for name in names}
    return {name: why for name, why in said.items() if why != "Ready"}


def wait_for_nodes(
    cluster: Cluster, site: ClusterSite, names: Iterable[str], deadline: Deadline
) -> None:
    """Wait until the nodes are Ready.

    Raises
    ------
    DeadlineError
        Each node with its last condition, its kubelet's last lines, and what they mean.

    """
    api = ClusterApi(cluster, site)
    wanted = tuple(names)
    last: dict[str, str] = {}

    def look() -> dict[str, str]:
        nonlocal last
        last = unready(api.nodes(deadline), wanted)
        return last

    try:
        deadline.wait(
            "waiting for the nodes to be Ready",
            look,
            until=lambda missing: not missing,
            every=AGAIN_SECONDS,
        )
    except DeadlineError as error:
        if not last:  # the API itself was never heard
            raise
        raise _explained(cluster, site, last, deadline) from error


def rollout(found: Sequence[Mapping[str, Any]], name: str) -> dict[str, str]:
    """Where a DaemonSet does not run yet, and why; of the objects in its namespace. Pure."""
    own = [one for one in found if one["kind"] == "DaemonSet" and one["metadata"]["name"] == name]
    if not own:
        return {name: "not created yet"}
    status = own[0].get("status", {})
    wanted = status.get("desiredNumberScheduled", 0)
    if status.get("observedGeneration", 0) < own[0]["metadata"]["generation"] or not wanted:
        return {name: "not scheduled yet"}
    if min(status.get("updatedNumberScheduled", 0), status.get("numberReady", 0)) >= wanted:
        return {}
    pods = {
        one["spec"].get("nodeName", one["metadata"]["name"]): _state(one)
        for one in found
        if any(owner["name"] == name for owner in one["metadata"].get("ownerReferences", ()))
    }
    waiting = {node: state for node, state in pods.items() if state != "ready"}
    return waiting or {name: f"ready on {status.get('numberReady', 0)} of {wanted} nodes"}


def wait_for_daemon_set(
    cluster: Cluster, site: ClusterSite, daemon_set: tuple[str, str], deadline: Deadline
) -> None:
    """Wait until a DaemonSet, by namespace and name, is ready on every node that it is meant for.

    Raises
    ------
    DeadlineError
        With the nodes where it is not, and what its pods said last.

    """
    api = ClusterApi(cluster, site)
    namespace, name = daemon_set
    asked = ("get", "daemonsets,pods", "-n", namespace, "-o", "json")
    deadline.wait(
        f"waiting for DaemonSet '{name}' on every node",
        lambda: rollout(json.loads(api.ask(asked, deadline))["items"], name),
        until=lambda missing: not missing,
        every=AGAIN_SECONDS,
        hint=f"kubectl -n {namespace} describe pods",
    )


def wait_for_dns(cluster: Cluster, site: ClusterSite, deadline: Deadline) -> None:
    """Wait until as many CoreDNS as there should be are ready, and so answer.

    Raises
    ------
    DeadlineError
        With what the Deployment and its pods said last.

    """
    api = ClusterApi(cluster, site)
    wanted = dns.replicas(cluster)
    label = ("-n", dns.NAMESPACE, "-l", "k8s-app=kube-dns")
    deadline.wait(
        "waiting for the cluster's DNS",
        lambda: _pods(api.ask(("get", "pods", *label, "-o", "json"), deadline)),
        until=lambda pods: sum(said == "ready" for said in pods.values()) >= wanted,
        every=AGAIN_SECONDS,
        hint="kubectl -n kube-system describe pods -l k8s-app=kube-dns",
    )


def _pods(answer: str) -> dict[str, str]:
    """Each pod by its name: ``"ready"``, or why not."""
    return {pod["metadata"]["name"]: _state(pod) for pod in json.loads(answer)["items"]}


def _state(pod: Mapping[str, Any]) -> str:
    status = pod["status"]
    states = {one["type"]: one for one in status.get("conditions", ())}
    if states.get("Ready", {}).get("status") == "True":
        return "ready"
    waiting = [
        container["state"]["waiting"].get("reason", "")
        for container in status.get("containerStatuses", ())
        if "waiting" in container.get("state", {})
    ]
    blocked = states.get("PodScheduled", {}).get("message", "")
    return ", ".join(filter(None, waiting)) or blocked or str(status.get("phase", "unknown"))


def _explained(
    cluster: Cluster, site: ClusterSite, last: Mapping[str, str], deadline: Deadline
) -> DeadlineError:
    systems = {node.name: node.os for node in cluster.nodes}
    parts: list[str] = []
    hints: list[str] = []
    for name, why in last.items():
        log = _kubelet_log(site, name) if systems[name] == "linux" else ""
        known = signatures.match((why, *log.splitlines()))
        tail = [line.strip() for line in log.splitlines() if line.strip()][-_SHOWN_LINES:]
        part = f"'{name}': {why}"
        part += f"; {known[0].cause}" if known else ""
        part += "".join(f"\n    {line}" for line in tail)
        parts.append(part)
        hints += [known[0].hint] if known else []
    hint = hints[0] if hints else f"journalctl -u kubelet on '{next(iter(last))}'"
    seconds = f"not Ready within {deadline.seconds:g} s"
    return DeadlineError(
        "waiting for the nodes to be Ready", f"{seconds}: {'; '.join(parts)}", hint
    )


def _kubelet_log(site: ClusterSite, name: str) -> str:
    command = ("journalctl", "--no-pager", "-o", "cat", "-u", "kubelet", "-n", str(_LOG_LINES))
    try:
        return site.shell(name).run(command, site.deadline(LOG_SECONDS)).stdout
    except LabError as error:
        return f"its log cannot be had: {error.happened}"
