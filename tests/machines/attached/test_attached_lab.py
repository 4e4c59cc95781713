"""The lab on an existing cluster: its matrix, its objects, rights, load, and what is wrong."""

import socket
import subprocess
from contextlib import nullcontext
from dataclasses import replace

import pytest
from attached_clusters import daemon, node, record
from kubernetes_programs import CACHE
from ssh_server import free_port

from lab._deadline import Deadline
from lab._errors import UsageError
from lab.facts.command_lines import is_command
from lab.facts.difference import SILENT
from lab.lifecycle.compilation import compile_scenario
from lab.machines.attached import cluster, design
from lab.machines.attached.cluster import AttachedCluster, batches, probe_from_here
from lab.machines.attached.differences import ApiState, find_differences
from lab.machines.attached.objects import HOST_PORT, make_objects
from lab.machines.attached.provider import AttachedProvider
from lab.machines.attached.recognise import Reading
from lab.machines.attached.record import ClusterAddress, ProbeTerms
from lab.machines.attached.rights import make_reviews, make_roles
from lab.machines.attached.scenario import to_scenario
from lab.machines.attached.words import summarise
from lab.machines.cluster.probe_manifests import ObjectOwner, node_of
from lab.matrix.cells import cells, counts, make_matrix
from lab.matrix.obstructed import Obstructions
from lab.matrix.pairs import EveryEndpoint
from lab.matrix.run import PACE
from lab.providers.provider import MACHINES, LabHandle, Outcome, Probe, ProbeSettings
from lab.suites.session import choose_pace
from lab.topology.intent import Obstacle
from lab.topology.observed import ObservedPod
from lab.topology.path import Flow
from lab.topology.subject import ServiceSubject
from lab.topology.walk import walk

OWNER = ObjectOwner("prod", "0123")
ENFORCE = "pod-security.kubernetes.io/enforce"
NAMES = ("plane-p1", "plane-p2", "worker-p1", "worker-p2")
ADDRESSES = dict(zip(NAMES, ("10.244.0.5", "10.244.0.6", "10.244.1.5", "10.244.1.6"), strict=True))


def bound(made=None, obstacles=None):
    """The Intent of a record, with the addresses that a cluster gives."""
    made = made or record()
    pods = [
        ObservedPod(name, name.split("-")[0], address, "Running", ready=True, trouble="")
        for name, address in ADDRESSES.items()
    ]
    services = {
        f"to-{name}": (f"10.96.1.{number}", {80: 30000 + number})
        for number, name in enumerate(NAMES, start=1)
    } | {"shared": ("10.96.1.9", {})}
    return design.bind_pods(design.decide(made).intent, pods, services, obstacles or {}, 1450)


def test_cells_have_the_addresses_and_ports_that_the_cluster_chose():
    plan = design.decide(record()).plan
    by_id = {cell.id: cell for cell in cells(plan, bound())}
    service = by_id["pod-service/plane-p1/to-worker-p1/tcp-small"]
    assert (service.target.address, service.target.port) == ("10.96.1.3", 80)
    port = by_id["nodeport/plane-p1/worker:to-worker-p1/udp-small"]
    assert (port.target.address, port.target.port) == ("10.9.0.11", 30003)
    assert by_id["pod-pod/plane-p1/worker-p1/tcp-small"].sources == {"10.244.0.5"}
    assert port.sources == {"10.9.0.11", "10.244.1.0", "10.244.1.1"}
    name = next(cell for cell in by_id.values() if cell.name_form == "full")
    assert name.target.name == "to-plane-p1.hybridlab-prod-abc.svc.cluster.local."
    assert (name.answer, name.mtu) == ("10.96.1.1", 1450)


def test_families_need_what_the_owner_allows_and_the_cluster_has():
    every = counts(cells(design.decide(record()).plan, bound()))
    assert set(every) == {"pod-pod", "pod-service", "hairpin", "nodeport", "dns"}
    made = record(ProbeTerms(node_ports=False), services=Reading())
    assert design.families(made) == ("pod-pod", "pod-service", "hairpin")
    assert any("no DNS Service was found" in line for line in summarise(made))


