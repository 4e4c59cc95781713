"""Commands of iproute2 that make a machine's tables what the Intent asks for. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lab.topology.intent import BLACKHOLE, FLOOD, MachineIntent, Route, Tunnel

_GOING = "lab-going"
"""A tunnel's name while it is taken away."""


def tables(machine: MachineIntent, device: str) -> Iterator[str]:
    """What puts back all that hangs on a device, and goes with it.

    Routes that a daemon learns are left to it: one that is set by hand would stay when they go.
    """
    static = (one for one in machine.routes if one.by is None)
    ordered = sorted(static, key=lambda one: one.via is not None)
    yield from (replace_route(one) for one in ordered if one.device == device)
    for one in machine.neighbours:
        if one.device == device:
            yield replace_neighbour(one.address, one.mac, device)
    for proxy in machine.proxies:
        if proxy.device == device:
            yield f"ip neighbour add proxy {proxy.address} dev {device}"
    for entry in machine.forwarding:
        if entry.device == device:
            yield replace_entry(entry.mac, device, entry.remote)


def replace_route(route: Route) -> str:
    """What makes a route as it is meant to be."""
    return f"ip route replace {way(route)}"


def way(route: Route) -> str:
    """A route as ``ip route`` takes it."""
    if route.device == BLACKHOLE:
        return f"{BLACKHOLE} {route.destination}"
    via = f" via {route.via}" if route.via else ""
    source = f" src {route.source}" if route.source else ""
    onlink = " onlink" if route.onlink else ""
    return f"{route.destination}{via} dev {route.device}{source}{onlink}"


def replace_neighbour(address: str, mac: str, device: str) -> str:
    """What makes a neighbour entry, for good."""
    return f"ip neighbour replace {address} lladdr {mac} dev {device} nud permanent"


def replace_entry(mac: str, device: str, remote: str) -> str:
    """What makes a tunnel's forwarding entry; those for frames to all stand side by side."""
    does = "append" if mac == FLOOD else "replace"
    return f"bridge fdb {does} {mac} dev {device} dst {remote} self permanent"


def remade_tunnel(machine: MachineIntent, tunnel: Tunnel) -> Iterator[str]:
    """What makes a tunnel anew with all that hangs on it; VNI and port cannot be changed.

    The old one is renamed first: flanneld makes its device anew at once when one of that name is
    deleted.
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
