"""Every document of Kubernetes' own kinds has nothing in it that the kind does not know.

Each is read into the official client's model of it and written again: what the model does not know,
or has in another form, does not come back.
"""

from __future__ import annotations

from typing import Any

import pytest
from linux_clusters import addon_documents, case, linux_only, of_every_topology

from lab.cluster.probe_manifests import ObjectOwner, manifests
from lab.lifecycle.compilation import compile_scenario

OF_THE_ADD_ONS = ("operator.tigera.io/v1", "projectcalico.org/v3", "crd.projectcalico.org/v1")


def returned(document: Any) -> Any:
    """What is left of a document that went through its kind's model."""
    from kubernetes import client  # noqa: PLC0415  slow

    api = client.ApiClient()
    model = getattr(client, f"V1{document['kind']}")
    read = api._ApiClient__deserialize(document, model)  # type: ignore[attr-defined]
    return api.sanitize_for_serialization(read)


@pytest.mark.parametrize("windows", [True, False])
@pytest.mark.parametrize("scenario", [*of_every_topology(), "calico-bgp-tor"])
def test_nothing_in_a_document_is_unknown_to_its_kind(scenario, windows):
    one = case(scenario) if windows else linux_only(case(scenario))
    plain = [
        document
        for document in addon_documents(one.cluster, one.intent, one.manifest)
        if document["apiVersion"] not in OF_THE_ADD_ONS
    ]
    assert len(plain) > 4
    for document in plain:
        assert returned(document) == document, document["metadata"]["name"]


@pytest.mark.parametrize("scenario", ["overlay", "services", "kubeinit"])
def test_nothing_in_a_probe_pod_or_service_is_unknown_to_its_kind(scenario):
    owner, images = ObjectOwner("mine", "abc"), {"linux": "agnhost:l", "windows": "agnhost:w"}
    made = manifests(compile_scenario(scenario).intent, owner, images)
    for kind, documents in (("Pod", made.pods), ("Service", made.services)):
        assert documents
        for document in documents:
            assert document["kind"] == kind
            assert returned(document) == document, document["metadata"]["name"]


def test_a_misspelt_key_is_seen():
    bad = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"nmae": "x"}}
    assert returned(bad) != bad
