"""The cluster's API, asked by kubectl on a control plane: it is there as soon as the API is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.cluster.cluster import API_PORT, Cluster, ClusterNode
from lab.cluster.documents import Document
from lab.cluster.linux.doing import failure
from lab.cluster.linux.site import ClusterSite
from lab.remote.shell import Completed

ADMIN = "/etc/kubernetes/admin.conf"
CALL_SECONDS = 60.0
"""For one question, by a program of 60 MB that starts anew each time."""
AGAIN_SECONDS = 1.0
_LASTING = ("forbidden", "is invalid", "error validating", "NotFound", "Conflict")
"""Words of answers that no other try will change."""


class ClusterApi:
    """The API of one cluster, through the first control plane.

    Parameters
    ----------
    cluster
        The cluster.
    site
        Where its machines are reached.

    """

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
            raise failure(doing, done.code, done.stderr)
        return done.stdout

    def _said(self, words: Sequence[str], deadline: Deadline) -> str:
        done = self._once(words, deadline)
        return done.stdout if done.code == 0 else (done.stderr.strip() or f"exit code {done.code}")

    def _once(self, words: Sequence[str], deadline: Deadline, stdin: bytes = b"") -> Completed:
        seconds = min(deadline.left(), self._site.deadline(CALL_SECONDS).left()) or 1.0
        timeout = f"--request-timeout={max(1, int(seconds))}s"
        command = ("kubectl", f"--kubeconfig={ADMIN}", timeout, *words)
        return self._site.shell(self._name).run(command, Deadline(seconds), stdin)
