"""The daemons of OVN on each machine and their configuration, from the Intent alone. Pure.

Every chassis runs ovsdb-server, ovs-vswitchd and ovn-controller; the central machine also runs the
two databases and ovn-northd. Each call of ovs-vsctl or ovn-nbctl is one transaction in a script
beside the database, which can be read, kept as evidence and run again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from shlex import quote

from lab.scenario.terms import Protocol, ServicePort
from lab.topology import proxying
from lab.topology.daemon import Daemon, File, Ready
from lab.topology.intent import Backend, Intent, MachineIntent, ProxiedService
from lab.topology.logical import Chassis, LogicalNetwork, LogicalPort, LogicalSwitch

Clause = tuple[str, ...]
"""One command within a transaction of ovs-vsctl or ovn-nbctl."""
BALANCERS = "services"
"""Name of the load balancer group that every switch has."""
_PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp")
_LONGEST_AFFINITY_SECONDS = 65_535
"""Limit in seconds (ovn-nb(5), affinity_timeout)."""


def wire_switches(network: LogicalNetwork) -> Iterator[Clause]:
    """The router, and every switch on it with its ports."""
    yield ("lr-add", network.router)
    for switch in network.switches:
        yield from _switch_wiring(network.router, switch)
    for route in network.routes:
        yield ("--policy=src-ip", "lr-route-add", network.router, route.source, route.via)


def _switch_wiring(router: str, switch: LogicalSwitch) -> Iterator[Clause]:
    to_switch, to_router = f"rtos-{switch.name}", f"stor-{switch.name}"
    yield ("ls-add", switch.name)
    yield ("set", "Logical_Switch", switch.name, f'other_config:subnet="{switch.subnet}"')
    yield ("lrp-add", router, to_switch, switch.gateway_mac, switch.gateway)
    yield ("lsp-add", switch.name, to_router)
    yield ("lsp-set-type", to_router, "router")
    yield ("lsp-set-addresses", to_router, "router")
    yield ("lsp-set-options", to_router, f"router-port={to_switch}")
    for port in switch.ports:
        yield ("lsp-add", switch.name, port.name)
        yield ("lsp-set-addresses", port.name, f"{port.mac} {port.address}")


def balance_services(
    network: LogicalNetwork, services: tuple[ProxiedService, ...]
) -> Iterator[Clause]:
    """A load balancer per Service and protocol, in one group that every switch has.

    A Service with a local policy has a separate load balancer on every switch.
    """
    everywhere: list[str] = []
    on_switch: list[tuple[str, str]] = []
    for number, service in enumerate(services):
        for protocol in _PROTOCOLS:
            if not any(protocol in port.protocols for port in service.ports):
                continue
            if service.inside == "cluster":
                name = f"@{protocol}{number}"
                everywhere.append(name)
                yield _make_balancer(name, network, service, protocol, service.backends)
                continue
            for place, switch in enumerate(network.switches):
                name = f"@{protocol}{number}on{place}"
                on_switch.append((switch.name, name))
                local = proxying.local(service, switch.name)
                yield _make_balancer(name, network, service, protocol, local)
    group = f"@{BALANCERS}"
    members = (f"load_balancer={','.join(everywhere)}",) if everywhere else ()
    yield (f"--id={group}", "create", "Load_Balancer_Group", f"name={BALANCERS}", *members)
    for switch in network.switches:
        yield ("add", "Logical_Switch", switch.name, "load_balancer_group", group)
    for switch_name, name in on_switch:
        yield ("add", "Logical_Switch", switch_name, "load_balancer", name)


def _make_balancer(
    name: str,
    network: LogicalNetwork,
    service: ProxiedService,
    protocol: Protocol,
    backends: tuple[Backend, ...],
) -> Clause:
    """One row; a Service without backends rejects, as with kube-proxy."""
    refuses = "false" if service.backends else "true"
    affinity = service.affinity
    options = [f'options:hairpin_snat_ip="{network.hairpin}"', f"options:reject={refuses}"]
    if affinity is not None:
        seconds = min(affinity, _LONGEST_AFFINITY_SECONDS)
        options.append(f"options:affinity_timeout={seconds}")
    return (
        f"--id={name}",
        "create",
        "Load_Balancer",
        f'name="{balancer_name(service, protocol)}"',
        f"protocol={protocol}",
        *options,
        *(
            f'vips:"{service.address}:{port.port}"="{_ends(backends, port)}"'
            for port in service.ports
            if protocol in port.protocols
        ),
    )


def _ends(backends: tuple[Backend, ...], port: ServicePort) -> str:
    return ",".join(f"{backend.address}:{port.target_port}" for backend in backends)


def balancer_name(service: ProxiedService, protocol: Protocol) -> str:
    """Name of a Service's load balancer: ``"everyone/tcp"``."""
    return f"{service.name}/{protocol}"


