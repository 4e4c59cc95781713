"""Software, configuration files and Calico's objects of a cluster: compared as reported. Pure.

Little of it is on a packet's path: existing pods and rules keep working without it. It affects what
is created or changed later. Calico's objects are cluster-wide and read on the first control plane;
a wrong pool or AS number is reported for the node that it is for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.explain.check import DNS_PORT, Check, Kind, LabLook, differs, on_machine
from lab.explain.checks.routing import is_route
from lab.explain.checks.services import is_of_endpoints, is_of_not_ready
from lab.facts.difference import Difference
from lab.facts.node import Software
from lab.facts.questions import ADMIN, SUBNET
from lab.machines.addons.calico import (
    AS_NUMBER,
    BGP,
    POOL_KIND,
    as_number,
    has_felix,
    node_pool,
    pool_spec,
)
from lab.scenario.reserved import DNS_SERVICE
from lab.topology.intent import Intent, MachineIntent
from lab.topology.path import Hop, Path
from lab.topology.subject import (
    ApiSubject,
    EntranceSubject,
    FileSubject,
    OtherSubject,
    ProgramSubject,
    RouteSubject,
)

_STOPPED = ("T", "t")
"""States of ps(1): stopped by a signal, or by a debugger."""
_KUBECTL = f"kubectl --kubeconfig={ADMIN}"
_CERTIFICATE = "/var/lib/kubelet/pki/kubelet-client-current.pem"


def _at_dns(_: Difference, hop: Hop, path: Path) -> bool:
    """A client that resolves a name gets no answer: before all consequences."""
    return path.flow.port == DNS_PORT and hop is path.hops[0]


def _is_of_dns(_: Difference, other: Difference) -> bool:
    subject = other.subject
    of_dns = isinstance(subject, EntranceSubject) and subject.service == DNS_SERVICE
    return of_dns and is_of_endpoints(other)


def _is_of_proxy(cause: Difference, other: Difference) -> bool:
    return other.node == cause.node and is_of_endpoints(other)


def _is_of_policies(cause: Difference, other: Difference) -> bool:
    return other.node == cause.node and other.kind in {
        "masquerade-missing",
        "masquerade-exception-missing",
    }


def _is_pod_route(_: Difference, other: Difference) -> bool:
    return is_route(other) and other.subject != RouteSubject("default")


def _dns(intent: Intent, machine: MachineIntent, software: Software) -> Iterator[Difference]:
    from lab.machines.cluster.dns import NAMESPACE, replicas_of  # noqa: PLC0415  few labs have a cluster

    if software.dns_replicas == 0:
        deployment = f"kubectl --kubeconfig={ADMIN} --namespace={NAMESPACE}"
        wanted = replicas_of(intent)
        yield differs(
            "dns-scaled-down",
            machine.name,
            ApiSubject("Deployment", "", "coredns"),
            f"{wanted} replicas",
            "it is scaled to 0: the cluster has no DNS",
            f"{deployment} get deployment,pods --selector=k8s-app=kube-dns",
            f"{deployment} scale deployment coredns --replicas={wanted}",
        )


def _of_node(intent: Intent, machine: MachineIntent, software: Software) -> Iterator[Difference]:
    if machine.kubelet is None or machine.kubelet.pod_cidr is None:
        return
    if software.expired:
        yield differs(
            "certificate-expired",
            machine.name,
            OtherSubject("the certificate of the kubelet"),
            "valid",
            f"it expired on {software.expired}",
            f"openssl x509 -noout -subject -dates -in {_CERTIFICATE}",
            "on a control plane: kubeadm kubeconfig user --org system:nodes "
            f"--client-name system:node:{machine.name}; put that into "
            "/etc/kubernetes/kubelet.conf of the node, and restart its kubelet",
        )
    if software.cni == ():
        yield differs(
            "cni-config-missing",
            machine.name,
            OtherSubject("the CNI configuration"),
            "a .conflist in /etc/cni/net.d",
            "there is none: new pods get no network and the node is NotReady",
            "ls -l /etc/cni/net.d",
            "restore the network add-on's .conflist, or restart its pod if that writes it",
        )
    for policy in software.dropped:
        yield differs(
            "cni-policy-dropped",
            machine.name,
            OtherSubject("the CNI configuration"),
            "policies that its plugin takes as they are",
            f"the plugin drops a part of {policy}, which is in the form of HNS' first version",
            "Get-Content -Path 'C:\\etc\\cni\\net.d\\*'",
            'write it as {"Type": ..., "Settings": {...}} (OutBoundNAT\'s ExceptionList is named '
            "Exceptions there), and delete the node's pods",
        )
    for mounted in software.full:
        yield differs(
            "disk-full",
            machine.name,
            OtherSubject(f"the file system at {mounted}"),
            "space left",
            "it is full",
            f"df -h {mounted}",
            f"find what fills it (du -xh {mounted} | sort -h), and delete that or enlarge it",
        )
    yield from _programs(intent, machine, software)


def _programs(intent: Intent, machine: MachineIntent, software: Software) -> Iterator[Difference]:
    from lab.machines.addons import flannel  # noqa: PLC0415  the same

    assert machine.kubelet, "asked of nodes alone"
    if machine.translation and machine.chassis is None:  # OVN needs no kube-proxy
        yield from _program(machine.name, software, "kube-proxy", "kube-system", "proxy-stopped")
    if intent.topology in flannel.TOPOLOGIES:
        yield from _program(machine.name, software, "flanneld", flannel.NAMESPACE, "flanneld-down")
        line = flannel.subnet_line(machine.kubelet.pod_cidr or "")
        if software.subnet is not None and software.subnet != line:
            yield differs(
                "wrong-subnet",
                machine.name,
                FileSubject(SUBNET),
                line,
                software.subnet or "it is not set",
                f"cat {SUBNET}",
                f"sed -i 's#^FLANNEL_SUBNET=.*#{line}#' {SUBNET}",
                name=f"flannel's {SUBNET}",
            )


def _program(
    node: str, software: Software, name: str, namespace: str, kind: str
) -> Iterator[Difference]:
    states = [state for process, state in software.processes or () if process == name]
    if software.processes is None or not _is_stopped(states):
        return
    yield differs(
        kind,
        node,
        ProgramSubject(name),
        "running",
        _describe_states(states),
        f"ps -C {name} -o pid,state,lstart,args"
        if states
        else "journalctl -u kubelet --since=-5min --no-pager",
        f"pkill -CONT -x {name}"
        if states
        else f"check why it does not start (kubectl -n {namespace} describe pods), and fix that",
    )


def _is_stopped(states: Sequence[str]) -> bool:
    """Whether none of a program's processes runs, by their states of ps(1)."""
    return all(state in _STOPPED for state in states)


