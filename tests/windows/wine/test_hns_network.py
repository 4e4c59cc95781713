"""HNS' objects as the network of a node."""

from dataclasses import replace

import pytest
from hns_documents import (
    NETWORK,
    POD,
    REMOTE,
    STATE,
    after,
    load_balancer,
    overlay_with_a_pod,
    pod_endpoint,
    remote_endpoint,
    remote_subnet,
)

from lab.providers.netns.operations import AddressAdd, AddressRemove, LinkRemove, RouteRemove
from lab.topology.intent import Bridge, ForwardingEntry, Neighbour, Route
from lab.windows.wine.hns.network import (
    NOWHERE,
    changes,
    node_network,
    own_operations,
    pod_operations,
    rules,
)
from lab.windows.wine.hns.service import HnsState

INDEXES = {"mgmt": 2, "cluster": 3}


def balanced(fronts: list[str], distribution: int = 0, **more: int) -> HnsState:
    balancer = load_balancer([POD, REMOTE], fronts, 30080, 8080, distribution) | more
    return after(
        overlay_with_a_pod(),
        ("create", f"endpoints {REMOTE} {NETWORK}", remote_endpoint("10.244.3.7", "192.0.2.3")),
        ("create", "loadbalancers -", balancer),
    )


def test_an_overlay_is_flannels_bridge_and_tunnel() -> None:
    machine = node_network(overlay_with_a_pod()).machine
    assert machine.bridge == Bridge("hns", "0a:58:0a:f4:01:00", ("10.244.1.1/32",), 1450)
    assert machine.tunnel is not None
    assert (machine.tunnel.vni, machine.tunnel.port) == (4096, 4789)
    assert (machine.tunnel.local, machine.tunnel.device) == ("192.0.2.2", "cluster")
    assert machine.tunnel.mac == "00:15:5d:00:02:02"


def test_a_remote_subnet_is_a_route_a_neighbour_and_a_forwarding_entry() -> None:
    machine = node_network(overlay_with_a_pod()).machine
    mac = "0e:00:00:00:00:03"
    own, remote = machine.routes
    assert own == Route("10.244.1.0/24", "hns", source="192.0.2.2")
    assert remote == Route("10.244.3.0/24", "vxlan4096", "10.244.3.0", onlink=True)
    assert machine.neighbours == (Neighbour("10.244.3.0", mac, "vxlan4096"),)
    assert machine.forwarding == (ForwardingEntry(mac, "vxlan4096", "192.0.2.3"),)


def test_a_pod_has_its_endpoints_address_mac_and_mtu() -> None:
    (pod,) = node_network(overlay_with_a_pod()).pods.values()
    assert (pod.name, pod.address, pod.gateway) == ("cni-1", "10.244.1.2/24", "10.244.1.1")
    assert (pod.mac, pod.mtu) == ("0e:2a:0a:f4:01:02", 1450)


@pytest.mark.parametrize(
    ("exceptions", "own"),
    [
        ([["10.244.0.0/16", "10.96.0.0/12"]], ("10.244.0.0/16", "10.96.0.0/12")),
        ([["10.244.0.0/16"], ["10.244.0.0/16", "10.96.0.0/12"]], ("10.244.0.0/16",)),
        ([[]], ()),
    ],
)
def test_pods_keep_their_address_only_to_outboundnats_exceptions(
    exceptions: list[list[str]], own: tuple[str, ...]
) -> None:
    state = overlay_with_a_pod()
    state = after(state, ("delete", f"endpoints {POD}", None))
    for number, prefixes in enumerate(exceptions):
        endpoint = pod_endpoint(f"10.244.1.{number + 2}", prefixes)
        guid = f"2222222{number}{POD[8:]}"
        state = after(state, ("create", f"endpoints {guid} {NETWORK}", endpoint))
    translation = node_network(state).machine.translation
    assert translation is not None
    assert translation.not_masqueraded == own


def test_a_policy_for_a_pods_way_to_itself_translates_nothing_else() -> None:
    loopback = {"Type": "OutBoundNAT", "Settings": {"Destinations": ["10.244.1.2"]}}
    change = {"ResourceType": "Policy", "Settings": {"Policies": [loopback]}}
    add = ("modify", f"endpoints {POD}", {**change, "RequestType": "Add"})
    translation = node_network(after(overlay_with_a_pod(), add)).machine.translation
    assert translation is not None
    assert translation.not_masqueraded == ("10.244.0.0/16", "10.96.0.0/12")


def test_a_load_balancer_is_a_service_with_local_and_remote_backends() -> None:
    translation = node_network(balanced(["10.96.0.10"])).machine.translation
    assert translation is not None
    (service,) = translation.services
    assert (service.address, service.ports[0].port, service.ports[0].target_port) == (
        "10.96.0.10",
        30080,
        8080,
    )
    assert [(backend.address, backend.node) for backend in service.backends] == [
        ("10.244.1.2", "node"),
        ("10.244.3.7", "elsewhere"),
    ]
    assert service.affinity is None


def test_of_two_load_balancers_for_the_same_packets_the_older_one_gets_them() -> None:
    newer = load_balancer([POD], ["10.96.0.10"], 30080, 8080)
    state = after(balanced(["10.96.0.10"]), ("create", f"loadbalancers {REMOTE}", newer))
    translation = node_network(state).machine.translation
    assert translation is not None
    (service,) = translation.services
    assert [backend.address for backend in service.backends] == ["10.244.1.2", "10.244.3.7"]


