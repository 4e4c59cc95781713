"""What Calico is asked for, and its Felix: as nodes tell, and what is not as it should be."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from made_items import without

from lab.explain.check import LabLook
from lab.explain.explainer import Explainer
from lab.facts.difference import Difference
from lab.facts.linux import read_facts
from lab.facts.node import CalicoFacts, NodeFacts
from lab.lifecycle.compilation import compile_scenario
from lab.machines.addons.calico import node_pool, pool_spec
from lab.machines.checks.software import CalicoCheck
from lab.topology.intent import Intent
from lab.topology.path import Flow
from lab.topology.routing import bare
from lab.topology.subject import RouteSubject

NODES = ("master", "worker1", "worker2")


def intent_of(scenario: str) -> Intent:
    return compile_scenario(scenario, "linux", None, "kubernetes", real=True).intent


def pools(intent: Intent) -> dict[str, dict[str, Any]]:
    kubelets = {machine.name: machine.kubelet for machine in intent.machines if machine.kubelet}
    made = [node_pool(name, str(kubelet.pod_cidr)) for name, kubelet in kubelets.items()]
    return {ip_pool.name: pool_spec(intent.topology, ip_pool) for ip_pool in made}


def seen(intent: Intent, **changes: Any) -> dict[str, NodeFacts]:
    """All as it should be, as the control plane tells, but for the changes."""
    numbers = {
        name: str(intent.machine(name).speaker.asn) if intent.machine("router").speaker else ""  # type: ignore[union-attr]
        for name in NODES
    }
    calico = CalicoFacts(**{"felix": ("S",), "pools": pools(intent), "systems": numbers, **changes})
    plain = CalicoFacts(felix=("S", "S"))
    return {
        name: NodeFacts("linux", "", calico=calico if name == "master" else plain) for name in NODES
    }


def told(intent: Intent, observed: dict[str, NodeFacts]) -> list[Difference]:
    return list(CalicoCheck().in_lab(LabLook(intent, observed, "kubernetes")))


def test_what_the_api_and_ps_answer_is_read() -> None:
    items = [{"metadata": {"name": "of-master"}, "spec": {"cidr": "10.244.0.0/26"}}]
    answers = {
        "felix": "S runsv felix\nT calico-node -felix\n",
        "calico-pools": json.dumps({"items": items}),
        "calico-systems": "master    64513\nworker1   <none>\n",
    }
    said = "".join(f"\n@@@ {name}\n{text}\n@@@= 0\n" for name, text in answers.items())
    assert read_facts(f"{said}\n@@@ end\n", "").calico == CalicoFacts(
        ("S", "T"), {"of-master": {"cidr": "10.244.0.0/26"}}, {"master": "64513", "worker1": ""}
    )
    assert read_facts("\n@@@ address\n[]\n@@@= 0\n\n@@@ end\n", "").calico is None
    pools = "\n@@@ calico-pools\nnot JSON\n@@@= 0\n"
    broken = read_facts(f"\n@@@ felix\nS\n@@@= 0\n{pools}\n@@@ end\n", "")
    assert broken.calico is None
    assert not broken.knows("calico-pools")


@pytest.mark.parametrize("scenario", ["calico-vxlan", "calico-bgp", "calico-bgp-tor"])
def test_objects_as_intended_have_no_findings(scenario: str) -> None:
    intent = intent_of(scenario)
    assert told(intent, seen(intent)) == []
    assert told(replace(intent, kubernetes=None), seen(intent, pools={})) == []


@pytest.mark.parametrize(
    ("scenario", "wrong", "kind", "observed"),
    [
        ("calico-vxlan", {"natOutgoing": False}, "wrong-pool", "natOutgoing false"),
        ("calico-vxlan", {"vxlanMode": "Never"}, "wrong-encapsulation", 'vxlanMode "Never"'),
        ("calico-bgp", {"vxlanMode": "Always"}, "wrong-encapsulation", 'vxlanMode "Always"'),
        ("calico-bgp", {"disabled": True}, "wrong-pool", "disabled true"),
        ("calico-vxlan", None, "wrong-pool", "there is none"),
    ],
)
def test_a_pool_that_is_wrong_is_the_node_s_that_it_is_for(
    scenario: str, wrong: dict[str, Any] | None, kind: str, observed: str
) -> None:
    intent = intent_of(scenario)
    changed = pools(intent)
    right = changed.pop("of-worker1")
    changed |= {} if wrong is None else {"of-worker1": right | wrong}
    (difference,) = told(intent, seen(intent, pools=changed))
    assert (difference.kind, difference.node, difference.place) == (kind, "worker1", "master")
    assert (difference.object, difference.observed) == ("IPPool of-worker1", observed)
    patch = "patch ippools.crd.projectcalico.org of-worker1 --type=merge"
    assert (patch in difference.mends) == (wrong is not None)


def test_a_node_s_own_autonomous_system_is_wrong_or_lacking() -> None:
    intent = intent_of("calico-bgp-tor")
    right = seen(intent)["master"].calico
    assert right is not None
    for number, observed in (("65000", "65000"), ("", "none of its own")):
        systems = {**(right.systems or {}), "worker1": number}
        (difference,) = told(intent, seen(intent, systems=systems))
        assert (difference.kind, difference.node, difference.observed) == (
            "wrong-as",
            "worker1",
            observed,
        )
        assert difference.mends.endswith("node worker1 projectcalico.org/ASNumber=64514")


@pytest.mark.parametrize(
    ("states", "observed"), [((), "it does not run"), (("T",), "stopped by a signal")]
)
def test_an_idle_felix_is_reported(states: tuple[str, ...], observed: str) -> None:
    intent = intent_of("calico-vxlan")
    facts_of = seen(intent)
    facts_of["worker2"] = NodeFacts("linux", "", calico=CalicoFacts(felix=states))
    (difference,) = told(intent, facts_of)
    assert (difference.kind, difference.node, difference.observed) == (
        "felix-down",
        "worker2",
        observed,
    )


def test_what_calico_is_asked_for_comes_before_what_follows_and_bears_on_the_nodes_paths() -> None:
    intent = intent_of("calico-vxlan")
    changed = pools(intent)
    changed["of-worker2"]["vxlanMode"] = "Never"
    unknown = tuple((name, "not asked") for name in ("address", "nftables", "iptables"))
    observed = {
        name: replace(facts, items=without(facts.items, RouteSubject), absent=unknown)
        for name, facts in seen(intent, pools=changed).items()
    }
    explainer = Explainer(intent, observed)

    def first(source: str, target: str) -> str:
        pods = {pod.name: pod for machine in intent.machines for pod in machine.pods}
        flow = Flow(source, bare(pods[target].address), 80, "tcp")
        differences = explainer.explain(flow).findings
        return differences[0].fault if differences else ""

    assert first("worker1-p1", "worker2-p1") == "wrong-encapsulation"
    assert first("worker1-p1", "master-p1") != "wrong-encapsulation"
