"""HNS' answers to documents as the real programs send them."""

import json
from dataclasses import replace

import pytest
from hns_documents import (
    NETWORK,
    NEW,
    POD,
    SPACE,
    STATE,
    add_endpoint,
    after,
    asked,
    load_balancer,
    overlay_network,
    overlay_with_a_pod,
    pod_endpoint,
    remote_subnet,
)

from lab.facts.items import VNI
from lab.topology.intent import Resolver
from lab.windows.facts import facts
from lab.windows.wine.hns import documents
from lab.windows.wine.hns.service import (
    ATTACH_REFUSED,
    BALANCERS_KEPT,
    BALANCERS_REFUSED,
    DSR_IGNORED,
    NETWORKS_LOST,
    OTHER_CARD,
    UNUSED_CARD,
    HnsState,
    after_restart,
)

OVERLAY = overlay_network("10.244.1.0/24", "10.244.1.1")


def test_an_overlay_gets_provider_address_and_router_mac_of_its_card() -> None:
    state = after(STATE, ("create", f"networks {NETWORK}", OVERLAY))
    _, answer = asked(state, "query", f"networks {NETWORK}")
    network = json.loads(answer.document)
    assert network["ManagementIP"] == "192.0.2.2"
    (provider,) = documents.policies(network, "ProviderAddress")
    assert provider == {"ProviderAddress": "192.0.2.2"}
    (router,) = documents.policies(network, "DrMacAddress")
    assert router == {"Address": "00-15-5D-00-02-02"}


def test_a_network_without_a_card_takes_one_that_is_in_no_switch() -> None:
    first = {"Type": "L2Bridge", "Name": "External", "NetworkAdapterName": "cluster"}
    second = {"Type": "L2Bridge", "Name": "cbr0"}
    state = after(
        STATE, ("call", "POST /networks/", first), ("create", f"networks {NETWORK}", second)
    )
    assert state.of("networks")[NETWORK]["ManagementIP"] == "198.51.100.5"


@pytest.mark.parametrize(
    ("card", "code"), [("vEthernet (cluster)", 0x80070057), ("eth9", 0x803B0006)]
)
def test_a_card_that_windows_refuses_is_refused(card: str, code: int) -> None:
    network = overlay_network("10.244.1.0/24", "10.244.1.1", card)
    state, answer = asked(STATE, "create", f"networks {NETWORK}", network)
    assert answer.code == code
    assert state is STATE


def test_objects_are_found_by_name_and_by_network_as_hcsshim_asks() -> None:
    state = overlay_with_a_pod()
    for kind, wanted, guids in (
        ("networks", {"Name": "flannel.4096"}, [NETWORK]),
        ("networks", {"Name": "cbr0"}, []),
        ("endpoints", {"VirtualNetwork": NETWORK.upper()}, [POD]),
        ("namespaces", {"ID": SPACE}, [SPACE]),
    ):
        _, answer = asked(state, "enumerate", kind, {"Filter": json.dumps(wanted)})
        assert json.loads(answer.document) == guids, kind


def test_version_1_reads_what_version_2_wrote() -> None:
    state = overlay_with_a_pod()
    _, answer = asked(state, "call", f"GET /endpoints/{POD}")
    endpoint = json.loads(answer.document)["Output"]
    assert (endpoint["IPAddress"], endpoint["PrefixLength"]) == ("10.244.1.2", 24)
    assert endpoint["VirtualNetworkName"] == "flannel.4096"
    _, answer = asked(state, "call", "GET /networks/")
    (network,) = json.loads(answer.document)["Output"]
    assert network["Subnets"] == [
        {
            "AddressPrefix": "10.244.1.0/24",
            "GatewayAddress": "10.244.1.1",
            "Policies": [{"Type": "VSID", "VSID": 4096}],
        }
    ]
    assert network["DrMacAddress"] == "00-15-5D-00-02-02"
    assert network["ManagementIP"] == "192.0.2.2"


