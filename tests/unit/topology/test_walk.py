"""The intended path: it ends where the matrix says it must, and passes what the tables say."""

from dataclasses import replace
from functools import cache, partial

import pytest
from shipped import cell_of, cells_of, intent_of

from lab.matrix.cell import Cell
from lab.scenario.families import services_node_families
from lab.scenario.loader import shipped
from lab.topology.intent import Intent, MachineIntent
from lab.topology.path import Flow, Path, stations
from lab.topology.walk import walk

KINDS = tuple(sorted(shipped()))


def flow_of(cell: Cell) -> Flow:
    return Flow(cell.source.name, cell.target.address, cell.target.port, cell.protocol)


def asked_first(cell: Cell) -> tuple[str, ...]:
    """Who answers for a cell, or makes a connection of its own to those who do."""
    if cell.family == "api":
        return ("services",)
    if cell.family == "node-names" and cell.source.kind == "pod":
        return ("coredns",)
    return cell.backends


def pods(intent: Intent, one: str, other: str) -> Flow:
    target = next(pod for m in intent.machines for pod in m.pods if pod.name == other)
    return Flow(one, target.address.partition("/")[0], 8080, "tcp")


def changed(intent: Intent, name: str, **what: object) -> Intent:
    def one(machine: MachineIntent) -> MachineIntent:
        return replace(machine, **what) if machine.name == name else machine  # type: ignore[arg-type]

    return replace(intent, machines=tuple(one(machine) for machine in intent.machines))


def brief(path: Path) -> list[str]:
    return [f"{hop.place}/{hop.device}" for hop in path.request if hop.device]


@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_arrives_with_a_source_that_the_matrix_allows_and_is_answered(kind):
    intent, made = intent_of(kind), cells_of(kind)
    judged = 0
    walk_once = cache(partial(walk, intent))  # cells of every size have the same path
    for cell in made:
        paths = walk_once(flow_of(cell))
        if cell.refusal is not None:
            does = {"refused": "refuses it", "timeout": "loses it"}[cell.refusal]
            assert [path.end.endswith(does) for path in paths] == [True], cell.id
            continue
        assert [path.end for path in paths] == [""] * len(paths), cell.id
        for path in paths:
            got, packet = path.reply[-1].packet, path.request[0].packet
            assert (got.source, got.target) == (cell.target.address, packet.source), cell.id
        if has_sources(kind, cell):
            judged += 1
            assert {path.request[-1].packet.source for path in paths} <= set(cell.sources), cell.id
        if cell.family == "health-check":
            assert [path.request[-1].place for path in paths] == [cell.entry]
            continue
        answering = tuple(name.partition(":")[0] for name in asked_first(cell))
        assert tuple(path.request[-1].place for path in paths) == answering, cell.id
        assert {path.reply[-1].place for path in paths} == {cell.source.name}, cell.id
    assert judged > len(made) / 4


def has_sources(kind: str, cell: Cell) -> bool:
    if kind == "ovn" and cell.entry_os == "windows":
        return False  # a known limit: nobody there passes NodePorts on
    return bool(cell.sources) and cell.family not in services_node_families()


def test_a_tunnel_is_walked_through_its_tables_and_the_network_below_it():
    intent = intent_of("overlay")
    (path,) = walk(intent, pods(intent, "master-p1", "worker1-p1"))
    assert brief(path) == [
        "master-p1/eth0",
        "master/veth1",
        "master/cni0",
        "master/flannel.4096",
        "master/eth0",
        "worker1/eth0",
        "worker1/flannel.4096",
        "worker1/cni0",
        "worker1/veth1",
        "worker1-p1/eth0",
    ]
    assert path.machines == ("master", "worker1")
    wire = next(hop for hop in path.request if hop.kind == "card")
    assert (wire.packet.protocol, wire.packet.port) == ("udp", 4789)
    assert wire.carried is not None
    assert wire.carried.port == 8080
    assert [str(hop) for hop in path.request if hop.kind in {"route", "neighbour", "entry"}][
        1:5
    ] == [
        "master: route to 10.244.1.0/24",
        "master: neighbour 10.244.1.0 on flannel.4096",
        "master: forwarding entry 0a:58:0a:f4:01:00 on flannel.4096",
        "master: route to 10.9.176.0/24",
    ]


def test_between_hypervisors_the_segments_own_tunnel_is_walked():
    intent = intent_of("kubeinit")
    (path,) = walk(intent, pods(intent, "controller-01-p1", "compute-01-p1"))
    assert path.machines == ("controller-01", "hypervisor-01", "hypervisor-02", "compute-01")
    on_them = [hop for hop in path.request if hop.machine.startswith("hypervisor-")]
    assert [f"{hop.machine[-2:]} {hop.object}" for hop in on_them] == [
        *("01 port vnet0 of controller-01", "01 switch br-nodes", "01 tunnel vxlan-nodes"),
        *("01 forwarding entry 0a:58:0a:00:00:04 on vxlan-nodes", "01 output"),
        *("01 route to 203.0.113.0/24", "01 neighbour 203.0.113.2 on eth0", "01 card eth0"),
        *("02 card eth0", "02 input", "02 tunnel vxlan-nodes", "02 switch br-nodes"),
        "02 port vnet0 of compute-01",
    ]
    wire = on_them[7]
    assert (wire.packet.source, wire.packet.target) == ("203.0.113.1", "203.0.113.2")
    assert wire.carried is not None
    assert (wire.carried.source, wire.carried.target) == ("10.0.0.1", "10.0.0.4")


