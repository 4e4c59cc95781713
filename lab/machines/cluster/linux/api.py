"""The API of a cluster under construction: joining's requests, and waits for readiness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, LabError
from lab.facts import signatures
from lab.machines.cluster import dns
from lab.machines.cluster.api import (
    MERGE,
    NODES,
    Api,
    Object,
    Objects,
    make_namespaced_path,
    wait_for,
)
from lab.machines.cluster.cluster import Cluster, ClusterNode
from lab.machines.cluster.documents import Document
from lab.machines.cluster.linux.operations import ClusterSite
from lab.topology.observed import DNS_SELECTOR, read_pod

ADMIN = "/etc/kubernetes/admin.conf"
READY_SECONDS = 300.0
"""Seconds for all nodes together, on hardware, once all have joined."""
DNS_SECONDS = 240.0
LOG_SECONDS = 20.0
_AGAIN_SECONDS = 1.0
_LOG_LINES = 60
_SHOWN_LINES = 8


class ClusterApi:
    """The API of one cluster, through its first control plane."""

    def __init__(self, cluster: Cluster, site: ClusterSite) -> None:
        self._cluster = cluster
        self._site = site
        self._plane = cluster.control_planes()[0].name

    def _open(self, deadline: Deadline) -> AbstractContextManager[Api]:
        return self._site.api(self._plane, deadline)

    def wait_until_ready(self, deadline: Deadline, node: ClusterNode | None = None) -> None:
        """Wait until the API of ``node`` (default: the first control plane) and its etcd are ready.

        Raises DeadlineError with its last answer.
        """
        name = node.name if node else self._plane

        def look() -> str:
            try:
                with self._site.api(name, deadline) as api:
                    return str(api.ask("GET", "/readyz", deadline).get("message"))
            except LabError as error:
                return error.happened

        deadline.wait(
            f"waiting for the API server on '{name}'",
            look,
            until=lambda answer: answer == "ok",
            every=_AGAIN_SECONDS,
            hint=f"check its log: 'crictl ps -a' or 'journalctl' on '{name}'",
        )

    def apply(self, documents: Sequence[Document], deadline: Deadline) -> None:
        """Bring the objects to this state, in this order, whoever else has changed them."""
        with self._open(deadline) as api:
            for document in documents:
                api.apply(document, deadline)

    def nodes(self, deadline: Deadline) -> Mapping[str, Object]:
        """Every Node by name."""
        with self._open(deadline) as api:
            return api.patiently(
                "listing the nodes", lambda: api.listing(NODES, deadline).objects, deadline
            )

    def registered(self, name: str, deadline: Deadline) -> bool:
        """Whether the cluster has a Node of this name."""
        return name in self.nodes(deadline)

    def wait_for_signature(self, token: str, deadline: Deadline) -> None:
        """Wait until the cluster has signed its ``cluster-info`` with a new join token.

        kubeadm needs the signature and looks again only every 5 s (``DiscoveryRetryInterval`` in
        ``cmd/kubeadm/app/constants``, 1.36).
        """
        key = f"jws-kubeconfig-{token.partition('.')[0]}"

        def missing(maps: Objects) -> str:
            signed = key in maps.get("cluster-info", {}).get("data", {})
            return "" if signed else "ConfigMap 'cluster-info' lacks its signature"

        with self._open(deadline) as api:
            path = make_namespaced_path("configmaps", "kube-public")
            wait_for(api, path, missing, "waiting for a new join token to be usable", deadline)

    def delete_node(self, name: str, deadline: Deadline) -> None:
        """Remove a Node and wait until it is gone; remove its pods.

        Kubernetes keeps the pods of a node that joins again soon, and their old readiness.
        """
        action = f"removing node '{name}'"
        with self._open(deadline) as api:
            api.patiently(action, lambda: api.remove(f"{NODES}/{name}", deadline), deadline)
            left = "it is still there"
            wait_for(api, NODES, lambda nodes: left if name in nodes else "", action, deadline)
            action = f"removing the pods of node '{name}'"
            api.patiently(action, lambda: _remove_pods(api, name, deadline), deadline)

    def set_pod_cidr(self, node: ClusterNode, deadline: Deadline) -> None:
        """Wait for the node to register, and set its pod CIDR.

        Raises BrokenError when it has another one, which cannot be changed; DeadlineError when it
        does not register in time.
        """
        action = f"setting the pod CIDR of node '{node.name}' to {node.pod_cidr}"
        spec = {"spec": {"podCIDR": node.pod_cidr, "podCIDRs": [node.pod_cidr]}}
        with self._open(deadline) as api:
            nodes = wait_for(
                api,
                NODES,
                lambda registered: "" if node.name in registered else "it is not registered",
                f"waiting for node '{node.name}' to register",
                deadline,
                hint=f"see 'journalctl -u kubelet' on '{node.name}'",
            )
            has = nodes[node.name].get("spec", {}).get("podCIDR")
            if has == node.pod_cidr:
                return
            if has:
                hint = f"kubectl delete node {node.name}; lab up"
                raise BrokenError(action, f"it has {has}", hint)
            path = f"{NODES}/{node.name}"
            api.patiently(
                action, lambda: api.ask("PATCH", path, deadline, spec, content=MERGE), deadline
            )

    def wait_for_nodes(self, names: Iterable[str], deadline: Deadline) -> None:
        """Wait until the nodes are Ready.

        Raises DeadlineError with each node's last condition, its kubelet's last log lines, and
        their meaning.
        """
        wanted, last = tuple(names), dict[str, str]()

        def missing(nodes: Objects) -> str:
            last.clear()
            last.update(unready_nodes(nodes, wanted))
            return _list_states(last)

        action = "waiting for the nodes to be Ready"
        try:
            with self._open(deadline) as api:
                wait_for(api, NODES, missing, action, deadline)
        except DeadlineError as error:
            if not last:  # the API never answered
                raise
            raise self._explain_unready(action, last, deadline) from error

    def wait_for_daemon_set(self, daemon_set: tuple[str, str], deadline: Deadline) -> None:
        """Wait until a DaemonSet, by namespace and name, is ready on every node it is scheduled to.

        Raises DeadlineError with the nodes where it is not, and its pods' last states.
        """
        namespace, name = daemon_set
        with self._open(deadline) as api:

            def missing(daemon_sets: Objects) -> str:
                pods = api.listing(make_namespaced_path("pods", namespace), deadline).objects
                return _list_states(daemon_set_rollout(daemon_sets.get(name), name, pods.values()))

            wait_for(
                api,
                make_namespaced_path("daemonsets", namespace),
                missing,
                f"waiting for DaemonSet '{name}' on every node",
                deadline,
                hint=f"kubectl -n {namespace} describe pods",
            )

    def wait_for_dns(self, deadline: Deadline) -> None:
        """Wait until the wanted number of CoreDNS pods is ready.

        Raises DeadlineError with the pods' last states.
        """
        wanted = dns.replicas(self._cluster)

        def missing(pods: Objects) -> str:
            states = {name: _pod_state(pod) for name, pod in pods.items()}
            ready = sum(state == "ready" for state in states.values())
            return (
                "" if ready >= wanted else f"{ready} of {wanted} are ready; {_list_states(states)}"
            )

        with self._open(deadline) as api:
            wait_for(
                api,
                make_namespaced_path("pods", dns.NAMESPACE),
                missing,
                "waiting for the cluster's DNS",
                deadline,
                query={"labelSelector": DNS_SELECTOR},
                hint="kubectl -n kube-system describe pods -l k8s-app=kube-dns",
            )

    def ailments(self, deadline: Deadline) -> Mapping[str, str]:
        """Each node that is not Ready and why; only the control plane if no API answers.

        Never raises.
        """
        try:
            nodes = self.nodes(deadline)
        except LabError as error:
            return {self._plane: f"the API does not answer: {error.happened}"}
        return unready_nodes(nodes, [node.name for node in self._cluster.nodes if node.pod_cidr])

    def _explain_unready(
        self, action: str, last: Mapping[str, str], deadline: Deadline
    ) -> DeadlineError:
        linux = {node.name for node in self._cluster.nodes if node.os == "linux"}
        parts, hints = [], []
        for name, why in last.items():
            log = self._kubelet_log(name) if name in linux else ""
            lines = [line.strip() for line in log.splitlines() if line.strip()]
            part = f"'{name}': {why}"
            for known in signatures.match((why, *log.splitlines()))[:1]:
                part += f"; {known.cause}"
                hints.append(known.hint)
            parts.append("\n    ".join((part, *lines[-_SHOWN_LINES:])))
        happened = f"not Ready within {deadline.seconds:g} s: {'; '.join(parts)}"
        return DeadlineError(
            action, happened, next(iter(hints), f"journalctl -u kubelet on '{next(iter(last))}'")
        )

    def _kubelet_log(self, name: str) -> str:
        command = ("journalctl", "--no-pager", "-o", "cat", "-u", "kubelet", "-n", str(_LOG_LINES))
        try:
            return self._site.query(name, command, LOG_SECONDS).stdout
        except LabError as error:
            return f"its log is not available: {error.happened}"


def node_condition(node: Mapping[str, Any] | None) -> str:
    """``"Ready"``, or why the node is not, from its condition. Pure."""
    if node is None:
        return "not registered"
    conditions = {
        condition["type"]: condition for condition in node.get("status", {}).get("conditions", ())
    }
    ready = conditions.get("Ready")
    if ready is None:
        return "has no condition Ready yet"
    if ready["status"] == "True":
        return "Ready"
    return f"{ready.get('reason', 'NotReady')}: {ready.get('message', '')}".strip()


def unready_nodes(nodes: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> dict[str, str]:
    """Those of ``names`` that are not Ready, and why. Pure."""
    conditions = {name: node_condition(nodes.get(name)) for name in names}
    return {name: why for name, why in conditions.items() if why != "Ready"}


def daemon_set_rollout(
    daemon_set: Mapping[str, Any] | None, name: str, pods: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """Where a DaemonSet does not run yet, and why; ``pods``: those of its namespace. Pure."""
    if daemon_set is None:
        return {name: "not created yet"}
    status = daemon_set.get("status", {})
    wanted = status.get("desiredNumberScheduled", 0)
    if status.get("observedGeneration", 0) < daemon_set["metadata"]["generation"] or not wanted:
        return {name: "not scheduled yet"}
    if min(status.get("updatedNumberScheduled", 0), status.get("numberReady", 0)) >= wanted:
        return {}
    states = {
        pod["spec"].get("nodeName", pod["metadata"]["name"]): _pod_state(pod)
        for pod in pods
        if any(owner["name"] == name for owner in pod["metadata"].get("ownerReferences", ()))
    }
    waiting = {node: state for node, state in states.items() if state != "ready"}
    return waiting or {name: f"ready on {status.get('numberReady', 0)} of {wanted} nodes"}


def _pod_state(pod: Mapping[str, Any]) -> str:
    """``"ready"``, or why not."""
    state = read_pod(pod)
    return "ready" if state.ready else state.trouble or state.phase


def _list_states(states: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}': {state}" for name, state in states.items())


def _remove_pods(api: Api, node: str, deadline: Deadline) -> None:
    for pod in api.listing("/api/v1/pods", deadline).objects.values():
        if pod["spec"].get("nodeName") == node:
            metadata = pod["metadata"]
            path = make_namespaced_path("pods", metadata["namespace"])
            api.remove(f"{path}/{metadata['name']}", deadline)
