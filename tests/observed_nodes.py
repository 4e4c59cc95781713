"""Observed nodes for the tests: one Linux node, and composed Windows nodes.

``worker1.txt`` is the output of node worker1 of scenario ``overlay`` on the embedded provider.
No real Windows was observed: :func:`windows` composes what ``observe.ps1`` would print on a node
as intended, in the formats of the sources that :mod:`lab.windows.facts` names.
"""

from __future__ import annotations

import json
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from lab.topology.intent import Intent, MachineIntent, Pod, ProxiedService

CASES = Path(__file__).parents[0] / "cases/observers"
WORKER1 = (CASES / "worker1.txt").read_text()
Said = dict[str, Any]


def dashed(mac: str) -> str:
    return mac.replace(":", "-").upper()


def windows(machine: MachineIntent, whole: Intent) -> Said:
    """The output of a Windows node that is as intended."""
    card, network = machine.interfaces[0], _network(machine)
    behind = f"vEthernet ({card.name})"
    address, _, length = card.addresses[0].partition("/")
    said: dict[str, list[Any]] = {
        "networks": [_nat(), network],
        "endpoints": [*(_endpoint(pod, machine, network) for pod in machine.pods), *_remote(whole)],
        "policies": _balancers(machine, whole),
        "adapters": [
            {"name": card.name, "index": 6, "mac": dashed(card.mac), "status": "Up"},
            {"name": behind, "index": 14, "mac": dashed(card.mac), "status": "Up"},
            {"name": "mgmt0", "index": 4, "mac": "52-54-00-10-20-30", "status": "Up"},
        ],
        "interfaces": [
            _interface(behind, card.mtu, "Enabled", 15),
            _interface("mgmt0", 1500, "Disabled", 25),
        ],
        "addresses": [
            {"name": behind, "address": address, "length": int(length)},
            {"name": "mgmt0", "address": "198.18.0.14", "length": 24},
            {"name": "Loopback Pseudo-Interface 1", "address": "127.0.0.1", "length": 8},
        ],
        "routes": _routes(machine, behind),
        "neighbours": [
            {
                "address": "224.0.0.22",
                "mac": "01-00-5E-00-00-16",
                "name": behind,
                "state": "Permanent",
            },
        ],
        "listening": [
            {"protocol": "tcp", "address": "0.0.0.0", "port": 10250},
            {"protocol": "tcp", "address": "127.0.0.1", "port": 10248},
        ],
        "services": [
            {"name": name, "state": "Running", "start": "Automatic"}
            for name in ("containerd", "kubelet", "kube-proxy", "flanneld")
        ],
        "rules": [
            _rule("hybridlab: kubelet", "TCP", "10250"),
            _rule("hybridlab: nodeports-tcp", "TCP", "30000-32767"),
            _rule("hybridlab: vxlan", "UDP", "4789"),
        ],
        "statistics": [{"name": behind, "received": 12, "received_discarded": 3, "sent": 0}],
        "proxies": [{"name": "winhttp", "value": "Direct access (no proxy server)."}],
        "logs": [{"name": "kubelet", "lines": ["I1121 registered"]}],
    }
    texts = {name: [json.dumps(one) for one in found] for name, found in said.items()}
    return {"version": "20348.2700", "absent": {}, **texts}


def changed(said: Said, what: str, replace: str, by: str) -> Said:
    """The output with a text replaced, which must be in one of its lists."""
    assert any(replace in one for one in said[what]), f"no {replace} in {what}"
    return {**said, what: [one.replace(replace, by) for one in said[what]]}


def without(said: Said, what: str, text: str) -> Said:
    """The output without the objects of a list that contain a text."""
    left = [one for one in said[what] if text not in one]
    assert len(left) < len(said[what]), f"no {text} in {what}"
    return {**said, what: left}


def _nat() -> Said:
    subnet = {"AddressPrefix": "172.29.144.0/20", "GatewayAddress": "172.29.144.1", "Policies": []}
    return {"ID": "0481DD58", "Name": "nat", "Type": "nat", "Subnets": [subnet], "Policies": []}


