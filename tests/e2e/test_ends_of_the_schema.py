"""Every number that a scenario may have, at both ends of what the schema allows.

A key that changes packets gets the whole matrix of the smallest lab that shows it; a count gets a
plan and an Intent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from lab_command import Lab

from lab.lifecycle.compilation import compile_scenario
from lab.scenario.validation import schema
from lab.topology import registry

SCENARIO = """\
name: ends
summary: a number at one end of its range

kubernetes:
  version: "1.36"
  pod_cidr: {pod_cidr}
  node_prefix: {node_prefix}
  service_cidr: 10.96.0.0/12
  dns_address: 10.96.0.10

network:
  cidr: 10.16.0.0/16
  mtu: {mtu}

topology:
  kind: {kind}
{topology}
pods_per_node: {pods_per_node}

nodes:
  - name: master
    os: linux
    role: control-plane
  - name: worker
    os: linux
{nodes}
{more}"""
PLAIN: Mapping[str, Any] = {
    "pod_cidr": "10.244.0.0/16",
    "node_prefix": 24,
    "mtu": 1500,
    "kind": "overlay",
    "topology": "",
    "pods_per_node": 2,
    "nodes": "",
    "more": "",
}
GATEWAYS = {"nodes": "  - {name: win, os: windows}\n"}
SERVICES_NODE = "  - {name: services, os: linux, role: services}\n"
SPECIAL = "services: {{node_ports: 1-65535, special: [{{name: s, backends: {0}, {1}}}]}}\n"

Case = tuple[str, Mapping[str, Any]]
"""The key, and what differs from the plain scenario."""

LEAST_MTU, MOST_MTU = 576, 9216
SEGMENTS: Mapping[str, Mapping[str, Any]] = {
    "calico-bgp": {},
    "calico-vxlan": {},
    "hard-way": {},
    "host-gateway": {},
    "kubeinit": {"nodes": SERVICES_NODE, "more": "hypervisors: {count: 2}\n"},
    "overlay": {},
    "ovn": {},
    "upstream-tor": {},
    "upstream-vrrp": GATEWAYS,
}
LEAST_OF_KIND: Mapping[str, int] = {"upstream-vrrp": 602}
"""Where a topology allows less than the schema."""


def _more(properties: str) -> str:
    return f"  - {{name: more, os: linux, {properties}}}\n"


def _special(backends: int, properties: str) -> Mapping[str, Any]:
    return {"more": SPECIAL.format(backends, properties)}


def _assertion(properties: str) -> Mapping[str, Any]:
    return {"more": f"assertions: [{{name: a, node: worker, command: [x], {properties}}}]\n"}


PACKETS: tuple[Case, ...] = (
    *(
        ("Network.mtu", {"kind": kind, "mtu": mtu, **more})
        for kind, more in SEGMENTS.items()
        for mtu in (LEAST_OF_KIND.get(kind, LEAST_MTU), MOST_MTU)
    ),
    *(
        ("Hypervisors.mtu", {"mtu": MOST_MTU, "more": f"hypervisors: {{count: 2, mtu: {mtu}}}\n"})
        for mtu in (676, MOST_MTU)
    ),
    *(("TopologyChoice.vni", {"topology": f"  vni: {vni}\n"}) for vni in (1, 9_999_999)),
    *(("TopologyChoice.port", {"topology": f"  port: {port}\n"}) for port in (1, 65_535)),
    *(
        (
            "TopologyChoice.hold_seconds",
            {"kind": "calico-bgp", "topology": f"  hold_seconds: {seconds}\n"},
        )
        for seconds in (3, 240)
    ),
    *(
        (
            "TopologyChoice.advert_seconds",
            {**GATEWAYS, "kind": "upstream-vrrp", "topology": f"  advert_seconds: {seconds}\n"},
        )
        for seconds in (0.1, 10)
    ),
    ("Kubernetes.node_prefix", {"node_prefix": 8, "pod_cidr": "16.0.0.0/6"}),
    ("Kubernetes.node_prefix", {"node_prefix": 29}),
    *(("Port.port", _special(2, f"ports: [{{port: {port}}}]")) for port in (1, 65_535)),
    *(
        (
            "Port.node_port",
            _special(2, f"affinity: 10, node_port: true, ports: [{{port: 80, node_port: {port}}}]"),
        )
        for port in (1, 65_535)
    ),
    *(("SpecialService.affinity", _special(2, f"affinity: {s}")) for s in (1, 86_400)),
)
"""Keys that change packets."""

COUNTS: tuple[Case, ...] = (
    *(("Hypervisors.count", {"more": f"hypervisors: {{count: {n}}}\n"}) for n in (1, 64)),
    *(
        ("NodeGroup.count", {"pod_cidr": "16.0.0.0/8", "nodes": _more(f"count: {count}, pods: 0")})
        for count in (1, 998)  # of 1,000 nodes in the lab
    ),
    *(("NodeGroup.pods", {"nodes": _more(f"pods: {pods}")}) for pods in (0, 250)),
    *(("NodeGroup.vcpus", {"nodes": _more(f"vcpus: {vcpus}")}) for vcpus in (1, 256)),
    *(
        ("Scenario.pods_per_node", {"pods_per_node": pods, "nodes": _more("pods: 2")})
        for pods in (0, 250)
    ),
    *(
        (
            "SharedService.backends",
            {"more": f"services: {{shared: [{{name: s, backends: {n}}}]}}\n"},
        )
        for n in (2, 4)
    ),
    *(("SpecialService.backends", _special(n, "affinity: 10")) for n in (0, 4)),
    *(("Assertion.exit", _assertion(f"exit: {code}")) for code in (0, 255)),
    *(("Assertion.timeout", _assertion(f"timeout: {seconds}")) for seconds in (1, 3_600)),
)
"""Counts, hardware and assertions."""

REFUSED_OTHERWISE = {"Port.target_port"}
"""A rule allows two of its values (``lab.scenario.service_rules``)."""


def _names(cases: Sequence[Case]) -> list[str]:
    return [f"{key} {' '.join(map(str, changes.values()))}".strip() for key, changes in cases]


def _written(tmp_path: Path, changes: Mapping[str, Any]) -> Path:
    file = tmp_path / "ends.yaml"
    file.write_text(SCENARIO.format_map({**PLAIN, **changes}), encoding="utf-8")
    return file


def _numbers(part: Any, section: str = "Scenario", key: str = "") -> Iterator[str]:
    """Every key of the schema with a number, as ``Section.key``."""
    if isinstance(part, list):
        for each in part:
            yield from _numbers(each, section, key)
    elif isinstance(part, dict):
        if "minimum" in part or "maximum" in part:
            yield f"{section}.{key}"
        for name, each in part.get("$defs", {}).items():
            yield from _numbers(each, name)
        for name, each in part.get("properties", {}).items():
            yield from _numbers(each, section, name)
        for word in ("anyOf", "oneOf", "allOf", "items"):
            yield from _numbers(part.get(word), section, key)


def test_every_number_of_the_schema_is_tried():
    tried = {key for key, _ in (*PACKETS, *COUNTS)}
    assert {*_numbers(schema(registry.schemas()))} == tried | REFUSED_OTHERWISE


def _slow_if_large(case: Case) -> Any:
    thousand_nodes = "998" in str(case[1])  # half a minute
    return pytest.param(*case, marks=[pytest.mark.slow] if thousand_nodes else [])


@pytest.mark.parametrize(
    ("key", "changes"), [_slow_if_large(case) for case in COUNTS], ids=_names(COUNTS)
)
def test_a_count_at_either_end_has_a_plan(tmp_path, key, changes):
    del key
    compiled = compile_scenario(_written(tmp_path, changes), None, None, "namespaces", real=False)
    assert compiled.intent.machines


@pytest.mark.slow
@pytest.mark.parametrize(("key", "changes"), PACKETS, ids=_names(PACKETS))
def test_a_healthy_lab_is_green_at_either_end_of_what_changes_packets(
    tmp_path, lab: Lab, key, changes
):
    del key
    lab.run("run", str(_written(tmp_path, changes)), "--provider", "netns")