_SWITCH_RUN, _OVN_RUN = "/run/openvswitch", "/run/ovn"
"""Default directory in which Open vSwitch's and OVN's commands look for their daemons."""
_SWITCH_SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
_OVN_SCHEMAS = "/usr/share/ovn"
_SCHEMAS = {"ovnnb_db": "ovn-nb.ovsschema", "ovnsb_db": "ovn-sb.ovsschema"}
_DATABASES, _DATA_PATH, _CONTROLLERS = range(3)
"""Stages: each needs all of the one before, on every machine."""
_SETTLES_SECONDS = 0.3
"""Seconds until a stage is ready; measured, like each daemon's memory."""
_PATIENCE_SECONDS = 60
"""Interval of the OpenFlow inactivity probe; OVN's default of 5 s is short for a busy machine."""

_SMALL_FRAGMENTS = ("ovs-appctl", "--timeout=60", "dpctl/ipf-set-min-frag", "v4", "400")
"""By default the userspace data path drops fragments below 1,200 bytes, which the pods of a segment
with a small MTU send; 400 is the least that can be set (ovs-vswitchd(8))."""
_NO_EMPTY_NAT = """#!/bin/sh
# Open vSwitch 3.1 ends itself (conn_update_state in lib/conntrack.c) when a connection's ports are
# used again soon after it was committed with an address of zeros to translate to. It is told to
# OVN as a thing that this data path cannot do.
set -eu
found=$(ovs-vsctl --no-wait --timeout=60 get Open_vSwitch . datapaths:{datapath})
exec ovs-vsctl --no-wait --timeout=60 \\
  -- wait-until Datapath "$found" capabilities:recirc=true \\
  -- set Datapath "$found" capabilities:ct_zero_snat=false
"""


def add(intent: Intent) -> Intent:
    """The Intent with every machine's daemons."""
    network = intent.logical
    assert network is not None, "asked for a logical network alone"
    remote = f"tcp:{_address(intent.machine(network.central))}:{network.southbound}"
    services = next(
        (machine.translation.services for machine in intent.machines if machine.translation), ()
    )
    machines = []
    for machine in intent.machines:
        daemons: tuple[Daemon, ...] = ()
        if machine.name == network.central:
            daemons += (
                _make_northbound(network, services),
                _make_southbound(_address(machine), network.southbound),
                _make_northd(),
            )
        if machine.chassis:
            daemons += (
                _switch_database(machine, network, remote),
                _switch(machine),
                _make_controller(machine.chassis, remote),
            )
        machines.append(replace(machine, daemons=(*machine.daemons, *daemons)))
    return replace(intent, machines=tuple(machines))


def _address(machine: MachineIntent) -> str:
    return machine.interfaces[0].addresses[0].partition("/")[0]


def _make_northbound(network: LogicalNetwork, services: tuple[ProxiedService, ...]) -> Daemon:
    wanted = (*wire_switches(network), *balance_services(network, services))
    return _make_database(
        "ovn-northbound",
        "ovnnb_db",
        script("northbound.sh", ("ovn-nbctl", "--no-leader-only", "--timeout=60"), wanted),
        (("ovn-nbctl", "show"), ("ovn-nbctl", "lb-list")),
    )


def _make_southbound(address: str, port: int) -> Daemon:
    wanted = (
        ("init",),
        ("set-connection", f"ptcp:{port}:{address}"),
        ("set", "connection", ".", f"inactivity_probe={_PATIENCE_SECONDS * 1000}"),
    )
    return _make_database(
        "ovn-southbound",
        "ovnsb_db",
        script("southbound.sh", ("ovn-sbctl", "--no-leader-only", "--timeout=60"), wanted),
        (("ovn-sbctl", "show"), ("ovn-sbctl", "lflow-list")),
        "--remote=db:OVN_Southbound,SB_Global,connections",
    )