def test_a_load_balancer_without_front_ends_is_a_node_port() -> None:
    translation = node_network(balanced([])).machine.translation
    assert translation is not None
    (service,) = translation.services
    assert (service.address, service.ports[0].node_port) == (NOWHERE, 30080)
    assert service.outside == "cluster"


def test_a_node_port_with_dsr_keeps_the_clients_address() -> None:
    """kube-proxy asks for it where externalTrafficPolicy is Local, and names local pods alone."""
    translation = node_network(balanced([], Flags=1)).machine.translation
    assert translation is not None
    assert [service.outside for service in translation.services] == ["local"]


@pytest.mark.parametrize(("build", "sticky"), [(20348, 10_800), (17763, None)])
def test_session_affinity_holds_except_on_2019(build: int, sticky: int | None) -> None:
    state = replace(balanced(["10.96.0.10"], distribution=2), build=build)
    translation = node_network(state).machine.translation
    assert translation is not None
    assert translation.services[0].affinity == sticky


def test_windows_rules_hold_and_can_be_switched_off() -> None:
    state = balanced([])
    applied = {drop.rule for drop in node_network(state).machine.drops}
    assert applied == {"WIN-NODEPORT-SELF", "WIN-HOST-SERVICE", "WIN-OVERLAY-NODE-POD"}
    without = {
        drop.rule for drop in node_network(state, frozenset({"WIN-HOST-SERVICE"})).machine.drops
    }
    assert without == applied - {"WIN-HOST-SERVICE"}
    translation = node_network(state).machine.translation
    assert translation is not None
    assert not translation.refuses


def test_a_bridged_network_has_the_nodes_endpoint_and_answers_for_pods() -> None:
    network = {
        "Type": "L2Bridge",
        "Name": "cbr0",
        "NetworkAdapterName": "cluster",
        "Subnets": [{"AddressPrefix": "10.244.2.0/24", "GatewayAddress": "10.244.2.1"}],
    }
    state = after(STATE, ("call", "POST /networks/", network))
    (guid,) = state.of("networks")
    host, pod = f"{POD[:-1]}5", POD
    space = "44444444-0000-0000-0000-000000000004"
    routes = {"Routes": [{"NextHop": "10.244.2.2", "DestinationPrefix": "0.0.0.0/0"}]}
    state = after(
        state,
        ("create", f"endpoints {host} {guid}", pod_endpoint("10.244.2.2", [])),
        ("call", f"POST /endpoints/{host}/attach", {"SystemType": "Host", "CompartmentId": 1}),
        ("bind", f"namespaces {space}", {"Netns": "cni-2"}),
        ("create", f"endpoints {pod} {guid}", {**pod_endpoint("10.244.2.3", []), **routes}),
        (
            "modify",
            f"namespaces {space}",
            {"RequestType": "Add", "ResourceType": "Endpoint", "Settings": {"EndpointId": pod}},
        ),
    )
    made = node_network(state)
    assert made.machine.bridge is not None
    assert made.machine.bridge.addresses == ("10.244.2.2/32",)
    assert made.machine.bridge.mtu == 1500
    assert [(proxy.address, proxy.device) for proxy in made.machine.proxies] == [
        ("10.244.2.3", "cluster")
    ]
    assert made.pods[pod].gateway == "10.244.2.2"


def test_the_same_network_again_needs_no_operation() -> None:
    own = own_operations(node_network(overlay_with_a_pod()).machine, INDEXES)
    assert changes(own, own).operations == ()
    assert changes(None, own).operations == own.operations


def test_the_cards_keep_their_addresses() -> None:
    own = own_operations(node_network(overlay_with_a_pod()).machine, INDEXES)
    added = {operation.device for operation in own.operations if isinstance(operation, AddressAdd)}
    assert added == {"hns", "vxlan4096"}


def test_a_lost_lease_takes_its_route_away() -> None:
    before = overlay_with_a_pod()
    remove = remote_subnet("10.244.3.0/24", "192.0.2.3", "0E-00-00-00-00-03")
    state = after(before, ("modify", f"networks {NETWORK}", {**remove, "RequestType": "Remove"}))
    operations = changes(
        own_operations(node_network(before).machine, INDEXES),
        own_operations(node_network(state).machine, INDEXES),
    ).operations
    removed = [operation for operation in operations if isinstance(operation, RouteRemove)]
    assert [operation.destination for operation in removed] == ["10.244.3.0/24"]
    assert not any(isinstance(operation, LinkRemove | AddressRemove) for operation in operations)


def test_a_deleted_network_takes_its_devices_away() -> None:
    before = overlay_with_a_pod()
    state = after(before, ("delete", f"networks {NETWORK}", None))
    operations = changes(
        own_operations(node_network(before).machine, INDEXES),
        own_operations(node_network(state).machine, INDEXES),
    ).operations
    removed = {operation.device for operation in operations if isinstance(operation, LinkRemove)}
    assert removed == {"hns", "vxlan4096"}


def test_pods_get_interface_indexes_of_their_own() -> None:
    made = node_network(overlay_with_a_pod())
    (pod,) = made.pods.values()
    indexes = [
        dict(namespace.indexes)
        for number in (0, 1)
        for namespace in pod_operations(pod, made.machine, {"hns": 9, "lo": 1}, number)
    ]
    used = [index for each in indexes for name, index in each.items() if name in {pod.port, "eth0"}]
    assert len(set(used)) == len(used) == 4


def test_service_rules_are_kube_proxys_on_linux() -> None:
    own = own_operations(node_network(balanced(["10.96.0.10"])).machine, INDEXES)
    assert "10.96.0.10 . tcp . 30080 : goto service-" in rules(own)
    assert "10.244.1.2 . 8080" in rules(own)