def _network(machine: MachineIntent) -> Said:
    own = str(machine.translation.local_cidr)
    first = str(ip_interface(own).network[1])
    local = machine.interfaces[0].addresses[0].partition("/")[0]
    subnet = {"AddressPrefix": own, "GatewayAddress": first, "Policies": []}
    policies: list[Said] = []
    if machine.tunnel:
        subnet["Policies"] = [{"Type": "VSID", "VSID": machine.tunnel.vni}]
        ends = {neighbour.address: neighbour.mac for neighbour in machine.neighbours}
        owners = {entry.mac: entry.remote for entry in machine.forwarding}
        policies = [{"Type": "HostRoute"}]
        policies += [
            {
                "Type": "RemoteSubnetRoute",
                "DestinationPrefix": route.destination,
                "IsolationId": machine.tunnel.vni,
                "ProviderAddress": owners[ends[route.via]],
                "DistributedRouterMacAddress": ends[route.via].replace(":", "-"),
            }
            for route in machine.routes
            if route.device == machine.tunnel.name
        ]
    return {
        "ID": "28893E01",
        "Name": machine.tunnel.name if machine.tunnel else "cbr0",
        "Type": "Overlay" if machine.tunnel else "L2Bridge",
        "ManagementIP": local,
        "NetworkAdapterName": machine.interfaces[0].name,
        "DrMacAddress": dashed(machine.tunnel.mac) if machine.tunnel else None,
        "Subnets": [subnet],
        "Policies": policies,
    }


def _endpoint(pod: Pod, machine: MachineIntent, network: Said) -> Said:
    address, _, length = pod.address.partition("/")
    spared = list(machine.translation.not_masqueraded)
    return {
        "ID": f"A8556439-{pod.name}".upper(),
        "Name": f"b9c11271e2bd{pod.name}_{network['Name']} ",
        "VirtualNetworkName": network["Name"],
        "IPAddress": address,
        "PrefixLength": int(length),
        "MacAddress": dashed(pod.mac),
        "GatewayAddress": pod.gateway,
        "DNSServerList": pod.resolver.server,
        "DNSSuffix": pod.resolver.search[0],
        "IsRemoteEndpoint": None,
        "State": 3,
        "SharedContainers": ["b9c11271e2bd"],
        "Policies": [{"Type": "OutBoundNAT", "ExceptionList": spared}, {"Type": "L2Driver"}],
    }


def _remote(whole: Intent) -> list[Said]:
    """Endpoints that kube-proxy creates for remote backends, which have no gateway."""
    return [
        {
            "ID": f"358E0976-{pod.name}".upper(),
            "Name": "Ethernet",
            "VirtualNetworkName": "flannel.4096",
            "IPAddress": pod.address.partition("/")[0],
            "PrefixLength": 24,
            "IsRemoteEndpoint": True,
            "State": 1,
            "SharedContainers": [],
            "Policies": [],
        }
        for machine in whole.machines
        if machine.os == "linux"
        for pod in machine.pods
    ]


def _ids(machine: MachineIntent, whole: Intent) -> dict[str, str]:
    own = {pod.address.partition("/")[0]: f"a8556439-{pod.name}" for pod in machine.pods}
    linux = [machine for machine in whole.machines if machine.os == "linux"]
    others = {
        pod.address.partition("/")[0]: f"358e0976-{pod.name}"
        for machine in linux
        for pod in machine.pods
    }
    return {**others, **own}


def _balancers(machine: MachineIntent, whole: Intent) -> list[Said]:
    ids = _ids(machine, whole)
    return [
        _balancer(service, ids, protocol, *entrance)
        for service in machine.translation.services
        if service.backends
        for protocol in (6, 17)
        for entrance in _entrances(service)
    ]


def _entrances(service: ProxiedService) -> list[tuple[int, list[str]]]:
    found: list[tuple[int, list[str]]] = [(port.port, [service.address]) for port in service.ports]
    return [*found, *((port, []) for port in service.node_ports())]


def _balancer(
    service: ProxiedService, ids: dict[str, str], protocol: int, port: int, vips: list[str]
) -> Said:
    elb = {
        "Type": "ELB",
        "Protocol": protocol,
        "InternalPort": service.ports[0].target_port,
        "ExternalPort": port,
        "VIPs": vips,
        "IsDSR": True,
    }
    ends = [f"/endpoints/{ids.get(backend.address, 'gone')}" for backend in service.backends]
    return {"ID": f"{service.name}-{protocol}-{port}", "References": ends, "Policies": [elb]}


def _routes(machine: MachineIntent, behind: str) -> list[Said]:
    found = [{"destination": "224.0.0.0/4", "via": "0.0.0.0", "name": behind, "metric": 256}]
    for route in machine.routes:
        if route.device == machine.interfaces[0].name:
            to = "0.0.0.0/0" if route.destination == "default" else route.destination
            found.append({"destination": to, "via": route.via, "name": behind, "metric": 256})
    return found


def _interface(name: str, mtu: int, forwarding: str, metric: int) -> Said:
    state = {"name": name, "index": 1, "mtu": mtu, "forwarding": forwarding}
    return {**state, "state": "Connected", "metric": metric}


def _rule(name: str, protocol: str, port: str) -> Said:
    allows = {"enabled": "True", "action": "Allow"}
    return {"name": name, "protocol": protocol, "ports": [port], **allows}