def test_machines_of_one_hypervisor_meet_on_its_switch():
    intent = intent_of("kubeinit")
    (path,) = walk(intent, pods(intent, "controller-01-p1", "controller-02-p1"))
    on_it = [hop.object for hop in path.request if hop.machine == "hypervisor-01"]
    assert on_it == [
        "port vnet0 of controller-01",
        "switch br-nodes",
        "port vnet1 of controller-02",
    ]
    assert {hop.machine for hop in path.hops} == {"controller-01", "hypervisor-01", "controller-02"}


@pytest.mark.parametrize(
    ("kind", "between"), [("upstream-tor", {"router"}), ("host-gateway", set())]
)
def test_the_router_is_passed_both_ways_where_it_alone_knows_the_routes(kind, between):
    intent = intent_of(kind)
    machine, other = [m for m in intent.machines if m.pods][:2]
    (path,) = walk(intent, pods(intent, machine.pods[-1].name, other.pods[-1].name))
    assert path.machines == (machine.name, *between, other.name)
    assert {hop.machine for hop in path.reply} == {machine.name, *between, other.name}
    assert bool(intent.machine("router").routes) == bool(between)


def test_a_service_with_several_backends_has_a_path_for_each():
    intent, made = intent_of("overlay"), cells_of("overlay")
    cell = next(cell for cell in made if len(cell.backends) > 1)
    paths = walk(intent, flow_of(cell))
    assert tuple(path.backend for path in paths) == cell.backends


def test_a_nodeport_is_translated_at_the_node_that_is_asked():
    cell = cell_of("overlay", "nodeport/client/worker1:to-win1-p1/tcp-small")
    (path,) = walk(intent_of("overlay"), flow_of(cell))
    said = [
        (hop.machine, hop.kind) for hop in path.request if hop.kind in {"service", "masquerade"}
    ]
    assert said == [("worker1", "service"), ("worker1", "masquerade")]
    undone = [hop.machine for hop in path.reply if hop.kind == "untranslated"]
    assert undone == ["worker1"]


def test_pods_of_one_node_meet_on_its_bridge_alone():
    intent = intent_of("overlay")
    node = next(machine for machine in intent.machines if len(machine.pods) > 1)
    (path,) = walk(intent, pods(intent, node.pods[0].name, node.pods[1].name))
    assert path.machines == (node.name,)
    assert not {hop.kind for hop in path.hops} & {"route", "forwarding", "way-out"}


def test_a_pod_whose_port_is_not_known_enters_its_bridge_as_others_do() -> None:
    """A cluster's Windows pods have none."""
    intent = intent_of("overlay")
    node = intent.machine("win1")
    unknown = tuple(replace(pod, port="") for pod in node.pods)
    intent = changed(intent, "win1", pods=unknown)
    path = walk(intent, pods(intent, "win1-p1", "worker1-p1"))[0]

    def at(name: str) -> list[str]:
        ways = (stations(path.request), stations(path.reply))
        return [each.passing for way in ways for each in way if each.device == name]

    assert node.bridge
    assert node.bridge.name == "cni0"
    assert at("cni0")[:1] + at("cni0")[-1:] == ["in", "out"]
    beside = walk(intent, pods(intent, "win1-p1", "win1-p2"))[0]
    assert [str(each) for each in stations(beside.request)] == ["win1-p1 eth0", "win1-p2 eth0"]


def test_a_path_that_ends_in_the_intent_has_the_reason():
    intent = intent_of("overlay")
    flow = pods(intent, "master-p1", "worker1-p1")
    broken = changed(intent, "master", routes=())
    (path,) = walk(broken, flow)
    assert path.end == f"master has no route to {flow.target}"
    assert path.reply == ()
    (path,) = walk(changed(intent, "master", forwarding=()), flow)
    assert path.end == "master has no forwarding entry for 10.244.1.0"
    (path,) = walk(changed(intent, "worker1", routes=()), flow)
    assert path.request[-1].place == "worker1-p1"
    assert path.end.startswith("worker1 has no route to")


def test_a_service_without_backends_is_refused():
    intent, made = intent_of("overlay"), cells_of("overlay")
    cell = next(cell for cell in made if cell.family == "pod-service")
    machine = intent.machine(str(cell.source.node))
    assert machine.translation is not None
    services = tuple(replace(service, backends=()) for service in machine.translation.services)
    broken = changed(
        intent, machine.name, translation=replace(machine.translation, services=services)
    )
    (path,) = walk(broken, flow_of(cell))
    assert path.end.endswith(f"has no backends: {machine.name} refuses it")


def test_a_circle_is_found():
    intent = intent_of("upstream-tor")
    machine, other = [m for m in intent.machines if m.pods][:2]
    router = intent.machine("router")
    back = tuple(
        replace(route, via=machine.interfaces[0].addresses[0].partition("/")[0])
        for route in router.routes
    )
    (path,) = walk(
        changed(intent, "router", routes=back),
        pods(intent, machine.pods[-1].name, other.pods[-1].name),
    )
    assert "loops at" in path.end


def test_an_unknown_source_is_a_separate_error():
    intent = intent_of("overlay")
    with pytest.raises(KeyError):
        walk(intent, Flow("nobody", "10.244.1.4", 8080, "tcp"))