def _describe_states(states: Sequence[str]) -> str:
    return "stopped by a signal" if states else "it does not run"


class SoftwareCheck(Check):
    """Software and configuration files of each cluster node, the worst difference first."""

    order = 130
    kinds = (
        Kind(
            "dns-scaled-down",
            fault="coredns-scaled-down",
            meets=_at_dns,
            explains=_is_of_dns,
        ),
        Kind(
            "certificate-expired",
            fault="kubelet-certificate-expired",
            meets=on_machine,
            follows=True,
            explains=is_of_not_ready,
        ),
        Kind(
            "cni-config-missing",
            fault="cni-config-missing",
            meets=on_machine,
            follows=True,
            explains=is_of_not_ready,
        ),
        Kind("cni-policy-dropped", meets=on_machine, follows=True, explains=_is_of_policies),
        Kind("disk-full", fault="disk-full", meets=on_machine, follows=True),
        Kind(
            "proxy-stopped",
            fault="kube-proxy-stopped",
            meets=on_machine,
            follows=True,
            explains=_is_of_proxy,
        ),
        Kind("flanneld-down", fault="flanneld-killed", meets=on_machine, follows=True),
        Kind("wrong-subnet", fault="wrong-pod-cidr", meets=on_machine, follows=True),
    )

    def in_lab(self, look: LabLook) -> Iterator[Difference]:
        intent = look.intent
        for machine in intent.machines if intent.kubernetes else ():
            facts = look.observed.get(machine.name)
            if facts and facts.software and machine.kubelet:
                if machine.name == intent.control_plane():
                    yield from _dns(intent, machine, facts.software)
                yield from _of_node(intent, machine, facts.software)


