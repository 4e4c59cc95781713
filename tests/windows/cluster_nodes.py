"""Plans of Windows nodes for the shipped scenarios, as text for golden files."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from hashlib import sha256
from ipaddress import IPv4Network
from typing import Any

from tables import CASES, table

from lab.machines.bundle.manifest import Blob, ContainerImage, Manifest, Program
from lab.machines.cluster.cluster import plan_cluster
from lab.machines.cluster.credentials import Pair
from lab.machines.cluster.documents import to_yaml
from lab.machines.system import HardWayCredentials, NodeCredentials
from lab.plan.planner import make_plan
from lab.scenario.loader import find, load
from lab.topology.intent import Intent
from lab.topology.registry import intent as intent_of
from lab.windows.images import image_steps
from lab.windows.nodes import join_steps
from lab.windows.nodes.join_checks import WindowsObserved
from lab.windows.nodes.join_plan import JoinPlan

GOLDEN = CASES.parent / "cluster" / "windows" / "golden"
BUILDS = {"2019": 17763, "2022": 20348}
REVISIONS = {"2019": 3650, "2022": 587}
"""Revisions of the evaluation media."""
MINORS = ("1.33", "1.34", "1.35", "1.36")
TOPOLOGIES: dict[str, dict[str, str]] = table("topologies")
BY_HAND = HardWayCredentials(b"kubelet's kubeconfig\n", b"CA\n", Pair("serving\n", "key\n"))
JOIN = NodeCredentials(
    endpoint="192.0.2.1:6443",
    token="abcdef.0123456789abcdef",
    ca_hash="sha256:" + "ab" * 32,
    proxy_kubeconfig=b"kube-proxy's kubeconfig\n",
    network_kubeconfig=b"flanneld's kubeconfig\n",
)
PROGRAMS = (
    *("kubelet", "kubeadm", "kubectl", "kube-proxy", "kube-log-runner", "flanneld", "agnhost"),
    *("containerd", "containerd-shim-runhcs-v1", "ctr", "crictl"),
    *("cni/host-local", "cni/win-bridge", "cni/flannel", "cni/sdnoverlay", "cni/sdnbridge"),
)


def blob(text: str) -> Blob:
    return Blob(sha256(text.encode()).hexdigest(), len(text))


def program(name: str) -> Program:
    return Program(f"{name}.exe", name, "windows", blob(name), "a test")


def image(name: str, build: int) -> ContainerImage:
    version = f"10.0.{build}.1"
    own = blob(f"{name} {build}")
    return ContainerImage(name, "windows", version, own, own, (), "a test")


def manifest(version: str = "1.36.1", topology: str = "overlay") -> Manifest:
    pictures = ("registry.k8s.io/pause:3.10.2", "registry.k8s.io/e2e-test-images/agnhost:2.59")
    if topology == "calico-vxlan":
        pictures += tuple(f"quay.io/calico/{one}-windows:v3.31.5" for one in ("cni", "node"))
    return Manifest(
        (("containerd", "2.3.2"), ("kubernetes", version)),
        tuple(program(name) for name in PROGRAMS),
        tuple(image(name, build) for name in pictures for build in BUILDS.values()),
    )


@cache
def shipped(name: str) -> Intent:
    return intent_of(make_plan(load(find(name))))


def decided(topology: str, minor: str = "1.36") -> JoinPlan:
    """The plan of the topology's first Windows node, with Kubernetes ``minor.1``."""
    intent, bundle = shipped(TOPOLOGIES[topology]["scenario"]), manifest(f"{minor}.1", topology)
    assert intent.kubernetes is not None
    kubernetes = replace(intent.kubernetes, version=minor)
    machines = tuple(
        replace(machine, kubelet=replace(machine.kubelet, version=minor))
        if machine.kubelet
        else machine
        for machine in intent.machines
    )
    intent = replace(intent, kubernetes=kubernetes, machines=machines)
    made = replace(plan_cluster("lab", intent, bundle), topology=topology)
    node = next(node for node in made.nodes if node.os == "windows")
    return JoinPlan(made, intent, node, bundle)


def join_of(plan: JoinPlan) -> NodeCredentials:
    return replace(JOIN, by_hand=BY_HAND) if plan.by_hand else JOIN


def seen(year: str) -> WindowsObserved:
    return WindowsObserved(BUILDS[year], REVISIONS[year])


def everything(plan: JoinPlan, where: WindowsObserved) -> dict[str, Any]:
    """All inputs of a node, step by step, in order."""
    join = join_of(plan)
    vip = str(IPv4Network(plan.network.pod_cidr)[2])
    flannel = plan.network.maker == "flannel"
    all_steps: tuple[join_steps.ClusterStep | None, ...] = (
        plan.images(where),
        plan.files(join),
        plan.kubelet(where, start=plan.by_hand),
        None if plan.by_hand else plan.join(join),
        plan.hns_network(),
        plan.flannel_files(join) if flannel else None,
        plan.flannel_task() if flannel else None,
        plan.source_vip(),
        plan.plugin_files(where),
        plan.proxy(where, vip),
        plan.routes(),
        plan.health(),
    )
    of_image: tuple[image_steps.ImageStep, ...] = (plan.containerd(where), plan.firewall())
    return {
        "steps": [
            *({image_step.name: image_steps.settings(image_step)} for image_step in of_image),
            *({step.name: image_steps.settings(step)} for step in all_steps if step),
        ],
    }


def readable(value: Any) -> Any:
    """Expand texts of files and nested JSON, so that golden files are readable."""
    if isinstance(value, dict):
        return {key: readable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [readable(one) for one in value]
    if isinstance(value, str) and value.startswith("{"):
        return readable(json.loads(value))
    if isinstance(value, str) and "\n" in value:
        return value.splitlines()
    return value


@cache
def golden(topology: str, year: str = "2022", minor: str = "1.36") -> str:
    made = readable(everything(decided(topology, minor), seen(year)))
    return to_yaml(made["steps"])
