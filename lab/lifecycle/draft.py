"""A draft scenario with the usual keys, each with a comment. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator

from lab._errors import UsageError
from lab._log import quantity
from lab.scenario.loader import HeldText, check
from lab.scenario.versions import SUPPORTED
from lab.topology import registry
from lab.topology.registry import NODE_PREFIX, Topology

_HEAD = """\
# A draft by 'lab new'. Change it, then:
#   lab validate {name}.yaml   every mistake, with its line
#   lab plan {name}.yaml       addresses, cells, and what it would cost
#   lab run {name}.yaml        bring it up, test it, take it down
# 'lab schema' prints every key there is, as JSON Schema for editors.
name: {name}
summary: {summary}

kubernetes:
  version: "{version}"  # one of {versions}
  pod_cidr: 10.244.0.0/16  # every node gets a part of it,
  node_prefix: {prefix}  # with this prefix length
  service_cidr: 10.96.0.0/16
  dns_address: 10.96.0.10  # address of the cluster's DNS Service

network:
  cidr: 192.0.2.0/24  # addresses of the nodes
  # mtu: 1500

"""
_TAIL = """
services:
  shared:  # a Service with several backends, each of which must answer
    - name: everyone
      backends: 2

# matrix:
#   min_throughput: 100mbit  # of a TCP stream, where 'lab test NAME -m throughput' asks for it
"""


def draft(name: str, kind: str, linux: int, windows: int) -> str:
    """The text of a valid scenario.

    ``linux``: number of Linux nodes, including the control plane. ``windows``: number of Windows
    nodes.

    Raises UsageError when such a scenario would be invalid, for example its name or topology.
    """
    known = registry.topologies()
    nodes = quantity(linux, "Linux node")
    beside = f" and {quantity(windows, 'Windows node')}" if windows else ""
    topology = known.get(kind)
    lines = [
        _HEAD.format(
            name=name,
            summary=f"{nodes}{beside}, topology {kind}",
            version=SUPPORTED[-1],
            versions=", ".join(SUPPORTED),
            prefix=topology.node_prefix if topology else NODE_PREFIX,
        ),
        "topology:\n",
        f"  kind: {kind}\n" if topology is None else _topology(topology),
        "\npods_per_node: 2\n\nnodes:\n",
        "  - name: control\n    os: linux\n    role: control-plane\n",
        *_group("worker", "linux", linux - 1),
        *_group("win", "windows", windows),
        topology.beside if topology else "",
        _TAIL,
    ]
    text = "".join(lines)
    _, findings = check(HeldText(text, name), topology_check=registry.check)
    if findings:
        what = "; ".join(one.what for one in findings)
        hint = "; ".join(one.hint for one in findings)
        raise UsageError(f"drafting scenario '{name}'", what, hint)
    return text


def _topology(topology: Topology) -> str:
    return f"  # {topology.title}\n  kind: {topology.kind}\n" + "".join(_parameters(topology))


def _parameters(topology: Topology) -> Iterator[str]:
    for name, one in topology.parameters.items():
        default, description = json.dumps(one.schema["default"]), one.schema["description"]
        yield f"  # {name}: {default}  # {description}\n"


def _group(name: str, os: str, count: int) -> Iterator[str]:
    if not count:
        return
    several = f", {name}2 ..." if count > 1 else ""
    yield f"  - name: {name}  # {name}1{several}\n" if count > 1 else f"  - name: {name}\n"
    yield f"    os: {os}\n"
    if count > 1:
        yield f"    count: {count}\n"
    yield f'    # version: "{SUPPORTED[-2]}"  # of the kubelet, if older\n'
    if os == "windows":
        yield "    # image: windows-server-2022  # for a real machine\n"
