"""What is written into OVN's northbound database: switches, their router, load balancers. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lab.scenario.terms import Protocol, ServicePort
from lab.topology import proxying
from lab.topology.logical import LogicalNetwork, LogicalSwitch
from lab.topology.translation import Backend, ProxiedService

Clause = tuple[str, ...]
"""One command within a transaction of ovs-vsctl or ovn-nbctl."""
BALANCERS = "services"
"""Name of the group of load balancers that every switch has."""
_PROTOCOLS: tuple[Protocol, ...] = ("tcp", "udp")
_LONGEST_AFFINITY_SECONDS = 65_535
"""ovn-nb(5), affinity_timeout."""


def wiring(network: LogicalNetwork) -> Iterator[Clause]:
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


def balancing(network: LogicalNetwork, services: tuple[ProxiedService, ...]) -> Iterator[Clause]:
    """A load balancer a Service and protocol, in one group that every switch has.

    A Service for local backends alone has one of its own on every switch.
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
                yield _balancer(name, network, service, protocol, service.backends)
                continue
            for place, switch in enumerate(network.switches):
                name = f"@{protocol}{number}on{place}"
                on_switch.append((switch.name, name))
                local = proxying.local(service, switch.name)
                yield _balancer(name, network, service, protocol, local)
    group = f"@{BALANCERS}"
    members = (f"load_balancer={','.join(everywhere)}",) if everywhere else ()
    yield (f"--id={group}", "create", "Load_Balancer_Group", f"name={BALANCERS}", *members)
    for switch in network.switches:
        yield ("add", "Logical_Switch", switch.name, "load_balancer_group", group)
    for switch_name, name in on_switch:
        yield ("add", "Logical_Switch", switch_name, "load_balancer", name)


def _balancer(
    name: str,
    network: LogicalNetwork,
    service: ProxiedService,
    protocol: Protocol,
    backends: tuple[Backend, ...],
) -> Clause:
    """One row; a Service without any backend refuses, as with kube-proxy."""
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
    return ",".join(f"{one.address}:{port.target_port}" for one in backends)


def balancer_name(service: ProxiedService, protocol: Protocol) -> str:
    """What the load balancer of a Service is called: ``"everyone/tcp"``."""
    return f"{service.name}/{protocol}"
