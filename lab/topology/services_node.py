"""The services node: HAProxy for the API servers, and DNS for the nodes' own names.

Kubeinit's runs bind, dnsmasq, haproxy, apache and a registry in containers of one pod. Here it is a
machine with HAProxy and dnsmasq; only a real cluster would need the registry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lab.plan.plan import Plan, PlannedNode
from lab.topology.daemon import Daemon, File, Ready
from lab.topology.intent import Intent, MachineIntent, Resolver, ServicesNode

API_PORT = 6443
"""kubeadm's default for the API server."""
BALANCER = "haproxy"
NAME_SERVER = "dnsmasq"
API_NAME = "api"
"""Name of HAProxy's address, as in Kubeinit's zone."""
_MAX_CONNECTIONS = 1000
"""Each takes two descriptors: fewer than a plain user may open everywhere."""
_NODE_NDOTS = 1


def equip(plan: Plan, intent: Intent) -> Intent:
    """Add the services node's programs and make the nodes its clients, if there is one."""
    node = plan.services_node()
    if node is None:
        return intent
    front = _make_front(plan, node)
    resolver = Resolver(front.address, (front.domain,), _NODE_NDOTS)
    return replace(
        intent,
        machines=tuple(
            _equip_machine(machine, plan, front, resolver) for machine in intent.machines
        ),
        services_node=front,
    )


def _make_front(plan: Plan, node: PlannedNode) -> ServicesNode:
    named = {API_NAME: node.address} | {planned.name: planned.address for planned in plan.nodes}
    return ServicesNode(
        machine=node.name,
        address=str(node.address),
        api_port=API_PORT,
        api_servers=tuple(plane.name for plane in plan.control_planes()),
        domain=plan.node_domain,
        names=tuple(
            (f"{name}.{plan.node_domain}.", str(address)) for name, address in named.items()
        ),
    )


def _equip_machine(
    machine: MachineIntent, plan: Plan, front: ServicesNode, resolver: Resolver
) -> MachineIntent:
    if machine.kind not in {"node", "services"}:
        return machine
    if machine.name != front.machine:
        return replace(machine, resolver=resolver)
    servers = [(plane.name, str(plane.address)) for plane in plan.control_planes()]
    daemons = (_make_haproxy(front, servers), _make_dnsmasq(front))
    return replace(machine, resolver=resolver, daemons=(*machine.daemons, *daemons))


def _make_haproxy(front: ServicesNode, servers: list[tuple[str, str]]) -> Daemon:
    return Daemon(
        name=BALANCER,
        package="haproxy",
        command=("haproxy", "-db", "-f", "/run/haproxy/haproxy.cfg"),
        files=(File("haproxy.cfg", balance_servers(front, servers)),),
        ready=Ready(rf":{front.api_port}\b", ("ss", "-H", "-l", "-t", "-n")),
    )


def balance_servers(front: ServicesNode, servers: list[tuple[str, str]]) -> str:
    """Forward TCP to the API servers that report that they are ready.

    Servers are picked at random, so that a client that asks often enough meets each of them: with
    round robin, two clients that alternate could each meet only every other server. The backend is
    the lab's responder, which does not speak TLS.
    """
    listed = "".join(f"    server {name} {address}:{front.api_port}\n" for name, address in servers)
    return f"""global
    log stdout format raw local0 notice
    maxconn {_MAX_CONNECTIONS}
    no strict-limits

defaults
    mode tcp
    log global
    option redispatch
    timeout connect 500ms
    timeout client 1m
    timeout server 1m

frontend api
    bind {front.address}:{front.api_port}
    default_backend control-planes

backend control-planes
    balance random(1)
    option httpchk GET /readyz
    http-check expect status 200
    default-server check inter 500ms fall 2 rise 1
{listed}"""


def _make_dnsmasq(front: ServicesNode) -> Daemon:
    # With --no-daemon, a client that keeps a TCP connection open, as CoreDNS does for 10 s, blocks
    # all others.
    return Daemon(
        name=NAME_SERVER,
        package="dnsmasq-base",
        command=("dnsmasq", "--keep-in-foreground", "--conf-file=/run/dnsmasq/dnsmasq.conf"),
        files=(File("dnsmasq.conf", "".join(f"{line}\n" for line in _write_names(front))),),
        ready=Ready("started, version"),
    )


def _write_names(front: ServicesNode) -> Iterator[str]:
    """Configuration of dnsmasq: the nodes' names, and no upstream.

    The lab has no other names. dnsmasq keeps its user: a plain user's user namespace has no other
    user or group.
    """
    yield from ("no-resolv", "no-hosts", "bind-interfaces", f"listen-address={front.address}")
    yield from ("except-interface=lo", "local=/#/")
    yield from ("user=root", "group=", "pid-file=", "log-facility=-")
    for name, address in front.names:
        yield f"host-record={name.rstrip('.')},{address}"
