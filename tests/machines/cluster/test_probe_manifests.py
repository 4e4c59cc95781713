import json
from typing import Any

from lab.lifecycle.compilation import compile_scenario
from lab.machines.cluster.probe_manifests import ObjectOwner, manifests
from lab.machines.cluster.workload_checks import Values, judge, pod, sources
from lab.providers.workloads import CHECKS, wanted
from lab.topology.observed import POD_VARIABLE, SERVICE, TOKEN_VARIABLE
from lab.topology.proxying import probed_services

INTENT = compile_scenario("overlay").intent
IMAGES = {"linux": "agnhost:l", "windows": "agnhost:w"}
MADE = manifests(INTENT, ObjectOwner("mine", "abc"), IMAGES)


def by_name(objects: tuple[dict[str, Any], ...]) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in objects}


def test_every_service_selects_exactly_the_pods_that_the_intent_puts_behind_it():
    pods = by_name(MADE.pods)
    made = by_name(MADE.services)
    assert set(made) == {service.name for service in probed_services(INTENT)}
    for service in probed_services(INTENT):
        selector = made[service.name]["spec"]["selector"].items()
        chosen = {
            name for name, pod in pods.items() if selector <= pod["metadata"]["labels"].items()
        }
        assert chosen == {backend.pod for backend in service.backends}
    assert len(made["everyone"]["spec"]["selector"]) == 2


def test_services_have_the_intents_addresses_and_ports_for_both_protocols():
    made = by_name(MADE.services)
    for service in probed_services(INTENT):
        spec = made[service.name]["spec"]
        assert spec["clusterIP"] == service.address
        assert {port["protocol"] for port in spec["ports"]} == {"TCP", "UDP"}
        for port in spec["ports"]:
            assert (port["port"], port["targetPort"]) == (service.ports[0].port, 8080)
            assert port.get("nodePort") == service.ports[0].node_port


def test_clusters_own_dns_is_left_to_it():
    assert "kube-dns" not in by_name(MADE.services)
    assert "coredns" not in by_name(MADE.pods)


def test_every_pod_is_pinned_to_its_node_and_known_by_its_environment():
    pods = by_name(MADE.pods)
    for machine in INTENT.machines:
        for probe in machine.pods:
            if probe.role != "probe":
                continue
            spec = pods[probe.name]["spec"]
            assert spec["nodeSelector"]["kubernetes.io/hostname"] == machine.name
            assert spec["os"] == {"name": machine.os}
            assert spec["containers"][0]["image"] == IMAGES[machine.os]
            carried = {each["name"]: each["value"] for each in spec["containers"][0]["env"]}
            assert carried == {TOKEN_VARIABLE: "abc", POD_VARIABLE: probe.name}


def test_windows_nodes_alone_have_a_pod_in_their_place():
    hosts = {name: one for name, one in by_name(MADE.pods).items() if name.startswith("host-")}
    assert set(hosts) == {"host-win1", "host-win2"}
    for host in hosts.values():
        assert host["spec"]["hostNetwork"]
        assert host["spec"]["securityContext"]["windowsOptions"]["hostProcess"]


def test_pods_of_windows_have_no_field_of_linux():
    linux = ("runAsUser", "seLinux", "seccomp", "fsGroup", "capabilities", "privileged")
    for document in MADE.pods:
        if document["spec"]["os"]["name"] == "windows":
            text = json.dumps(document).replace("UserName", "")
            assert not [word for word in linux if f'"{word}' in text]


MACHINE = INTENT.machine("win1")
VALUES = Values("geheim", "offen")
SUMMARY = {
    "node": {"cpu": {"usageCoreNanoSeconds": 1}, "memory": {"workingSetBytes": 1}},
    "pods": [
        {
            "podRef": {"namespace": "hybridlab-probe"},
            "cpu": {"usageCoreNanoSeconds": 1},
            "memory": {"workingSetBytes": 1},
        }
    ],
}
LOG = "[/agnhost entrypoint-tester s=geheim c=offen]\n"


def found(**codes: int) -> dict[str, Any]:
    return {
        "spec": {"nodeName": "win1"},
        "status": {
            "containerStatuses": [
                {
                    "name": name,
                    "state": {"terminated": {"exitCode": codes.get(name.replace("-", "_"), 0)}},
                }
                for name in ("environment", "host-path", "empty-dirs")
            ]
        },
    }


def failed(results: tuple[Any, ...]) -> dict[str, str]:
    return {result.check: result.detail for result in results if result.verdict != "pass"}