def test_version_2_reads_what_version_1_wrote() -> None:
    network = {
        "Type": "L2Bridge",
        "Name": "cbr0",
        "NetworkAdapterName": "cluster",
        "Subnets": [{"AddressPrefix": "10.244.2.0/24", "GatewayAddress": "10.244.2.1"}],
    }
    state, answer = asked(STATE, "call", "POST /networks", network)
    guid = json.loads(answer.document)["Output"]["ID"]
    endpoint = {
        "Name": "cbr0_ep",
        "VirtualNetwork": guid,
        "IPAddress": "10.244.2.2",
        "GatewayAddress": "0.0.0.0",
        "Policies": [{"Type": "OutBoundNAT", "ExceptionList": ["10.244.0.0/16"]}],
    }
    state = after(state, ("create", f"endpoints {POD} {guid}", {}))
    state, answer = asked(state, "call", "POST /endpoints", endpoint)
    made = json.loads(answer.document)["Output"]["ID"]
    kept = state.of("endpoints")[made]
    (settings,) = documents.policies(kept, "OutBoundNAT")
    assert settings == {"Exceptions": ["10.244.0.0/16"]}
    assert documents.address(kept) == "10.244.2.2"


def test_flannels_endpoint_of_a_bridge_names_no_gateway() -> None:
    network = {"Type": "L2Bridge", "Name": "cbr0", "NetworkAdapterName": "cluster"}
    state, answer = asked(STATE, "call", "POST /networks", network)
    guid = json.loads(answer.document)["Output"]["ID"]
    endpoint = {"Name": "cbr0_ep", "VirtualNetwork": guid, "IPAddress": "10.244.2.2"}
    state = after(state, ("call", "POST /endpoints/", endpoint))
    (made,) = state.of("endpoints").values()
    assert (documents.address(made), documents.gateway(made)) == ("10.244.2.2", "")


def test_an_endpoint_without_an_address_gets_a_free_one() -> None:
    state = after(STATE, ("create", f"networks {NETWORK}", OVERLAY))
    first, second = POD, POD.replace("2", "4")
    for guid in (first, second):
        state = after(state, ("create", f"endpoints {guid} {NETWORK}", {}))
    addresses = [documents.address(state.of("endpoints")[guid]) for guid in (first, second)]
    assert addresses == ["10.244.1.100", "10.244.1.101"]


def test_a_missing_object_is_refused_with_the_code_that_hcsshim_knows() -> None:
    codes = {"networks": 0x803B0001, "endpoints": 0x803B0002, "loadbalancers": 0x80070490}
    for kind, code in codes.items():
        _, answer = asked(STATE, "open", f"{kind} {POD}")
        assert answer.code == code, kind
    _, answer = asked(STATE, "call", f"GET /networks/{NETWORK}")
    assert (answer.code, json.loads(answer.document)["Success"]) == (0, False)


def test_policies_are_added_updated_and_removed() -> None:
    state = overlay_with_a_pod()
    old = remote_subnet("10.244.3.0/24", "192.0.2.3", "0E-00-00-00-00-03")
    new = remote_subnet("10.244.4.0/24", "192.0.2.4", "0E-00-00-00-00-04")

    def prefixes(of: HnsState) -> list[str]:
        network = of.of("networks")[NETWORK]
        remotes = documents.policies(network, "RemoteSubnetRoute")
        return [remote["DestinationPrefix"] for remote in remotes]

    both = after(state, ("modify", f"networks {NETWORK}", new))
    assert prefixes(both) == ["10.244.3.0/24", "10.244.4.0/24"]
    last = after(both, ("modify", f"networks {NETWORK}", {**old, "RequestType": "Remove"}))
    assert prefixes(last) == ["10.244.4.0/24"]
    updated = after(last, ("modify", f"networks {NETWORK}", {**old, "RequestType": "Update"}))
    assert prefixes(updated) == ["10.244.3.0/24"]


def test_kube_proxys_update_replaces_a_load_balancer() -> None:
    state = after(
        overlay_with_a_pod(),
        ("create", "loadbalancers -", load_balancer([POD], ["10.96.0.10"], 80, 8080)),
    )
    (guid,) = state.of("loadbalancers")
    state = after(
        state, ("modify", f"loadbalancers {guid}", load_balancer([], ["10.96.0.10"], 80, 8080))
    )
    assert state.of("loadbalancers")[guid]["HostComputeEndpoints"] == []


