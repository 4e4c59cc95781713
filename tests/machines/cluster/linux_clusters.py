"""Inputs of cluster plans: shipped scenarios, and a bundle with everything they need."""

import shlex
from dataclasses import dataclass, replace
from hashlib import sha256
from ipaddress import IPv4Address

from lab.machines.addons.addon import addons
from lab.machines.bundle.manifest import (
    Blob,
    ContainerImage,
    Manifest,
    Program,
    add_on_versions,
    wanted_images,
)
from lab.machines.cluster import rules
from lab.machines.cluster.cluster import Cluster, ClusterNode, plan_cluster
from lab.machines.cluster.documents import Document
from lab.machines.cluster.kubeadm import Surroundings
from lab.machines.cluster.linux.bring_up import addon_waves
from lab.machines.cluster.linux.operations import (
    Enabled,
    Operations,
    Remove,
    Run,
    Symlink,
    SystemdUnit,
    WriteFile,
)
from lab.plan.planner import make_plan
from lab.scenario.loader import find, load, shipped
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
MINOR = "1.36"
"""Whose etcd, CoreDNS and others every bundle here has."""


def blob(name: str) -> Blob:
    return Blob(sha256(name.encode()).hexdigest(), len(name))


def bundle(version: str = "1.36.3") -> Manifest:
    own = add_on_versions()
    versions = {**rules.components(MINOR), "kubernetes": version}
    versions |= {name: one for pinned in own.values() for name, one in pinned.items()}
    names = [image.name for image in wanted_images(versions, ("linux",), own)]
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
    """The inputs of a cluster plan."""

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


def of_every_topology() -> tuple[str, ...]:
    """A scenario of each topology that clusters can have, and whose add-on is the lab's."""
    kinds = {load(find(name)).topology.kind: name for name in reversed(shipped())}
    return tuple(sorted(kinds[kind] for kind in addons() if kind != "custom"))


def addon_documents(cluster: Cluster, intent: Intent, manifest: Manifest) -> tuple[Document, ...]:
    """The documents of all waves."""
    return tuple(
        document for wave in addon_waves(cluster, intent, manifest) for document in wave.documents
    )


def linux_only(case: Case) -> Case:
    nodes = tuple(node for node in case.cluster.nodes if node.os == "linux")
    return replace(case, cluster=replace(case.cluster, nodes=nodes))


def render(operations: Operations) -> str:
    """Everything, including contents of files, as text for golden files; without secrets."""
    lines: list[str] = []
    for operation in operations:
        match operation:
            case WriteFile():
                lines.append(
                    f"write {operation.path} ({operation.mode:04o}, "
                    f"{len(operation.content)} characters)"
                )
                shown = "(secret)\n" if operation.secret else operation.content
                lines += [f"    | {text}".rstrip() for text in shown.splitlines()]
            case Symlink():
                lines.append(f"link {operation.path} -> {operation.target}")
            case Remove():
                lines.append(f"remove {' '.join(operation.paths)}")
            case Run():
                but = f" unless {operation.unless}" if operation.unless else ""
                lines.append(f"run {shlex.join(operation.command)}{but}")
            case SystemdUnit():
                lines.append(
                    f"service {operation.unit}" + ("" if operation.wait else " (not waited for)")
                )
            case Enabled():
                lines.append(f"enable {operation.unit}")
    return "".join(f"{line}\n" for line in lines)
