"""What is found out about a cluster from its objects."""

import json

import pytest
from attached_clusters import daemon, kubeadm_cluster, node, record

from lab.machines.attached import design
from lab.machines.attached.provider import AttachedProvider
from lab.machines.attached.recognise import Reading, recognise
from lab.machines.attached.record import ProbeTerms, from_text, to_text

NOBODY = Reading((), "nodes is forbidden: User 'me' cannot list it")


def test_a_cluster_of_kubeadm_is_read_whole():
    cluster = record().cluster
    assert (cluster.cni, cluster.cni_seen) == ("flannel", "DaemonSet kube-flannel/kube-flannel-ds")
    assert [(each.name, each.role) for each in cluster.nodes] == [
        ("plane", "control-plane"),
        ("worker", "worker"),
    ]
    assert cluster.nodes[1].addresses == ("10.9.0.11", "10.244.1.0", "10.244.1.1")
    assert (cluster.pod_cidrs, cluster.service_cidrs) == (("10.244.0.0/16",), ("10.96.0.0/12",))
    assert cluster.dns is not None
    assert cluster.dns.pods == (("coredns-1", "plane", "10.244.0.2"),)
    assert (cluster.proxy_mode, cluster.unknown) == ("nftables", ())


@pytest.mark.parametrize(
    ("names", "cni"),
    [
        (["calico-node"], "Calico"),
        (["ovnkube-node"], "OVN-Kubernetes"),
        (["cilium"], "Cilium"),
        (["antrea-agent"], "Antrea"),
        (["azure-cns"], "Azure"),
        (["aws-node", "calico-node"], "AWS VPC"),
        (["netd"], "GKE"),
        (["kindnet"], "kindnet"),
        (["my-own-cni"], ""),
    ],
)
def test_a_network_is_recognised_by_its_daemonset(names, cni):
    daemons = Reading(tuple(map(daemon, names)))
    assert record(daemonsets=daemons).cluster.cni == cni


def test_what_may_not_be_read_is_unknown_and_says_why():
    cluster = record(daemonsets=NOBODY, **{"kube-proxy": NOBODY}).cluster
    assert cluster.cni == ""
    assert ("the network plug-in", NOBODY.refused) in cluster.unknown
    assert ("kube-proxy's mode", NOBODY.refused) in cluster.unknown


def test_ranges_come_from_the_next_source_when_one_is_missing():
    refusal = "failed to allocate IP 192.0.2.1: the range of valid IPs is 10.100.0.0/16"
    missing = {"kubeadm": Reading(), "service-cidrs": Reading(), "dry-run": Reading((), refusal)}
    cluster = record(**missing).cluster
    assert cluster.service_cidrs == ("10.100.0.0/16",)
    assert cluster.pod_cidrs == ("10.244.0.0/23",)
    assert cluster.pod_cidrs_from == "the nodes' podCIDRs"


def test_a_large_cluster_is_sampled_by_system_build_and_zone():
    windows = {"kubernetes.io/os": "windows"}
    nodes = [node(f"linux{number}", number) for number in range(5)]
    nodes.append(node("win", 9, labels=windows))
    cluster = record(ProbeTerms(most_nodes=2), nodes=Reading(tuple(nodes))).cluster
    assert [each.name for each in cluster.nodes] == ["linux0", "win"]
    assert dict(cluster.others)["linux4"] == "it is beyond the 2 nodes of '--max-nodes'"


def test_of_a_large_cluster_every_system_comes_first_and_healthy_nodes_before_others():
    linux = [node(f"linux{number}", number) for number in range(4)]
    for number, each in enumerate(linux):
        each["status"]["nodeInfo"]["osImage"] = f"build {number}"
    linux.append(node("linux2-cordoned", 5))
    linux[-1]["status"]["nodeInfo"]["osImage"] = "build 0"
    linux[0]["spec"]["unschedulable"] = True
    win = node("win", 9, labels={"kubernetes.io/os": "windows"})
    cluster = record(ProbeTerms(most_nodes=3), nodes=Reading((*linux, win))).cluster
    names = [each.name for each in cluster.nodes]
    assert "win" in names
    assert "linux0" not in names


@pytest.mark.parametrize(
    ("corefile", "kubeadm", "domain"),
    [
        (".:53 {\n    kubernetes corp.example. in-addr.arpa ip6.arpa {\n    }\n}", True,
         "corp.example"),
        (None, True, "cluster.local"),
        (None, False, "cluster.local"),
    ],
)  # fmt: skip
def test_the_domain_is_read_or_said_to_be_assumed(corefile, kubeadm, domain):
    changed = {} if kubeadm else {"kubeadm": Reading((), NOBODY.refused)}
    if corefile:
        changed["coredns"] = Reading(({"data": {"Corefile": corefile}},))
    cluster = record(**changed).cluster
    assert cluster.dns.domain == domain
    assumed = "the domain; 'cluster.local' is assumed"
    assert ((assumed, NOBODY.refused) in cluster.unknown) == (not kubeadm)


def test_virtual_and_unselected_nodes_are_left_out_with_the_reason():
    nodes = (
        node("a", 1, labels={"pool": "x"}),
        node("b", 2),
        node("aci", 3, labels={"type": "virtual-kubelet"}),
    )
    cluster = record(ProbeTerms(nodes=("pool=x",)), nodes=Reading(nodes)).cluster
    assert [each.name for each in cluster.nodes] == ["a"]
    assert dict(cluster.others) == {
        "aci": "it is a virtual node: its pods run elsewhere",
        "b": "'--nodes' does not select it",
    }


def test_a_node_that_is_not_ready_says_so():
    tired = node("worker", 1)
    tired["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
    ]
    tired["spec"] |= {"unschedulable": True}
    (worker,) = record(nodes=Reading((tired,))).cluster.nodes
    assert worker.remarks == ("NotReady: KubeletNotReady", "cordoned")


def test_a_wine_node_is_not_called_windows():
    labels = {"kubernetes.io/os": "windows", "hybridlab/windows": "wine"}
    made = record(nodes=Reading((node("plane", 0), node("win", 1, labels=labels))))
    assert [each.remarks for each in made.cluster.nodes] == [(), ("on Wine",)]
    intent = design.decide(made).intent
    assert AttachedProvider().disclaimer(intent) == (
        "win: no Windows, but Kubernetes' Windows programs on Wine; HNS is emulated"
    )
    assert AttachedProvider().disclaimer(design.decide(record()).intent) == ""


def test_a_record_survives_its_file():
    made = record(ProbeTerms(tolerations=("gpu=yes:NoSchedule",)))
    assert from_text(to_text(made)) == made


def test_a_record_of_an_earlier_version_keeps_the_names_of_its_pods():
    made = record(ProbeTerms(namespace="team"))
    document = json.loads(to_text(made))
    del document["prefix"]
    for field in ("host_network", "from_here", "debug_pods"):
        del document["terms"][field]
    earlier = from_text(json.dumps(document))
    assert earlier == made
    assert next(pod.name for pod in design.decide(earlier).plan.pods()) == "plane-p1"


def test_broken_documents_of_the_cluster_are_no_defect():
    readings = kubeadm_cluster(kubeadm=Reading(({"data": {"ClusterConfiguration": "{["}},)))
    assert recognise("https://x", "v1", readings, ProbeTerms()).service_cidrs == ("10.96.0.0/12",)