def test_workload_checks_pass_where_all_is_well():
    results = judge(MACHINE, found(), LOG, VALUES, SUMMARY)
    assert [result.check for result in results] == list(CHECKS)
    assert failed(results) == {}


def test_each_workload_check_fails_by_itself():
    wrong = judge(MACHINE, found(), LOG.replace("geheim", ""), VALUES, SUMMARY)
    assert failed(wrong) == {"secret": "the variable does not have the value of the Secret"}
    assert "geheim" not in repr(wrong)
    assert list(failed(judge(MACHINE, found(), "s=geheim", VALUES, SUMMARY))) == ["config-map"]
    assert failed(judge(MACHINE, found(host_path=1), LOG, VALUES, SUMMARY)) == {
        "host-path": "container 'host-path' ended with exit code 1"
    }
    assert list(failed(judge(MACHINE, found(empty_dirs=1), LOG, VALUES, SUMMARY))) == ["empty-dirs"]
    elsewhere = {**found(), "spec": {"nodeName": "worker1"}}
    assert list(failed(judge(MACHINE, elsewhere, LOG, VALUES, SUMMARY))) == ["node-selector"]
    lone = {**SUMMARY, "pods": []}
    assert list(failed(judge(MACHINE, found(), LOG, VALUES, lone))) == ["pod-metrics"]
    blind = {**SUMMARY, "node": {}}
    assert list(failed(judge(MACHINE, found(), LOG, VALUES, blind))) == ["node-metrics"]
    mute = failed(judge(MACHINE, found(), LOG, VALUES, "no route"))
    assert mute == {"pod-metrics": "no route", "node-metrics": "no route"}


def test_workload_pod_takes_its_values_from_both_sources():
    secret, config = sources(ObjectOwner("mine", "abc"), VALUES)
    made = pod(MACHINE, ObjectOwner("mine", "abc"), IMAGES)
    variables = made["spec"]["containers"][0]["env"]
    keys = [next(iter(variable["valueFrom"].values())) for variable in variables]
    assert secret["stringData"][keys[0]["key"]] == "geheim"
    assert config["data"][keys[1]["key"]] == "offen"
    assert len([volume for volume in made["spec"]["volumes"] if "emptyDir" in volume]) == 3
    assert len(wanted(INTENT)) == 5 * len(CHECKS)


SPECIAL = compile_scenario("services").intent
SPECIAL_MADE = manifests(SPECIAL, ObjectOwner("services", "abc"), IMAGES)


def test_special_services_have_the_fields_that_kubernetes_has_for_them():
    spec = {name: one["spec"] for name, one in by_name(SPECIAL_MADE.services).items()}
    assert spec["sticky"]["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}
    assert "sessionAffinity" not in spec["shop"]
    near, home, by_name_ = spec["near-linux"], spec["at-home"], spec["by-name"]
    assert (near["type"], near["externalTrafficPolicy"]) == ("LoadBalancer", "Local")
    assert near["healthCheckNodePort"] not in {port["nodePort"] for port in near["ports"]}
    assert (home["internalTrafficPolicy"], "externalTrafficPolicy" in home) == ("Local", False)
    assert (by_name_["clusterIP"], "ports" in by_name_) == ("None", False)
    named = [(port["name"], port["protocol"], port["targetPort"]) for port in spec["shop"]["ports"]]
    assert named == [
        ("web-tcp", "TCP", 8080),
        ("web-udp", "UDP", 8080),
        ("admin", "TCP", 8081),
        ("log", "UDP", 8080),
    ]


def test_pods_of_special_services_have_what_these_need():
    pods = {name: one["spec"] for name, one in by_name(SPECIAL_MADE.pods).items()}
    behind = {backend.pod for service in SPECIAL.headless for backend in service.backends}
    assert {name for name, spec in pods.items() if "subdomain" in spec} == behind
    twice = {name for name, spec in pods.items() if len(spec["containers"]) > 1}
    assert twice == {"worker2-p1"}
    second = pods["worker2-p1"]["containers"][1]
    assert "--http-override=/echo?msg=worker2-p1:8081" in second["command"]
    labels = by_name(SPECIAL_MADE.pods)["worker1-p1"]["metadata"]["labels"]
    assert {name.partition("/")[2] for name in labels if name.startswith(SERVICE)} == {
        *("to-worker1-p1", "everyone", "sticky", "near-linux", "at-home", "by-name")
    }
