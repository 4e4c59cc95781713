"""The rights that probing a cluster takes, as data, as RBAC objects, and compared. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lab.machines.attached.record import ProbeTerms


@dataclass(frozen=True, slots=True)
class Right:
    """One right."""

    resource: str
    """``pods``, or with a subresource ``pods/exec``."""
    verbs: tuple[str, ...]
    group: str = ""
    purpose: str = ""
    """What is not known without it; empty if nothing works without it."""


_NAMESPACED = (
    Right("pods", ("create", "delete", "get", "list", "watch")),
    Right("pods/exec", ("create", "get")),
    Right("services", ("create", "delete", "get", "list")),
    Right("endpointslices", ("list", "watch"), "discovery.k8s.io"),
    Right("serviceaccounts", ("list", "watch")),
    Right("events", ("list",), purpose="why a pod does not start"),
    Right("resourcequotas", ("list",), purpose="which quota refuses a pod"),
    Right("networkpolicies", ("list",), "networking.k8s.io", "policies that select the pods"),
)
OWN_NAMESPACE = Right("namespaces", ("create", "delete", "get", "list", "watch"))
_CLUSTER = (
    Right("nodes", ("get", "list")),
    Right("daemonsets", ("list",), "apps", "the network plug-in"),
    Right("services", ("list",), purpose="the DNS Service"),
    Right("endpointslices", ("list",), "discovery.k8s.io", "the pods behind DNS"),
    Right("pods", ("list",), purpose="the state of kube-proxy, CNI and DNS"),
    Right("pods/log", ("get",), purpose="the logs of kube-proxy, CNI and DNS"),
    Right("configmaps", ("get",), purpose="ranges, and kube-proxy's mode"),
    Right("servicecidrs", ("list",), "networking.k8s.io", "the Service range"),
    Right("ippools", ("list",), "crd.projectcalico.org", "Calico's pools"),
)


def namespaced_rights() -> tuple[Right, ...]:
    """The rights in the namespace of the probe pods."""
    return _NAMESPACED


def cluster_rights(terms: ProbeTerms) -> tuple[Right, ...]:
    """The rights in the whole cluster."""
    return _CLUSTER if terms.namespace else (OWN_NAMESPACE, *_CLUSTER)


def make_roles(terms: ProbeTerms) -> tuple[Mapping[str, Any], ...]:
    """The ClusterRole, and the Role in the namespace if one is named.

    Without one the lab makes a namespace, so that the rights in it are the cluster's.
    """
    name = "hybridlab-attach"
    wide = cluster_rights(terms) if terms.namespace else (*cluster_rights(terms), *_NAMESPACED)
    roles: list[Mapping[str, Any]] = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": _rules(wide),
        }
    ]
    if terms.namespace:
        roles.append(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": {"name": name, "namespace": terms.namespace},
                "rules": _rules(_NAMESPACED),
            }
        )
    return tuple(roles)


def _rules(rights: Iterable[Right]) -> list[dict[str, list[str]]]:
    verbs: dict[tuple[str, str], dict[str, None]] = {}
    for right in rights:
        verbs.setdefault((right.group, right.resource), {}).update(dict.fromkeys(right.verbs))
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": [*each]}
        for (group, resource), each in verbs.items()
    ]


@dataclass(frozen=True, slots=True)
class RightReview:
    """The question whether the user has one right."""

    right: Right
    words: str
    """``create pods in namespace 'x'``."""
    request: Mapping[str, Any]
    """The SelfSubjectAccessReview."""


def make_reviews(terms: ProbeTerms, namespace: str) -> Iterator[RightReview]:
    """The questions whether the user has each right that nothing works without."""
    for rights, space in ((cluster_rights(terms), ""), (_NAMESPACED, namespace)):
        for right in (right for right in rights if not right.purpose):
            resource, _, part = right.resource.partition("/")
            place = f" in namespace '{space}'" if space else ""
            attributes = {"resource": resource, "group": right.group}
            attributes |= {"subresource": part} if part else {}
            attributes |= {"namespace": space} if space else {}
            for verb in right.verbs:
                request = make_review({"verb": verb, **attributes})
                yield RightReview(right, f"{verb} {right.resource}{place}", request)


def make_review(attributes: Mapping[str, str]) -> Mapping[str, Any]:
    """A SelfSubjectAccessReview."""
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": dict(attributes)},
    }
