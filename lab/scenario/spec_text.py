"""A spec string as the scenario file that it stands for. Pure.

Figures are Kubeinit's: nodes in 10.0.0.0/24 from its first address on, controllers before
computes; the services node has the name server's address, .253; the gateway .254 (its
group_vars/kubeinit_network.yml). The pods' range is its role kubeinit_k8s'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network

from lab._log import quantity
from lab.scenario.names import hypervisor_name
from lab.scenario.spec import Spec, Value, nodes

NETWORK = IPv4Network("10.0.0.0/24")
GATEWAY, NAME_SERVER = NETWORK[-2], NETWORK[-3]
DOMAIN = "k8scluster.kubeinit.local"
"""Kubeinit's cluster name and domain, by default."""
WINDOWS_IMAGE = "windows-server-2022"
"""The one Windows that Kubeinit supports (its author, July 2022)."""
_SHARED = 4
_PODS_PER_NODE = 2

Node = tuple[str, str, str]
"""Name, group of the spec, role in the cluster."""


def to_yaml(spec: Spec) -> str:
    """The file, with a comment at its head that says what it was made from."""
    pods = _PODS_PER_NODE * (spec.controllers + spec.computes)
    head = f"""# Made from the spec string {spec.written}
name: {spec.name}
summary: {_summary(spec)}

kubernetes:
  version: "1.36"
  pod_cidr: 10.244.0.0/16
  node_prefix: 24
  service_cidr: 10.96.0.0/12
  dns_address: 10.96.0.10

network:
  cidr: {NETWORK}
  router: {GATEWAY}
  domain: {DOMAIN}

hypervisors:
  count: {spec.hypervisors}

topology:
  kind: kubeinit
  vni: 4096
  port: 4789

pods_per_node: {_PODS_PER_NODE}

nodes:
"""
    listed = "".join(f"  - {{{', '.join(_node(*one, spec))}}}\n" for one in _all(spec))
    shared = f"services:\n  shared:\n    - {{name: everyone, backends: {min(_SHARED, pods)}}}\n"
    return f"{head}{listed}\n{shared}"


def _summary(spec: Spec) -> str:
    counted = ", ".join(
        (
            quantity(spec.controllers, "controller"),
            quantity(spec.computes, "compute"),
            "a services node",
        )
    )
    return f"Kubeinit's {spec.name}, {counted}, on {quantity(spec.hypervisors, 'hypervisor')}"


def _all(spec: Spec) -> Iterator[tuple[Node, str]]:
    """Every node with its address, in Kubeinit's order."""
    addresses = iter(NETWORK.hosts())
    for name in nodes("controller", spec.controllers):
        yield (name, "controller", "control-plane"), str(next(addresses))
    for name in nodes("compute", spec.computes):
        yield (name, "compute", "worker"), str(next(addresses))
    yield ("services", "services", "services"), str(NAME_SERVER)


def _node(node: Node, address: str, spec: Spec) -> Iterator[str]:
    name, group, role = node
    asked = spec.of(group, name)
    os = asked.get("os", "windows" if group == "compute" else "linux")
    yield from (f"name: {name}", f"os: {os}", f"role: {role}", f"address: {address}")
    if os == "windows":
        yield f"image: {WINDOWS_IMAGE}"
    yield from _hardware(asked)


def _hardware(asked: Mapping[str, Value]) -> Iterator[str]:
    for key, value in asked.items():
        match key, value:
            case "memory", int():
                yield f"memory: {value}MiB"
            case "disk", int():
                yield f"disk: {value}GiB"
            case "vcpus", int():
                yield f"vcpus: {value}"
            case "hypervisor", int():
                yield f"hypervisor: {hypervisor_name(value)}"