def _make_database(
    name: str, base: str, wanted: File, looks: tuple[tuple[str, str], ...], *remotes: str
) -> Daemon:
    file = f"{_OVN_RUN}/{base}"
    schema = f"{_OVN_SCHEMAS}/{_SCHEMAS[base]}"
    return Daemon(
        name=name,
        package="ovn-central",
        command=_make_server_command(file, *remotes),
        ready=Ready(r"ovsdb-server \(Open vSwitch\)"),
        files=(wanted,),
        before=(("mkdir", "-p", _OVN_RUN), ("ovsdb-tool", "create", f"{file}.db", schema)),
        after=(("sh", f"/run/{name}/{wanted.name}"),),
        looks=tuple((tool, "--no-leader-only", "--timeout=5", look) for tool, look in looks),
        stage=_DATABASES,
        settles_seconds=_SETTLES_SECONDS,
        memory_mib=11,
    )


def _make_server_command(file: str, *remotes: str) -> tuple[str, ...]:
    return (
        "ovsdb-server",
        f"{file}.db",
        f"--remote=punix:{file}.sock",
        *remotes,
        f"--unixctl={file}.ctl",
        f"--pidfile={file}.pid",
    )


def _make_northd() -> Daemon:
    return Daemon(
        name="ovn-northd",
        package="ovn-central",
        command=(
            "ovn-northd",
            f"--ovnnb-db=unix:{_OVN_RUN}/ovnnb_db.sock",
            f"--ovnsb-db=unix:{_OVN_RUN}/ovnsb_db.sock",
            f"--unixctl={_OVN_RUN}/ovn-northd.ctl",
            f"--pidfile={_OVN_RUN}/ovn-northd.pid",
        ),
        ready=Ready("ovn-northd instance is now active"),
        stage=_DATA_PATH,
        settles_seconds=_SETTLES_SECONDS,
        memory_mib=12,
    )


def _switch_database(machine: MachineIntent, network: LogicalNetwork, remote: str) -> Daemon:
    wanted = script(
        "switch.sh",
        ("ovs-vsctl", "--no-wait", "--timeout=60"),
        tuple(_switch_clauses(machine, network, remote)),
    )
    file = f"{_SWITCH_RUN}/db"
    return Daemon(
        name="ovsdb-server",
        package="openvswitch-switch",
        command=_make_server_command(file),
        ready=Ready(r"ovsdb-server \(Open vSwitch\)"),
        files=(wanted,),
        before=(
            ("mkdir", "-p", _SWITCH_RUN),
            ("ovsdb-tool", "create", f"{file}.db", _SWITCH_SCHEMA),
        ),
        after=(("sh", f"/run/ovsdb-server/{wanted.name}"),),
        stage=_DATABASES,
        settles_seconds=_SETTLES_SECONDS,
        memory_mib=11,
    )


def _switch(machine: MachineIntent) -> Daemon:
    chassis = machine.chassis
    assert chassis is not None, "asked of chassis alone"
    assert machine.bridge is not None, "a chassis has pods"
    neighbours = File("tunnel-neighbours.sh", "".join(_tunnel_neighbours(machine)), 0o755)
    no_empty_nat = File(
        "no-empty-nat.sh", _NO_EMPTY_NAT.replace("{datapath}", chassis.datapath), 0o755
    )
    return Daemon(
        name="ovs-vswitchd",
        package="openvswitch-switch",
        command=(
            "ovs-vswitchd",
            f"unix:{_SWITCH_RUN}/db.sock",
            f"--pidfile={_SWITCH_RUN}/ovs-vswitchd.pid",
        ),
        ready=Ready(f"bridge {chassis.integration}: added interface {machine.bridge.name} "),
        files=(no_empty_nat, neighbours),
        after=(
            *(("sh", f"/run/ovs-vswitchd/{file.name}") for file in (no_empty_nat, neighbours)),
            _SMALL_FRAGMENTS,
        ),
        looks=(
            ("ovs-vsctl", "--timeout=5", "show"),
            ("ovs-ofctl", "--timeout=5", "dump-flows", chassis.integration),
            *(
                ("ovs-appctl", "--timeout=5", query)
                for query in (
                    "dpctl/dump-flows",
                    "dpctl/dump-conntrack",
                    "dpctl/show",
                    "tnl/neigh/show",
                    "ovs/route/show",
                    "coverage/show",
                )
            ),
        ),
        stage=_DATA_PATH,
        settles_seconds=_SETTLES_SECONDS,
        memory_mib=23,
    )


