"""What a real API server says to objects that nobody should make, and when it is gone."""

from collections.abc import Callable

import pytest
from api_names import IMAGES, SAME, SECONDS, said_at_deadline

from lab._deadline import Deadline
from lab.machines.agents.exec_probes import ExecProber
from lab.machines.cluster.api import Api, LostError, make_namespaced_path
from lab.machines.cluster.probe_manifests import ObjectOwner
from lab.machines.cluster.probe_pods import Workloads, node_versions
from lab.providers.provider import Probe, ProbeSettings
from lab.providers.workloads import wanted
from lab.topology.observed import NAMESPACE

pytestmark = pytest.mark.slow

OWNER = ObjectOwner("overlay", SAME)
PODS = make_namespaced_path("pods", NAMESPACE)
PROBE = Probe(1, "win1-p1", "tcp", "small", "10.96.0.1", 80, 1450)


def test_versions_are_those_of_the_nodes(plane, api):
    found = {version.node: version for version in node_versions(api, Deadline(SECONDS))}
    assert found["win1"].kernel == "10.0.20348.2762"
    assert found["master"].kubelet == "v1.36.3"
    assert api.ask("GET", "/version", Deadline(SECONDS))["gitVersion"].startswith("v1.")
    assert plane.processes


@pytest.mark.usefixtures("deployed")
def test_exec_where_no_kubelet_answers_is_a_probe_error_and_never_a_failure(api):
    prober = ExecProber(api, "win1")
    outcomes = prober.probe([PROBE], ProbeSettings(1.0, 4), lambda _: None, Deadline(SECONDS))
    assert outcomes[1].status == "error"
    assert "running 'curl' in pod 'win1-p1'" in outcomes[1].detail


@pytest.mark.usefixtures("deployed")
def test_workload_checks_without_a_kubelet_are_probe_errors_and_leave_nothing(api, drawn):
    results = Workloads(api, drawn.intent, OWNER, IMAGES).run(Deadline(SECONDS))
    assert [(result.node, result.check) for result in results] == list(wanted(drawn.intent))
    assert {result.verdict for result in results} == {"probe-error"}
    left = api.listing(PODS, Deadline(SECONDS)).objects
    assert not [name for name in left if name.startswith("workload-")]
    secrets = api.listing(make_namespaced_path("secrets", NAMESPACE), Deadline(SECONDS)).objects
    assert "workload" not in secrets


def test_api_server_that_is_lost_in_the_middle_is_a_probe_error(deployed, api, plane, drawn):
    plane.kill_server()
    try:
        prober = ExecProber(api, "win1")
        outcomes = prober.probe([PROBE], ProbeSettings(1.0, 4), lambda _: None, Deadline(3.0))
        assert outcomes[1].status == "error"
        results = Workloads(api, drawn.intent, OWNER, IMAGES).run(Deadline(1.0))
        assert {result.verdict for result in results} == {"probe-error"}
        refused = "connection refused"
        with pytest.raises(LostError, match=refused):
            api.ask("GET", "/version", Deadline(SECONDS))
        acts: tuple[Callable[[Deadline], object], ...] = (
            lambda deadline: node_versions(api, deadline),
            deployed.observe,
        )
        for act in acts:
            assert refused in said_at_deadline(act, refused)
    finally:
        plane.start_server()


def test_server_reached_by_another_address_must_show_the_same_certificate(plane):
    port = plane.address.rpartition(":")[2]
    by_name = Api(plane.kubeconfig, f"https://localhost:{port}")
    assert by_name.ask("GET", "/version", Deadline(SECONDS))
    by_name.close()


def test_unreadable_kubeconfig_is_named(plane):
    nowhere = plane.kubeconfig.with_name("nowhere.conf")
    with pytest.raises(Exception, match="reading the kubeconfig") as raised:
        Api(nowhere).ask("GET", "/version", Deadline(SECONDS))
    assert str(nowhere) in str(raised.value)
