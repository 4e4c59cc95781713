"""iproute2 commands that bring a machine's tables to the Intent. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lab.topology.intent import BLACKHOLE, FLOOD, MachineIntent, Route, Tunnel

_GOING = "lab-going"
"""Temporary name of a tunnel before its deletion."""


def tables(machine: MachineIntent, device: str) -> Iterator[str]:
    """Commands that restore everything that depends on a device and is lost with it.

    Routes that a daemon learns are left to it: one set by hand would stay when the daemon
    withdraws.
    """
    static = (route for route in machine.routes if route.by is None)
    ordered = sorted(static, key=lambda route: route.via is not None)
    yield from (replace_route(route) for route in ordered if route.device == device)
    for neighbour in machine.neighbours:
        if neighbour.device == device:
            yield replace_neighbour(neighbour.address, neighbour.mac, device)
    for proxy in machine.proxies:
        if proxy.device == device:
            yield f"ip neighbour add proxy {proxy.address} dev {device}"
    for entry in machine.forwarding:
        if entry.device == device:
            yield replace_entry(entry.mac, device, entry.remote)


def with_source(machine: MachineIntent, address: str) -> Iterator[str]:
    """Commands that restore the routes with a source address: they are lost with the address."""
    yield from (replace_route(route) for route in machine.routes if route.source == address)


def replace_route(route: Route) -> str:
    """The command that sets a route."""
    return f"ip route replace {format_route(route)}"


def format_route(route: Route) -> str:
    """A route in the syntax of ``ip route``."""
    if route.device == BLACKHOLE:
        return f"{BLACKHOLE} {route.destination}"
    via = f" via {route.via}" if route.via else ""
    source = f" src {route.source}" if route.source else ""
    onlink = " onlink" if route.onlink else ""
    return f"{route.destination}{via} dev {route.device}{source}{onlink}"


def replace_neighbour(address: str, mac: str, device: str) -> str:
    """The command that sets a permanent neighbour entry."""
    return f"ip neighbour replace {address} lladdr {mac} dev {device} nud permanent"


def replace_entry(mac: str, device: str, remote: str) -> str:
    """The command that sets a tunnel's forwarding entry; flood entries are appended."""
    does = "append" if mac == FLOOD else "replace"
    return f"bridge fdb {does} {mac} dev {device} dst {remote} self permanent"


def remade_tunnel(machine: MachineIntent, tunnel: Tunnel) -> Iterator[str]:
    """Commands that recreate a tunnel and all that depends on it; VNI and port cannot be changed.

    The old device is renamed first, because flanneld recreates its device as soon as one of that
    name is deleted.
    """
    name = tunnel.name
    yield (
        f"if ip link set dev {name} down 2> /dev/null; then "
        f"ip link set dev {name} name {_GOING} && ip link del dev {_GOING}; fi"
    )
    yield (
        f"ip link add {name} address {tunnel.mac} mtu {tunnel.mtu} type vxlan id {tunnel.vni} "
        f"dstport {tunnel.port} local {tunnel.local} dev {tunnel.device} nolearning"
    )
    yield from (f"ip address add {address} dev {name}" for address in tunnel.addresses)
    if machine.switch:
        yield f"ip link set dev {name} master {machine.switch.name}"
    yield f"ip link set dev {name} up"
    yield from tables(machine, name)