HOST = ProbeTerms(host_network=True)


def test_nodes_send_too_by_pods_in_their_own_networks():
    assert "node-pod" not in design.families(record())
    made = record(HOST)
    by_id = {cell.id: cell for cell in cells(design.decide(made).plan, bound(made))}
    to_pod = by_id["node-pod/plane/worker-p1/udp-small"]
    assert to_pod.sources == {"10.9.0.10", "10.244.0.0", "10.244.0.1"}
    assert by_id["nodeport/plane/worker:to-worker-p1/udp-small"].target.port == 30003
    objects = make_objects(made, design.decide(made).intent, OWNER)
    assert objects.namespace["metadata"]["labels"][ENFORCE] == "privileged"
    pods = {each["metadata"]["name"]: each["spec"] for each in objects.pods}
    assert set(pods) == {*NAMES, "plane-host", "worker-host"}
    assert [name for name, spec in pods.items() if spec.get("hostNetwork")] == [
        "plane-host",
        "worker-host",
    ]
    (container,) = pods["worker-host"]["containers"]
    assert f"--http-port={HOST_PORT}" in container["command"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not pods["worker-host"]["automountServiceAccountToken"]
    assert "will create 6 pods" in "".join(summarise(made))


def test_this_machine_probes_node_ports_alone():
    made = record(ProbeTerms(from_here=True))
    sent = [cell for cell in cells(design.decide(made).plan, bound(made))
            if cell.source.kind == "client"]  # fmt: skip
    assert {cell.family for cell in sent} == {"nodeport"}
    by_id = {cell.id: cell for cell in sent}
    cell = by_id["nodeport/this_machine/worker:to-worker-p1/udp-small"]
    assert (cell.target.address, cell.target.port) == ("10.9.0.11", 30003)
    assert cell.sources == {"10.9.0.11", "10.244.1.0", "10.244.1.1"}
    assert len(make_objects(made, design.decide(made).intent, OWNER).pods) == len(NAMES)
    (path,) = walk(bound(made), Flow("this_machine", "10.9.0.11", 30003, "udp"))
    assert [hop.place for hop in path.hops] == ["this_machine", "this_machine", "worker-p1"]


def test_probes_from_here_reach_a_real_netexec():
    programs = next(CACHE.glob("kubernetes-node-linux-*/agnhost"), None)
    if programs is None:
        pytest.skip("there is no agnhost")
    http, udp = free_port(), free_port()
    command = [programs, "netexec", f"--http-port={http}", f"--udp-port={udp}"]
    probes = [
        Probe(key, "this_machine", protocol, size, "127.0.0.1", port, 1450, dialect="netexec")
        for key, (protocol, size, port) in enumerate(
            [("tcp", "small", http), ("tcp", "large", http), ("udp", "small", udp)]
        )
    ]

    def send():
        outcomes = probe_from_here(probes, ProbeSettings(2.0, 8))
        return {outcome.status: outcome for outcome in outcomes.values()}

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            by_status = Deadline(30).wait("netexec", send, until=lambda each: set(each) == {"ok"})
        finally:
            running.kill()
    assert by_status["ok"].source_seen == "127.0.0.1"
    assert by_status["ok"].backends == (socket.gethostname(),)


def test_a_windows_node_sends_nothing_and_gets_no_pod_with_its_rights():
    nodes = (node("plane", 0), node("win", 1, labels={"kubernetes.io/os": "windows"}))
    made = record(HOST, nodes=Reading(nodes))
    plan, intent = design.decide(made).plan, design.decide(made).intent
    made_pods = {p["metadata"]["name"]: p["spec"] for p in make_objects(made, intent, OWNER).pods}
    assert [name for name, spec in made_pods.items() if "hostNetwork" in spec] == ["plane-host"]
    assert "will create 5 pods" in "".join(summarise(made))
    assert any("HostProcess" in line for line in summarise(made))
    all_cells = cells(plan, intent)
    assert {cell.source.name for cell in all_cells if cell.source.kind == "node"} == {"plane"}
    assert any(cell.entry == "win" for cell in all_cells)
    assert {"node-pod", "node-service"} <= {cell.family for cell in all_cells}
    pairs = EveryEndpoint.of(plan, intent, make_matrix(plan, intent))
    assert pairs.grid("plane", "win-p1", "explaining").size
    with pytest.raises(UsageError, match="'win' answers probes, but sends none"):
        pairs.grid("win", "plane-p1", "explaining")


def test_a_node_whose_own_pod_is_refused_sends_nothing_and_says_why():
    made = record(HOST)
    refusal = Obstacle("Namespace probes", "the API server refuses its pods", "", "")
    intent = bound(made, {"worker-host": refusal})
    obstructions = Obstructions(intent)
    by_id = {cell.id: cell for cell in cells(design.decide(made).plan, intent)}
    reason = obstructions.reason(by_id["node-pod/worker/plane-p1/tcp-small"])
    assert reason == "the pod of node 'worker' cannot run: " + refusal.sentence
    assert obstructions.findings()[0].node == "worker"
    assert not obstructions.reason(by_id["node-pod/plane/worker-p1/tcp-small"])
    assert not obstructions.reason(by_id["pod-pod/plane-p1/worker-p1/tcp-small"])


def test_of_an_unknown_network_any_source_of_a_node_is_allowed():
    made = record(daemonsets=Reading((daemon("my-cni"),)))
    intent, plan = bound(made), design.decide(made).plan
    by_id = {cell.id: cell for cell in cells(plan, intent)}
    assert by_id["nodeport/plane-p1/worker:to-worker-p1/udp-small"].sources == frozenset()
    assert by_id["pod-pod/plane-p1/worker-p1/tcp-small"].sources == {"10.244.0.5"}


def test_cells_are_named_the_same_before_the_pods_exist():
    decided = design.decide(record())
    before = [cell.id for cell in make_matrix(decided.plan, decided.intent).cells()]
    assert before == [cell.id for cell in cells(decided.plan, bound())]


def test_windows_nodes_bring_their_documented_limits():
    nodes = (node("plane", 0), node("win", 1, labels={"kubernetes.io/os": "windows"}))
    made = record(nodes=Reading(nodes))
    assert "WIN-OVERLAY-NODE-POD" in {limit.id for limit in design.limits(made.cluster)}
    assert design.limits(record().cluster) == ()


# SECURITY.md: Probe pods have no rights.
def test_pods_are_admitted_by_restricted_pod_security():
    made = make_objects(record(), design.decide(record()).intent, OWNER)
    assert made.namespace["metadata"]["name"] == "hybridlab-prod-abc"
    for pod in made.pods:
        assert pod["metadata"]["namespace"] == "hybridlab-prod-abc"
        assert pod["spec"]["securityContext"]["runAsNonRoot"]
        assert not pod["spec"]["automountServiceAccountToken"]
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert not container["securityContext"]["allowPrivilegeEscalation"]


def test_services_leave_address_and_node_port_to_the_cluster():
    made = make_objects(record(), design.decide(record()).intent, OWNER)
    assert {item["metadata"]["name"] for item in made.services} >= {"to-plane-p1", "shared"}
    for service in made.services:
        assert "clusterIP" not in service["spec"]
        assert not any("nodePort" in port for port in service["spec"]["ports"])


def test_pods_have_the_tolerations_secrets_and_registry_of_the_terms():
    terms = ProbeTerms(
        prefix="registry.example/mirror/",
        pull_secrets=("pull",),
        tolerations=("gpu=yes:NoSchedule", "spot"),
        namespace="probes",
    )
    made = make_objects(record(terms), design.decide(record(terms)).intent, OWNER)
    spec = made.pods[0]["spec"]
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert spec["containers"][0]["image"] == "registry.example/mirror/agnhost:2.63.0"
    taint = {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
    assert taint in spec["tolerations"]
    assert {"key": "spot", "operator": "Exists"} in spec["tolerations"]


def test_an_image_by_digest_keeps_it_in_another_registry():
    terms = ProbeTerms(image=f"registry.k8s.io/e2e-test-images/agnhost@sha256:{'a' * 64}")
    assert terms.pulled == terms.image
    moved = replace(terms, prefix="registry.example:5000/mirror")
    assert moved.pulled == f"registry.example:5000/mirror/agnhost@sha256:{'a' * 64}"


@pytest.mark.parametrize("namespace", ["", "probes"])
def test_the_roles_grant_every_right_that_is_asked_for(namespace):
    terms = ProbeTerms(namespace=namespace)
    roles = make_roles(terms)
    assert [role["kind"] for role in roles] == ["ClusterRole", *(["Role"] if namespace else [])]
    granted = {
        (resource, verb)
        for role in roles
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    for review in make_reviews(terms, namespace or "hybridlab-prod-abc"):
        attributes = review.request["spec"]["resourceAttributes"]
        part = f"/{attributes['subresource']}" if "subresource" in attributes else ""
        assert (f"{attributes['resource']}{part}", attributes["verb"]) in granted, review.words


def test_no_batch_has_more_connections_than_the_rate():
    probes = [
        Probe(key, source, "udp", "small", "10.244.1.5", 8080, 1450, dialect="netexec")
        for key, source in enumerate(["a", "b"] * 30)
    ]
    made = list(batches(probes, ProbeSettings(2.0, 8), 20))
    assert sorted(probe.key for batch in made for probe in batch) == list(range(60))
    assert {len(batch) for batch in made} == {10}  # each asks for the name and for the source
    assert all({probe.source for probe in batch} == {"a", "b"} for batch in made)


@pytest.mark.parametrize(
    ("backends", "status", "tries"),
    [
        (("plane-p1", "worker-p1"), "ok", [16]),
        (("plane-p1",), "ok", [16, 64]),
        ((), "timeout", [16]),
    ],
)
def test_the_other_tries_are_made_where_few_did_not_show_every_backend(
    monkeypatch, tmp_path, backends, status, tries
):
    made: list[int] = []

    class Prober:
        def __init__(self, *_: object) -> None:
            pass

        def probe(self, probes, *_):
            made.extend(probe.tries for probe in probes)
            return {7: Outcome(7, status, "", None, backends, None, 1.0)}

    monkeypatch.setattr(cluster, "ExecProber", Prober)
    monkeypatch.setattr(cluster, "opened_api", lambda *_: nullcontext())
    shared = Probe(7, "plane-p1", "tcp", "small", "10.96.1.9", 80, 1450, tries=64)
    attached = AttachedCluster(LabHandle("prod", tmp_path, "0123"), bound(), record())
    outcomes = attached.probe(bound(), [shared], ProbeSettings(1.0, 8), lambda _: None)
    assert made == tries
    assert outcomes[7].backends == backends


def test_a_path_leads_over_the_service_to_its_backend():
    (path,) = walk(bound(), Flow("plane-p1", "10.96.1.3", 80, "tcp"))
    assert [hop.place for hop in path.hops] == ["plane-p1", "plane-p1", "worker-p1"]
    assert path.hops[1].subject == ServiceSubject("to-worker-p1")


def pod(name, address, **labels):
    return {
        "metadata": {"name": name, "namespace": "hybridlab-prod-abc", "labels": labels},
        "status": {"podIP": address, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def ends(service, **addresses):
    return {
        "metadata": {
            "name": service,
            "namespace": "hybridlab-prod-abc",
            "labels": {"kubernetes.io/service-name": service},
        },
        "endpoints": [
            {"addresses": [address], "targetRef": {"name": name}}
            for name, address in addresses.items()
        ],
    }


def state(selector, *slices):
    """One Service and the pod behind it."""
    service = {
        "metadata": {"name": "to-worker-p1", "namespace": "hybridlab-prod-abc"},
        "spec": {"selector": selector},
    }
    pods = [pod("worker-p1", "10.244.1.5", app="probe")]
    return ApiState(pods=pods, services=[service], slices=slices)


def of_service(api):
    differences = find_differences(record(), bound(), api)
    return [each for each in differences if each.subject.name == "to-worker-p1"]


def test_a_service_is_right_when_selector_endpoints_and_pods_agree():
    api = state({"app": "probe"}, ends("to-worker-p1", **{"worker-p1": "10.244.1.5"}))
    assert of_service(api) == []


def test_a_selector_that_selects_nothing_is_named():
    (wrong,) = of_service(state({"app": "web"}))
    assert wrong.observed == "its selector app=web selects no probe pod"
    assert wrong.shows.startswith(
        "kubectl --kubeconfig=/home/me/.kube/config --context=prod --namespace=hybridlab-prod-abc "
    )
    assert wrong.concerns == (("", ServiceSubject("to-worker-p1")),)


def test_an_endpoint_with_another_address_than_its_pod_is_named():
    api = state({"app": "probe"}, ends("to-worker-p1", **{"worker-p1": "10.244.9.9"}))
    (wrong,) = of_service(api)
    assert (wrong.subject.kind, wrong.observed) == ("EndpointSlice", "it has 10.244.9.9")


def test_an_endpoint_without_a_pod_s_name_is_known_by_its_address():
    slices = ends("to-worker-p1", **{"worker-p1": "10.244.1.5"})
    del slices["endpoints"][0]["targetRef"]
    assert of_service(state({"app": "probe"}, slices)) == []
    dns = replace(state({}), dns_slices=[ends("kube-dns", x="10.244.0.2")])
    del dns.dns_slices[0]["endpoints"][0]["targetRef"]
    differences = find_differences(record(), bound(), dns)
    assert not any(each.subject.name == "kube-dns" for each in differences)


@pytest.mark.parametrize("readable", ["services", "slices", "pods", "dns_slices", "nodes"])
def test_what_may_not_be_read_is_not_missing(readable):
    whole = state({"app": "probe"}, ends("to-worker-p1", **{"worker-p1": "10.244.1.5"}))
    api = ApiState(
        **{readable: getattr(whole, readable) or ()}, refusals=(("Services", "forbidden"),)
    )
    differences = find_differences(record(), bound(), api)
    wrong = [each for each in differences if each.kind != SILENT]
    expected = {"services": {"gone"}, "dns_slices": {"changed"}}.get(readable, set())
    assert {each.change for each in wrong} <= expected
    (unread,) = (each for each in differences if each.kind == SILENT)
    assert unread.observed == "cannot be read: forbidden"


@pytest.mark.parametrize(
    ("condition", "named"),
    [("EtcdIsVoter", False), ("NetworkingReady", False), ("DiskPressure", True),
     ("KernelDeadlock", True)],
)  # fmt: skip
def test_only_conditions_that_mean_trouble_are_named(condition, named):
    worker = node("worker", 1)
    worker["status"]["conditions"].append({"type": condition, "status": "True", "reason": "X"})
    differences = find_differences(record(), bound(), ApiState(nodes=[worker]))
    assert bool(differences) == named


def test_services_of_an_existing_cluster_are_waited_for_shortly():
    provider, theirs = AttachedProvider(), object()
    pace = choose_pace(provider, theirs)
    assert (pace.settle, pace.first.in_flight) == (15.0, 32)
    provider.abilities |= {MACHINES}
    assert (choose_pace(provider, theirs).settle, choose_pace(provider, None)) == (60.0, PACE)


def test_commands_are_for_the_cluster_of_the_kubeconfig_and_quoted():
    assert ClusterAddress("/a b/c.conf", "it's").kubectl("get nodes") == (
        "kubectl '--kubeconfig=/a b/c.conf' '--context=it'\"'\"'s' get nodes"
    )
    several = ClusterAddress("/a.conf:/b.conf", "prod").kubectl("get nodes")
    assert several == "env KUBECONFIG=/a.conf:/b.conf kubectl --context=prod get nodes"
    assert is_command(several)


def test_pods_are_pinned_and_nodes_named_by_name_not_by_label():
    worker = node("ip-10-0-0-9.example", 1, labels={"kubernetes.io/hostname": "ip-10-0-0-9"})
    made = record(nodes=Reading((worker,)))
    pod = make_objects(made, design.decide(made).intent, OWNER).pods[0]
    assert "kubernetes.io/hostname" not in pod["spec"]["nodeSelector"]
    assert node_of(pod["spec"]) == "ip-10-0-0-9.example"


def test_a_pod_on_another_node_than_its_own_cannot_be_used():
    pods = [ObservedPod("worker-p1", "plane", "10.244.0.9", "Running", ready=True, trouble="")]
    intent = design.bind_pods(design.decide(record()).intent, pods, {}, {}, 1450)
    assert intent.obstacles()["worker-p1"].observed == "runs on plane, not on worker"


def test_nodes_daemons_and_policies_are_looked_at():
    tired = node("worker", 1)
    tired["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": "Lost"}]
    proxy = {
        "metadata": {
            "name": "kube-proxy-x",
            "namespace": "kube-system",
            "ownerReferences": [{"kind": "DaemonSet", "name": "kube-proxy"}],
        },
        "spec": {"nodeName": "worker"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
    }
    probe = pod("worker-p1", "10.244.1.5", **{"hybridlab.io/lab": "prod"})
    policy = {"metadata": {"name": "deny"}, "spec": {"podSelector": {}, "policyTypes": ["Egress"]}}
    api = ApiState(nodes=[tired], pods=[proxy, probe], policies=[policy])
    kinds = {each.subject.kind for each in find_differences(record(), bound(), api)}
    assert kinds >= {"Node", "Pod", "NetworkPolicy"}


@pytest.mark.parametrize(
    ("operator", "values", "named"),
    [("In", ["probe"], True), ("NotIn", ["probe"], False), ("DoesNotExist", [], False)],
)
def test_a_policy_is_named_only_if_it_selects_probe_pods(operator, values, named):
    probe = pod("worker-p1", "10.244.1.5", **{"hybridlab.io/lab": "prod", "app": "probe"})
    expression = {"key": "app", "operator": operator, "values": values}
    policy = {
        "metadata": {"name": "deny"},
        "spec": {"podSelector": {"matchExpressions": [expression]}},
    }
    api = ApiState(pods=[probe], policies=[policy])
    kinds = {each.subject.kind for each in find_differences(record(), bound(), api)}
    assert ("NetworkPolicy" in kinds) == named


def test_a_pod_that_cannot_run_obstructs_its_cells_alone():
    intent = bound(obstacles={"worker-p2": Obstacle("Node worker", "cordoned", "", "")})
    assert set(intent.obstacles()) == {"worker-p2"}
    assert len(intent.running().machines[1].pods) == 1


def written(tmp_path, cluster, name="prod"):
    """The compiled scenario of a cluster's shape."""
    path = tmp_path / "prod.yaml"
    path.write_text(to_scenario(name, cluster))
    return compile_scenario(path)


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_the_scenario_has_room_where_only_the_nodes_ranges_are_known(tmp_path, number):
    nodes = Reading(tuple(node(f"n{index}", index) for index in range(1, number + 1)))
    cluster = record(nodes=nodes, kubeadm=Reading()).cluster
    assert cluster.pod_cidrs_from == "the nodes' podCIDRs"
    assert len(written(tmp_path, cluster).plan.nodes) == number + 1


@pytest.mark.parametrize("name", ["10.0.0.1", "1e3.example", "yes", "null"])
def test_any_name_of_a_node_or_lab_is_text_in_the_scenario(tmp_path, name):
    cluster = record(nodes=Reading((node(name, 1),))).cluster
    assert written(tmp_path, cluster, "1e3").plan.nodes[0].name == name.partition(".")[0]


def test_the_scenario_of_the_same_shape_is_one(tmp_path):
    compiled = written(tmp_path, record().cluster)
    assert [each.name for each in compiled.plan.nodes] == ["plane", "worker"]
    assert str(compiled.plan.dns_address) == "10.96.0.10"