def test_version_1_has_load_balancers_as_policy_lists_and_deletes_them() -> None:
    balancer = load_balancer([POD], ["10.96.0.10"], 80, 8080)
    state = after(overlay_with_a_pod(), ("create", "loadbalancers -", balancer))
    _, answer = asked(state, "call", "GET /policylists/")
    (listed,) = json.loads(answer.document)["Output"]
    assert listed["References"] == [f"/endpoints/{POD}"]
    (policy,) = listed["Policies"]
    assert (policy["Type"], policy["VIPs"]) == ("ELB", ["10.96.0.10"])
    assert (policy["ExternalPort"], policy["InternalPort"]) == (80, 8080)
    state = after(state, ("call", f"DELETE /policylists/{listed['ID']}", None))
    assert not state.of("loadbalancers")


def test_the_facts_of_a_windows_node_fit_what_hns_answers() -> None:
    balancer = load_balancer([POD], ["10.96.0.10"], 80, 8080)
    state = after(overlay_with_a_pod(), ("create", "loadbalancers -", balancer))
    answers = {}
    for name, path in (
        ("networks", "networks"),
        ("endpoints", "endpoints"),
        ("policies", "policylists"),
    ):
        _, answer = asked(state, "call", f"GET /{path}/")
        answers[name] = [json.dumps(each) for each in json.loads(answer.document)["Output"]]
    node = facts(answers)
    assert node.items.attribute("flannel.4096", VNI) == "4096"
    assert node.items.attribute("flannel.4096", "address") == "00:15:5d:00:02:02"
    assert node.pods is not None
    (pod,) = node.pods
    assert pod.items.works(POD)
    (service,) = node.translations.services
    assert (service.address, service.port) == ("10.96.0.10", 80)
    assert [end.address for end in service.backends] == ["10.244.1.2"]
    assert pod.resolver == Resolver("10.96.0.10", ("probe.svc.cluster.local",), 1)


def test_deleting_a_network_deletes_its_endpoints() -> None:
    state = after(overlay_with_a_pod(), ("delete", f"networks {NETWORK}", None))
    assert not state.of("endpoints")
    assert state.of("namespaces")[SPACE]["Resources"] == []


def test_flannels_overlay_and_every_pod_are_gone_after_a_restart() -> None:
    state = after_restart(overlay_with_a_pod())
    assert (dict(state.of("networks")), dict(state.of("namespaces"))) == ({}, {})
    bridge = {"Type": "L2Bridge", "Name": "cbr0", "NetworkAdapterName": "cluster"}
    kept = after_restart(after(STATE, ("call", "POST /networks/", bridge)))
    assert [network["Name"] for network in kept.of("networks").values()] == ["cbr0"]


def with_habit(state: HnsState, habit: str) -> HnsState:
    return after(state, ("call", f"POST /habits/{habit}", {"On": True}))


BALANCER = load_balancer([POD], ["10.96.0.10"], 80, 8080)


@pytest.mark.parametrize(
    ("habit", "question", "code"),
    [
        (ATTACH_REFUSED, ("modify", f"namespaces {SPACE}", add_endpoint(POD)), 0x803B0017),
        (BALANCERS_REFUSED, ("create", "loadbalancers -", BALANCER), 0x803B0013),
        (BALANCERS_KEPT, ("delete", f"loadbalancers {NEW}", None), 0x80004005),
    ],
)
def test_a_habit_refuses_as_long_as_it_is_switched_on(habit, question, code) -> None:
    state = after(overlay_with_a_pod(), ("create", "loadbalancers -", BALANCER))
    refusing = with_habit(state, habit)
    kept, answer = asked(refusing, *question)
    assert (kept, answer.code) == (refusing, code)
    healed = after(refusing, ("call", f"POST /habits/{habit}", {"On": False}), question)
    assert healed.habits == frozenset()


def test_a_habit_that_is_not_known_is_refused() -> None:
    _, answer = asked(STATE, "call", "POST /habits/none", {"On": True})
    assert "'none' is none of " in json.loads(answer.document)["Error"]


