"""Clusters to decide things for: shipped scenarios, a bundle that has all they need."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from hashlib import sha256
from ipaddress import IPv4Address

from lab.cluster.addons import ovn_kubernetes
from lab.cluster.addons.calico import IMAGES, OPERATOR_IMAGES
from lab.cluster.bundle.manifest import Blob, ContainerImage, Manifest, Program
from lab.cluster.cluster import Cluster, ClusterNode, plan_cluster
from lab.cluster.kubeadm import Surroundings
from lab.cluster.linux.operations import (
    Enabled,
    Operations,
    Remove,
    Run,
    Symlink,
    SystemdUnit,
    WriteFile,
)
from lab.plan.planner import make_plan
from lab.scenario.loader import find, load
from lab.scenario.scenario import Scenario
from lab.topology.hypervisors import on_real_ones
from lab.topology.intent import Intent
from lab.topology.registry import intent as intent_of

PROGRAMS = (
    *("containerd", "containerd-shim-runc-v2", "ctr", "runc", "crictl", "kubeadm", "kubectl"),
    *("kubelet", "kube-proxy", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    *("etcd", "etcdctl", "flanneld", "cni/bridge", "cni/host-local", "cni/loopback"),
    *("cni/portmap", "cni/flannel"),
)
REPOSITORIES = (
    *("kube-apiserver:v{v}", "kube-controller-manager:v{v}", "kube-scheduler:v{v}"),
    *("kube-proxy:v{v}", "etcd:3.6.8-0", "coredns/coredns:v1.14.2", "pause:3.10.2"),
    "e2e-test-images/agnhost:2.63.0",
)


def blob(name: str) -> Blob:
    return Blob(sha256(name.encode()).hexdigest(), len(name))


def bundle(version: str = "1.36.3") -> Manifest:
    names = [f"registry.k8s.io/{one.format(v=version)}" for one in REPOSITORIES]
    names.append("ghcr.io/flannel-io/flannel:v0.28.10")
    names.append(f"{ovn_kubernetes.IMAGE}:release-1.2")
    operator, *others = (*OPERATOR_IMAGES, *IMAGES)
    names += [f"{operator}:v1.40.8", *(f"{one}:v3.31.5" for one in others)]
    return Manifest(
        (("kubernetes", version),),
        tuple(Program(name, "x", "linux", blob(name), "a test") for name in PROGRAMS),
        tuple(
            ContainerImage(n, "linux", None, blob(n), blob(f"{n}: config"), (), "a test")
            for n in names
        ),
    )


@dataclass(frozen=True)
class Case:
    """All that decisions are made from."""

    cluster: Cluster
    intent: Intent
    manifest: Manifest
    around: Surroundings

    def node(self, name: str) -> ClusterNode:
        return next(node for node in self.cluster.nodes if node.name == name)


def case(
    scenario: str, version: str = "1.36.3", patience: int = 1, planes: int | None = None
) -> Case:
    found = load(find(scenario))
    minor = version.rpartition(".")[0]
    found = found.replace(kubernetes=found.kubernetes.replace(version=minor))
    if planes:
        found = with_control_planes(found, planes)
    intent = on_real_ones(intent_of(make_plan(found)))
    manifest = bundle(version)
    machines = sorted(machine.name for machine in intent.machines)
    first = IPv4Address("192.168.251.10")
    management = {name: str(first + number) for number, name in enumerate(machines)}
    return Case(
        plan_cluster("drill", intent, manifest),
        intent,
        manifest,
        Surroundings(management, patience),
    )


def with_control_planes(scenario: Scenario, count: int) -> Scenario:
    groups = tuple(
        group.replace(count=count) if group.role == "control-plane" else group
        for group in scenario.nodes
    )
    return scenario.replace(nodes=groups)


def linux_only(one: Case) -> Case:
    nodes = tuple(node for node in one.cluster.nodes if node.os == "linux")
    return replace(one, cluster=replace(one.cluster, nodes=nodes))


def render(operations: Operations) -> str:
    """Everything, contents of files too, as golden files hold it; secrets are left out."""
    lines: list[str] = []
    for one in operations:
        match one:
            case WriteFile():
                lines.append(f"write {one.path} ({one.mode:04o}, {len(one.content)} characters)")
                shown = "(secret)\n" if one.secret else one.content
                lines += [f"    | {text}".rstrip() for text in shown.splitlines()]
            case Symlink():
                lines.append(f"link {one.path} -> {one.target}")
            case Remove():
                lines.append(f"remove {' '.join(one.paths)}")
            case Run():
                but = f" unless {one.unless}" if one.unless else ""
                lines.append(f"run {shlex.join(one.command)}{but}")
            case SystemdUnit():
                lines.append(f"service {one.unit}" + ("" if one.wait else " (not waited for)"))
            case Enabled():
                lines.append(f"enable {one.unit}")
    return "".join(f"{line}\n" for line in lines)
