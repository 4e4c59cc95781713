"""Network add-ons of every topology on a real API server, which takes each of its own kinds.

Nothing is kept: they are asked for as a dry run, in which a field that the server does not know
is an error.
"""

from __future__ import annotations

from typing import Any

import pytest

from lab._deadline import Deadline
from lab.cluster.addons import ovn_kubernetes
from lab.cluster.addons.calico import IMAGES, OPERATOR_IMAGES
from lab.cluster.api import Api, RefusedError
from lab.cluster.bundle.manifest import Blob, ContainerImage, Manifest
from lab.cluster.cluster import plan_cluster
from lab.cluster.linux.bring_up import addon_documents
from lab.lifecycle.compilation import compile_scenario

pytestmark = pytest.mark.slow

SECONDS = 30.0
STRICT = {"dryRun": "All", "fieldValidation": "Strict"}
REPOSITORIES = (
    "registry.k8s.io/coredns/coredns",
    "ghcr.io/flannel-io/flannel",
    ovn_kubernetes.IMAGE,
    *IMAGES,
    *OPERATOR_IMAGES,
)
BUNDLE = Manifest(
    (("kubernetes", "1.36.3"),),
    (),
    tuple(
        ContainerImage(f"{name}:v1", "linux", None, Blob("0" * 64, 1), Blob("0" * 64, 1), (), "")
        for name in REPOSITORIES
    ),
)
PLURALS = {
    "ClusterRole": "apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ConfigMap": "api/v1/{}configmaps",
    "DaemonSet": "apis/apps/v1/{}daemonsets",
    "Deployment": "apis/apps/v1/{}deployments",
    "Namespace": "api/v1/namespaces",
    "Node": "api/v1/nodes",
    "Service": "api/v1/{}services",
    "ServiceAccount": "api/v1/{}serviceaccounts",
}


def path(document: Any) -> str:
    namespace = document["metadata"].get("namespace")
    return "/" + PLURALS[document["kind"]].format(f"namespaces/{namespace}/" if namespace else "")


def documents(scenario: str) -> list[Any]:
    """Those of Kubernetes' own kinds."""
    intent = compile_scenario(scenario, pods="kubernetes", real=True).intent
    made = addon_documents(plan_cluster("drill", intent, BUNDLE), intent, BUNDLE)
    return [renamed(one) for one in made if one["kind"] in PLURALS]


def renamed(document: Any) -> Any:
    """With names that a dry run can have: of no node that is there, in a namespace that is."""
    own = dict(document["metadata"])
    if document["kind"] == "Node":
        own["name"] = f"another-{own['name']}"
    if "namespace" in own:
        own["namespace"] = "default"
    return {**document, "metadata": own}


@pytest.mark.parametrize("scenario", ["overlay", "calico-vxlan", "calico-bgp-tor", "ovn"])
def test_the_server_takes_every_document_of_its_own_kinds(api: Api, scenario: str) -> None:
    for document in documents(scenario):
        if document["metadata"]["name"] != "kube-dns":  # of another range of Services
            api.ask("POST", path(document), Deadline(SECONDS), body=document, query=STRICT)


def test_a_field_that_no_kind_has_is_refused(api: Api) -> None:
    bad = {"metadata": {"name": "x"}, "data": {}, "dta": {}}
    with pytest.raises(RefusedError, match="unknown field"):
        api.ask(
            "POST",
            "/api/v1/namespaces/default/configmaps",
            Deadline(SECONDS),
            body=bad,
            query=STRICT,
        )
