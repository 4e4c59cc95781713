"""HAProxy in front of several API servers, on the machine whose address is the endpoint. Pure."""

from __future__ import annotations

from ipaddress import ip_interface

from lab.cluster import pace
from lab.cluster.cluster import API_PORT, Cluster
from lab.cluster.linux.operations import Operations, SystemdUnit, WriteFile, inputs
from lab.topology.intent import NODE_SEGMENT, Intent, MachineIntent

CONFIG = "/etc/haproxy/haproxy.cfg"


def machine(cluster: Cluster, intent: Intent) -> MachineIntent | None:
    """The machine that balances: it has the endpoint's address and is no control plane."""
    planes = {node.name for node in cluster.control_planes()}
    for one in intent.machines:
        addresses = [
            str(ip_interface(text).ip) for card in one.interfaces for text in card.addresses
        ]
        if cluster.endpoint in addresses and one.name not in planes:
            return one
    return None


def balancing(cluster: Cluster, intent: Intent, patience: int) -> Operations:
    """HAProxy with the control planes behind it; it comes with the machine's image."""
    config = WriteFile(CONFIG, configuration(cluster, intent, patience))
    return (config, SystemdUnit("haproxy.service", inputs((config,))))


def configuration(cluster: Cluster, intent: Intent, patience: int = 1) -> str:
    """TCP, passed on as it is, to those API servers that say that they are ready.

    They are asked by the network that the balancer is on, which may be the nodes' other one. At
    random, so that whoever asks often enough sees each: taking turns, two that ask at the same
    time could each see every other server only.
    """
    front = machine(cluster, intent)
    assert front is not None, "asked where something is to balance"
    near = next((card.segment for card in front.interfaces if card.segment == NODE_SEGMENT), None)
    segment = near or front.interfaces[0].segment
    servers = "".join(
        f"    server {node.name} {intent.machine(node.name).address(segment)}:{API_PORT}\n"
        for node in cluster.control_planes()
    )
    seconds = pace.balancer(patience)
    return f"""global
    log stdout format raw local0 notice
    maxconn 4096

defaults
    mode tcp
    log global
    timeout connect 10s
    timeout client 1h
    timeout server 1h
    timeout check {seconds}s

frontend api
    bind *:{API_PORT}
    default_backend control-planes

backend control-planes
    balance random(1)
    option httpchk GET /readyz
    http-check expect status 200
    default-server check check-ssl verify none inter {seconds}s fall 3 rise 1
{servers}"""