def _on_path(difference: Difference, hop: Hop, path: Path) -> bool:
    """The configuration of a node's block comes before everything that follows from it."""
    return hop is path.hops[0] and difference.node in path.machines


def _pool(
    intent: Intent, machine: MachineIntent, pools: Mapping[str, Mapping[str, Any]]
) -> Iterator[Difference]:
    assert machine.kubelet, "asked of nodes alone"
    wanted = node_pool(machine.name, str(machine.kubelet.pod_cidr))
    spec, pool = pool_spec(intent.topology, wanted), pools.get(wanted.name)
    wrong = {key: value for key, value in spec.items() if pool and pool.get(key) != value}
    if pool and pool.get("disabled"):
        wrong["disabled"] = False
    if pool is not None and not wrong:
        return
    kind = "wrong-encapsulation" if {"vxlanMode", "ipipMode"} & set(wrong) else "wrong-pool"
    patch = json.dumps({"spec": wrong}, separators=(",", ":"))
    yield differs(
        kind,
        machine.name,
        ApiSubject("IPPool", "", wanted.name),
        _settings(wrong) or "there",
        _settings({key: (pool or {}).get(key) for key in wrong}) or "there is none",
        f"{_KUBECTL} get {POOL_KIND} {wanted.name} -o yaml",
        f"{_KUBECTL} patch {POOL_KIND} {wanted.name} --type=merge -p '{patch}'"
        if pool is not None
        else "lab up",
        place=intent.control_plane(),
    )


def _settings(spec: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {json.dumps(value)}" for key, value in spec.items())


def _autonomous_system(
    intent: Intent, machine: MachineIntent, systems: Mapping[str, str]
) -> Iterator[Difference]:
    wanted, system = as_number(intent, machine) or "", systems.get(machine.name)
    if intent.topology != BGP or system is None or system == wanted:
        return
    annotation = f"{AS_NUMBER}={wanted}" if wanted else f"{AS_NUMBER}-"
    yield differs(
        "wrong-as",
        machine.name,
        OtherSubject(f"AS number of node {machine.name}"),
        wanted or "none of its own",
        system or "none of its own",
        f"{_KUBECTL} get node {machine.name} -o yaml",
        f"{_KUBECTL} annotate --overwrite node {machine.name} {annotation}",
        place=intent.control_plane(),
    )


def _felix(machine: MachineIntent, states: tuple[str, ...]) -> Iterator[Difference]:
    if _is_stopped(states):
        yield differs(
            "felix-down",
            machine.name,
            ProgramSubject("felix"),
            "running",
            _describe_states(states),
            "ps -e -o pid,state,lstart,args",
            "delete the node's pod calico-node, which creates it again",
        )


class CalicoCheck(Check):
    """Pools, AS numbers and Felix on each node of a cluster with Calico."""

    order = 140
    kinds = (
        Kind("wrong-pool", fault="wrong-pool", meets=_on_path, everywhere=True),
        Kind(
            "wrong-encapsulation",
            fault="wrong-encapsulation",
            meets=_on_path,
            everywhere=True,
            explains=_is_pod_route,
        ),
        Kind("wrong-as", fault="wrong-as-number", meets=_on_path, everywhere=True),
        Kind("felix-down", fault="felix-killed", meets=on_machine, follows=True),
    )

    def in_lab(self, look: LabLook) -> Iterator[Difference]:
        intent = look.intent
        if not has_felix(intent):
            return
        calico_by_machine = {
            name: facts.calico for name, facts in look.observed.items() if facts.calico
        }
        of_plane = calico_by_machine.get(intent.control_plane())
        for machine in intent.machines:
            if not machine.kubelet or not machine.kubelet.pod_cidr:
                continue
            if of_plane and of_plane.pools is not None:
                yield from _pool(intent, machine, of_plane.pools)
            if of_plane and of_plane.systems is not None and machine.os == "linux":
                yield from _autonomous_system(intent, machine, of_plane.systems)
            own = calico_by_machine.get(machine.name)
            if own and own.felix is not None:
                yield from _felix(machine, own.felix)
