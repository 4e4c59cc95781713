"""What Kubernetes runs and reads on a node: what it answers, and what that amounts to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from shipped import intent_of

from lab.explain.check import LabLook, kinds
from lab.explain.explainer import Explainer, first_hop
from lab.facts.linux import read_software as read
from lab.facts.node import NodeFacts, Software, Unit
from lab.machines.checks.software import SoftwareCheck
from lab.topology.intent import Intent
from lab.topology.path import Flow, Path
from lab.topology.walk import walk

SAID = {
    "programs": "systemd S\nkubelet S\nkube-proxy S\nflanneld S\nsh R",
    "disks": (
        "Filesystem 1024-blocks Used Available Capacity Mounted on\n"
        "overlay 264212084 32902648 62598616 35% /\n"
        "/dev/vda 264212084 32902648 62598616 35% /var/log/pods"
    ),
    "cni": "10-flannel.conflist",
    "expiry": "notAfter=Nov 23 10:25:04 2027 GMT\nCertificate will not expire",
    "subnet": "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.1.1/24\nFLANNEL_MTU=1450",
    "dns": "2",
}
EXPIRY = "notAfter=Nov 22 10:25:04 2026 GMT"
FULL = "pods-log 64 64 0 100% /var/log/my pods"
HEALTHY = Software(
    processes=(("kube-proxy", "S"), ("flanneld", "S")),
    cni=("10-flannel.conflist",),
    subnet="FLANNEL_SUBNET=10.244.1.1/24",
    expired="",
    dns_replicas=2,
)


def intent(kind: str = "overlay") -> Intent:
    return intent_of(kind)


def seen(node: str = "worker1", kind: str = "overlay", **changes: object) -> list[str]:
    facts = NodeFacts("linux", "", software=replace(HEALTHY, **changes))  # type: ignore[arg-type]
    return [
        f"{difference.kind} on {difference.node}"
        for difference in SoftwareCheck().in_lab(LabLook(intent(kind), {node: facts}))
    ]


def test_what_a_healthy_node_answers_is_read_and_no_difference() -> None:
    assert read(SAID) == HEALTHY
    assert seen() == []


def test_what_could_not_be_asked_is_not_judged() -> None:
    assert read({"address": "[]"}) is None
    assert read({"cni": "10-flannel.conflist"}) == Software(cni=("10-flannel.conflist",))
    assert seen(processes=None, cni=None, subnet=None, expired=None, dns_replicas=None) == []


@pytest.mark.parametrize(
    ("question", "answer", "kind"),
    [
        ("programs", "kube-proxy T\nflanneld S", "proxy-stopped"),
        ("programs", "flanneld S", "proxy-stopped"),
        ("programs", "kube-proxy S", "flanneld-down"),
        ("cni", "", "cni-config-missing"),
        ("cni", "README\n10-flannel.conflist.old", "cni-config-missing"),
        ("expiry", f"{EXPIRY}\nCertificate will expire", "certificate-expired"),
        ("disks", f"{SAID['disks']}\n{FULL}", "disk-full"),
        ("subnet", "FLANNEL_SUBNET=10.244.255.1/24", "wrong-subnet"),
        ("subnet", "", "wrong-subnet"),
    ],
)
def test_each_finding_is_reported_separately_with_its_node(
    question: str, answer: str, kind: str
) -> None:
    software = read({**SAID, question: answer})
    facts = {"worker1": NodeFacts("linux", "", software=software)}
    (difference,) = SoftwareCheck().in_lab(LabLook(intent(), facts))
    assert (difference.kind, difference.node) == (kind, "worker1")
    assert kinds()[difference.kind].fault
    assert first_hop(difference, path("worker1", "worker2")) is not None
    assert first_hop(difference, path("master", "worker2")) is None


def test_a_policy_that_a_plugin_drops_explains_what_its_node_translates() -> None:
    software = Software(dropped=('{"Type": "OutBoundNAT"}',))
    facts = {"worker1": NodeFacts("windows", "", software=software)}
    (difference,) = SoftwareCheck().in_lab(LabLook(intent(), facts))
    assert (difference.kind, difference.node) == ("cni-policy-dropped", "worker1")
    assert "OutBoundNAT" in difference.observed
    explains = kinds()[difference.kind].explains
    assert explains is not None
    lost = replace(difference, kind="masquerade-exception-missing")
    assert explains(difference, lost)
    assert not explains(difference, replace(lost, node="worker2"))


def test_a_full_disk_is_reported_with_its_mount_point() -> None:
    (mounted,) = read({**SAID, "disks": f"head\n{FULL}"}).full  # type: ignore[union-attr]
    assert mounted == "/var/log/my pods"


def test_what_a_cluster_does_not_have_is_not_missed() -> None:
    assert seen(kind="calico-bgp", processes=(("kube-proxy", "S"),), subnet=None) == []
    assert seen(kind="ovn", processes=(), subnet=None) == []


def test_a_lab_without_kubernetes_is_not_judged() -> None:
    facts = NodeFacts("linux", "", software=Software(processes=(), cni=()))
    bare = replace(intent(), kubernetes=None)
    assert list(SoftwareCheck().in_lab(LabLook(bare, {"worker1": facts}))) == []


def test_dns_scaled_to_zero_is_reported_for_the_first_control_plane_only() -> None:
    own = "FLANNEL_SUBNET=10.244.0.1/24"
    assert seen("master", dns_replicas=0, subnet=own) == ["dns-scaled-down on master"]
    assert seen("worker1", dns_replicas=0) == []


def path(one: str, other: str, port: int = 8080) -> Path:
    whole = intent()
    pod = next(pod for pod in whole.machine(other).pods if pod.role == "probe")
    return walk(whole, Flow(f"{one}-p1", pod.address.partition("/")[0], port, "tcp"))[0]


def test_a_dns_without_pods_concerns_who_asks_for_names() -> None:
    whole = intent()
    facts = {"master": NodeFacts("linux", "", software=replace(HEALTHY, dns_replicas=0))}
    every = SoftwareCheck().in_lab(LabLook(whole, facts))
    (difference,) = (one for one in every if one.kind == "dns-scaled-down")
    assert whole.kubernetes
    asking = walk(whole, Flow("worker1-p1", whole.kubernetes.dns_address, 53, "udp"))[0]
    assert first_hop(difference, asking) == 0
    assert first_hop(difference, path("worker1", "worker2")) is None


def test_a_stopped_containerd_is_distinguished_from_other_programs() -> None:
    whole = intent()
    facts = {"worker1": NodeFacts("linux", "", units=(Unit("containerd", "inactive"),))}
    flow = path("worker1", "worker2").flow
    kinds = [finding.kind for finding in Explainer(whole, facts).explain(flow).findings]
    assert kinds[-1] == "runtime-down"
