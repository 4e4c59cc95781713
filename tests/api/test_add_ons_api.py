"""Network add-ons of every topology on a real API server, which takes each of its own kinds.

Nothing is kept: they are asked for as a dry run, in which a field that the server does not know
is an error.
"""

from typing import Any

import pytest

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.lifecycle.compilation import compile_scenario
from lab.machines.addons.addon import addons
from lab.machines.bundle.manifest import (
    Blob,
    ContainerImage,
    Manifest,
    add_on_images,
    add_on_versions,
)
from lab.machines.cluster.api import MERGE, RefusedError
from lab.machines.cluster.cluster import plan_cluster
from lab.machines.cluster.linux.bring_up import addon_waves
from lab.scenario.loader import find, load, shipped

pytestmark = pytest.mark.slow

SECONDS = 30.0
STRICT = {"dryRun": "All", "fieldValidation": "Strict"}
REPOSITORIES = (
    "registry.k8s.io/coredns/coredns",
    "ghcr.io/flannel-io/flannel",
    *(image.rpartition(":")[0] for name in add_on_versions() for image in add_on_images(name)),
)
BUNDLE = Manifest(
    (("kubernetes", "1.36.3"),),
    (),
    tuple(
        ContainerImage(f"{name}:v1", "linux", None, Blob("0" * 64, 1), Blob("0" * 64, 1), (), "")
        for name in REPOSITORIES
    ),
)


def documents(scenario: str) -> list[Any]:
    """Those of Kubernetes' own kinds."""
    intent = compile_scenario(scenario, pods="kubernetes", real=True).intent
    waves = addon_waves(plan_cluster("drill", intent, BUNDLE), intent, BUNDLE)
    own = ("v1", "apps/v1", "rbac.authorization.k8s.io/v1")
    made = [document for wave in waves for document in wave.documents]
    return [renamed(one) for one in made if one["apiVersion"] in own]


def renamed(document: Any) -> Any:
    """With names that a dry run can have: of no node that is there, in a namespace that is."""
    own = dict(document["metadata"])
    if document["kind"] == "Node":
        own["name"] = f"another-{own['name']}"
    if "namespace" in own:
        own["namespace"] = "default"
    return {**document, "metadata": own}


SCENARIOS = [name for name in shipped() if load(find(name)).topology.kind in addons()]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_server_takes_every_document_of_its_own_kinds(api, scenario):
    for document in documents(scenario):
        if document["metadata"]["name"] != "kube-dns":  # of another range of Services
            path = api._path(document, Deadline(SECONDS))
            place = path.rpartition("/")[0]
            api.ask("POST", place, Deadline(SECONDS), body=document, query=STRICT)


def test_a_field_that_no_kind_has_is_refused(api):
    bad = {"metadata": {"name": "x"}, "data": {}, "dta": {}}
    with pytest.raises(RefusedError, match="unknown field"):
        api.ask(
            "POST",
            "/api/v1/namespaces/default/configmaps",
            Deadline(SECONDS),
            body=bad,
            query=STRICT,
        )


def test_an_object_is_applied_over_what_others_have_made_of_it(api):
    place = "/api/v1/namespaces/default/configmaps/mine"
    metadata = {"name": "mine", "namespace": "default"}
    mine = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}
    for _ in range(2):
        api.apply(mine, Deadline(SECONDS))
    api.ask("PATCH", place, Deadline(SECONDS), {"data": {"a": "2", "b": "3"}}, content=MERGE)
    api.apply(mine, Deadline(SECONDS))
    assert api.ask("GET", place, Deadline(SECONDS))["data"] == {"a": "1", "b": "3"}
    api.remove(place, Deadline(SECONDS))


@pytest.mark.parametrize(
    ("change", "words"),
    [({"kind": "Nothing"}, "has no kind 'Nothing' yet"), ({"apiVersion": "no.such/v1"}, "no")],
)
def test_a_kind_that_is_not_there_yet_is_waited_for(api, change, words):
    one = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}} | change
    with pytest.raises(DeadlineError, match=words):
        api.apply(one, Deadline(1.0))
