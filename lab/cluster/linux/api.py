"""The cluster's API through kubectl on a control plane; waits for nodes, add-ons and DNS."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError
from lab.cluster import dns, signatures
from lab.cluster.cluster import API_PORT, Cluster, ClusterNode
from lab.cluster.documents import Document
from lab.cluster.linux.operations import ClusterSite, command_failure
from lab.remote.shell import Completed

ADMIN = "/etc/kubernetes/admin.conf"
CALL_SECONDS = 60.0
"""For one question, by a program of 60 MB that starts each time."""
AGAIN_SECONDS = 1.0
_LASTING = ("forbidden", "is invalid", "error validating", "NotFound", "Conflict")
"""Words of answers that no other try will change."""


class ClusterApi:
    """The API of one cluster, through the first control plane."""

    def __init__(self, cluster: Cluster, site: ClusterSite) -> None:
        self._name = cluster.control_planes()[0].name
        self._site = site

    def ready(self, deadline: Deadline, node: ClusterNode | None = None) -> None:
        """Wait until the API says that it is ready, etcd behind it included.

        Parameters
        ----------
        deadline
            For that.
        node
            The control plane whose own API server is meant; None for any, by the cluster's address.

        Raises
        ------
        DeadlineError
            With what it said last.

        """
        name = node.name if node else self._name
        own = (f"--server=https://{node.address}:{API_PORT}",) if node else ()
        deadline.wait(
            f"waiting for the API server on '{name}'",
            lambda: self._said((*own, "get", "--raw", "/readyz"), deadline),
            until=lambda said: said.strip() == "ok",
            every=AGAIN_SECONDS,
            hint=f"see its log: 'crictl ps -a' or 'journalctl' on '{name}'",
        )

    def apply(self, documents: Sequence[Document], deadline: Deadline) -> None:
        """Have the documents in the cluster as they are here; what another has changed too."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        words = ("apply", "--server-side", "--force-conflicts", "--field-manager=hybridlab")
        self.ask((*words, "-f", "-"), deadline, json.dumps(items).encode())

    def nodes(self, deadline: Deadline) -> Mapping[str, Mapping[str, Any]]:
        """Every Node object by its name."""
        found = json.loads(self.ask(("get", "nodes", "-o", "json"), deadline))
        return {one["metadata"]["name"]: one for one in found["items"]}

    def registered(self, name: str, deadline: Deadline) -> bool:
        """Whether the cluster has a Node of that name."""
        asked = ("get", "node", name, "--ignore-not-found", "-o", "name")
        return bool(self.ask(asked, deadline).strip())

    def delete_node(self, name: str, deadline: Deadline) -> None:
        """The cluster has no Node of that name."""
        self.ask(("delete", "node", name, "--ignore-not-found", "--wait=true"), deadline)

    def set_pod_cidr(self, node: ClusterNode, deadline: Deadline) -> None:
        """Give the node, once it has registered, its part of the pod network.

        Raises
        ------
        BrokenError
            When it has another one, which nobody can change.
        DeadlineError
            When it does not register in time.

        """
        doing = f"giving node '{node.name}' the pod addresses {node.pod_cidr}"
        asked = ("get", "node", node.name, "--ignore-not-found", "-o", "json")
        seen = deadline.wait(
            f"waiting for node '{node.name}' to register",
            lambda: self.ask(asked, deadline).strip(),
            every=AGAIN_SECONDS,
            hint=f"see 'journalctl -u kubelet' on '{node.name}'",
        )
        has = json.loads(seen)["spec"].get("podCIDR")
        if has == node.pod_cidr:
            return
        if has:
            raise BrokenError(doing, f"it has {has}", f"kubectl delete node {node.name}; lab up")
        spec = {"spec": {"podCIDR": node.pod_cidr, "podCIDRs": [node.pod_cidr]}}
        patch = json.dumps(spec, separators=(",", ":"))
        self.ask(("patch", "node", node.name, "--type=merge", "-p", patch), deadline)

    def ask(self, words: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> str:
        """What kubectl answers; asked again while the API cannot be reached or is not well.

        Raises
        ------
        BrokenError
            When the answer is a refusal that will not change.
        DeadlineError
            With what was answered last.

        """
        doing = f"running 'kubectl {' '.join(words[:3])}' on '{self._name}'"
        done = deadline.wait(
            doing,
            lambda: self._once(words, deadline, stdin),
            until=lambda one: one.code == 0 or any(word in one.stderr for word in _LASTING),
            every=AGAIN_SECONDS,
        )
        if done.code:
            raise command_failure(doing, done.code, done.stderr)
        return done.stdout

    def _said(self, words: Sequence[str], deadline: Deadline) -> str:
        done = self._once(words, deadline)
        return done.stdout if done.code == 0 else (done.stderr.strip() or f"exit code {done.code}")

    def _once(self, words: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        seconds = min(deadline.left(), self._site.deadline(CALL_SECONDS).left()) or 1.0
        timeout = f"--request-timeout={max(1, int(seconds))}s"
        command = ("kubectl", f"--kubeconfig={ADMIN}", timeout, *words)
        return self._site.shell(self._name).run(command, Deadline(seconds), stdin)


READY_SECONDS = 300.0
"""For all nodes together, on hardware, once all have joined."""
DNS_SECONDS = 240.0
LOG_SECONDS = 20.0
_LOG_LINES = 60
_SHOWN_LINES = 8


def node_condition(node: Mapping[str, Any] | None) -> str:
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


def unready_nodes(nodes: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> dict[str, str]:
    """Those of the names that are not Ready, and why. Pure."""
    said = {name: node_condition(nodes.get(name)) for name in names}
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
        last = unready_nodes(api.nodes(deadline), wanted)
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
        raise _explain_unready(cluster, site, last, deadline) from error


def daemon_set_rollout(found: Sequence[Mapping[str, Any]], name: str) -> dict[str, str]:
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
        one["spec"].get("nodeName", one["metadata"]["name"]): _pod_state(one)
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
        lambda: daemon_set_rollout(json.loads(api.ask(asked, deadline))["items"], name),
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
        lambda: _pod_states(api.ask(("get", "pods", *label, "-o", "json"), deadline)),
        until=lambda pods: sum(said == "ready" for said in pods.values()) >= wanted,
        every=AGAIN_SECONDS,
        hint="kubectl -n kube-system describe pods -l k8s-app=kube-dns",
    )


def _pod_states(answer: str) -> dict[str, str]:
    """Each pod by its name: ``"ready"``, or why not."""
    return {pod["metadata"]["name"]: _pod_state(pod) for pod in json.loads(answer)["items"]}


def _pod_state(pod: Mapping[str, Any]) -> str:
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


def _explain_unready(
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
        return f"its log is not available: {error.happened}"


def cluster_ailments(cluster: Cluster, site: ClusterSite, deadline: Deadline) -> Mapping[str, str]:
    """Each node that is not Ready and why; the first control plane where no API answers.

    Never raises.
    """
    try:
        nodes = ClusterApi(cluster, site).nodes(deadline)
    except LabError as error:
        return {cluster.control_planes()[0].name: f"the API does not answer: {error.happened}"}
    wanted = [node.name for node in cluster.nodes if node.pod_cidr]
    return unready_nodes(nodes, wanted)