def test_a_restart_of_the_service_loses_networks_only_by_habit() -> None:
    state = after(overlay_with_a_pod(), ("create", "loadbalancers -", BALANCER))
    assert after(state, ("call", "POST /restart", None)) == state
    lost = after(with_habit(state, NETWORKS_LOST), ("call", "POST /restart", None))
    assert [lost.of(kind) for kind in ("networks", "endpoints", "loadbalancers")] == [{}, {}, {}]


def test_direct_server_return_is_said_of_a_load_balancer_unless_it_is_ignored() -> None:
    for state, direct in ((STATE, True), (with_habit(STATE, DSR_IGNORED), False)):
        made = after(state, ("create", "loadbalancers -", BALANCER))
        _, answer = asked(made, "call", "GET /policylists/")
        (policy,) = json.loads(answer.document)["Output"][0]["Policies"]
        assert policy["IsDSR"] is direct


def test_a_node_with_one_card_has_an_unused_one_as_long_as_a_network_may_be_on_it() -> None:
    alone = replace(STATE, cards=STATE.cards[1:])
    state = with_habit(alone, OTHER_CARD)
    state = after(state, ("create", f"networks {NETWORK}", OVERLAY))
    assert state.of("networks")[NETWORK]["ManagementIP"] == "169.254.83.107"
    state = after(state, ("call", f"POST /habits/{OTHER_CARD}", {"On": False}))
    assert UNUSED_CARD in state.cards
    state = after(state, ("delete", f"networks {NETWORK}", None))
    assert state.cards == alone.cards


def test_a_malformed_document_is_refused_and_changes_nothing() -> None:
    for document in ({"Ipams": [{"Subnets": [{"IpAddressPrefix": "10.0.0.0/40"}]}]},):
        state = after(STATE, ("create", f"networks {NETWORK}", {**OVERLAY, **document}))
        unchanged, answer = asked(
            state, "create", f"endpoints {POD} {NETWORK}", pod_endpoint("x", [])
        )
        assert answer.code == 0x80070057
        assert unchanged is state
    _, answer = asked(STATE, "wish", "networks")
    assert answer.code == 0x803B0015


def test_an_endpoint_is_in_one_namespace_once() -> None:
    state = after(overlay_with_a_pod(), ("modify", f"namespaces {SPACE}", add_endpoint(POD)))
    resources = [{"Type": "Endpoint", "Data": {"ID": POD}}]
    assert state.of("namespaces")[SPACE]["Resources"] == resources


@pytest.mark.parametrize(
    ("operation", "named", "document"),
    [
        ("modify", f"namespaces {SPACE}", {"ResourceType": "Endpoint", "Settings": {}}),
        ("modify", f"endpoints {POD}", ["a list"]),
        ("create", f"networks {NETWORK}", "a text"),
        ("bind", "namespaces", {}),
    ],
)
def test_a_malformed_question_is_refused_and_changes_nothing(operation, named, document) -> None:
    state = overlay_with_a_pod()
    after_it, refusal = asked(state, operation, named, document)
    assert refusal.code == 0x80070057
    assert after_it is state


@pytest.mark.parametrize(
    ("given", "gateway"),
    [
        ([{"NextHop": "", "DestinationPrefix": "0.0.0.0/0"}], "10.244.1.1"),  # win-bridge, no IPAM
        ([{"NextHop": "10.244.1.2", "DestinationPrefix": "0.0.0.0/0"}], "10.244.1.2"),  # sdnbridge
        ([], "10.244.1.1"),
    ],
)
def test_hns_gives_an_address_and_only_a_gateway_that_was_not_asked_for(given, gateway) -> None:
    endpoint = {"IpConfigurations": [{"IpAddress": ""}], "Routes": given}
    state = after(
        STATE,
        ("create", f"networks {NETWORK}", OVERLAY),
        ("create", f"endpoints {POD} {NETWORK}", endpoint),
    )
    made = state.of("endpoints")[POD]
    assert documents.address(made).startswith("10.244.1.")
    assert documents.gateway(made) == gateway