def _tunnel_neighbours(machine: MachineIntent) -> Iterator[str]:
    """A script with the neighbours on the node segment.

    Otherwise the switch would send ARP for a first packet, and lose that packet.
    """
    yield "#!/bin/sh\nset -eu\novs-appctl --timeout=60 tnl/neigh/aging 3600 > /dev/null\n"
    cards = [card.name for card in machine.interfaces if card.card]
    for neighbour in machine.neighbours:
        if neighbour.device in cards:
            ends = f"{neighbour.device} {neighbour.address} {neighbour.mac}"
            yield f"ovs-appctl --timeout=60 tnl/neigh/set {ends}\n"


def _make_controller(chassis: Chassis, remote: str) -> Daemon:
    return Daemon(
        name="ovn-controller",
        package="ovn-host",
        command=(
            "ovn-controller",
            f"unix:{_SWITCH_RUN}/db.sock",
            f"--pidfile={_OVN_RUN}/ovn-controller.pid",
        ),
        ready=Ready(f"{remote}: connected"),
        before=(("mkdir", "-p", _OVN_RUN),),
        environment=(("OVS_SYSTEM_ID", chassis.name),),
        stage=_CONTROLLERS,
        settles_seconds=_SETTLES_SECONDS,
        memory_mib=14,
    )


def script(name: str, command: tuple[str, ...], clauses: Iterable[Clause]) -> File:
    """One transaction as a shell script, one clause per line."""
    lines = [" ".join(quote(word) for word in clause) for clause in clauses]
    head = " ".join(command)
    body = "".join(f" \\\n  -- {line}" for line in lines)
    return File(name, f"#!/bin/sh\nexec {head}{body} > /dev/null\n", 0o755)


# Open vSwitch configuration of each chassis


def _switch_clauses(
    machine: MachineIntent, network: LogicalNetwork, remote: str
) -> Iterator[Clause]:
    chassis, bridge = machine.chassis, machine.bridge
    assert chassis is not None, "asked of chassis alone"
    assert bridge is not None, "a chassis has pods"
    yield ("init",)
    known = {
        "system-id": chassis.name,
        "hostname": chassis.name,
        "ovn-remote": remote,
        "ovn-remote-probe-interval": str(_PATIENCE_SECONDS * 1000),
        "ovn-openflow-probe-interval": str(_PATIENCE_SECONDS),
        "ovn-encap-type": chassis.encapsulation,
        "ovn-encap-ip": chassis.local,
        "ovn-bridge": chassis.integration,
        "ovn-bridge-datapath-type": chassis.datapath,
        "ovn-monitor-all": "true",
    }
    yield ("--id=@datapath", "create", "Datapath", "external_ids:made-by=hybridlab")
    yield (
        *("set", "Open_vSwitch", "."),
        *(_external(key, value) for key, value in known.items()),
        f"datapaths:{chassis.datapath}=@datapath",
    )
    for card in machine.interfaces:
        if card.card:
            yield ("add-br", card.name)
            yield (
                *("set", "Bridge", card.name),
                f"datapath_type={chassis.datapath}",
                "fail_mode=standalone",
                f'other_config:hwaddr="{card.mac}"',
            )
            yield ("add-port", card.name, card.card)
    yield ("add-br", chassis.integration)
    yield (
        *("set", "Bridge", chassis.integration),
        f"datapath_type={chassis.datapath}",
        "fail_mode=secure",
        "other_config:disable-in-band=true",
    )
    for port in network.ports():
        if port.chassis == chassis.name:
            yield from _plug_port(port, machine, chassis)


def _plug_port(port: LogicalPort, machine: MachineIntent, chassis: Chassis) -> Iterator[Clause]:
    yield ("add-port", chassis.integration, port.device)
    named = _external("iface-id", port.name)
    bridge = machine.bridge
    if bridge and port.device == bridge.name:
        yield (
            *("set", "Interface", port.device, "type=internal"),
            f'mac="{bridge.mac}"',
            f"mtu_request={bridge.mtu}",
            named,
        )
    else:
        yield ("set", "Interface", port.device, named)


def _external(key: str, value: str) -> str:
    return f'external_ids:{key}="{value}"'


# Content of the northbound database
