"""Software and configuration files on a cluster node: as reported, and differences.

Pure. Little of it is on a packet's path: existing pods and rules keep working without it. It
affects what is created or changed later.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab.explain.check import DNS_PORT, Check, Difference, Kind, LabLook, differs, on_machine
from lab.facts.node import Software
from lab.facts.questions import ADMIN, SUBNET
from lab.topology.intent import Intent, MachineIntent
from lab.topology.path import Hop, Path

_STOPPED = ("T", "t")
"""States of ps(1): stopped by a signal, or by a debugger."""
_CERTIFICATE = "/var/lib/kubelet/pki/kubelet-client-current.pem"


def _at_dns(_: Difference, hop: Hop, path: Path) -> bool:
    """A client that resolves a name gets no answer: before all consequences."""
    return path.flow.port == DNS_PORT and hop is path.hops[0]


def _dns(intent: Intent, machine: MachineIntent, seen: Software) -> Iterator[Difference]:
    from lab.cluster.dns import NAMESPACE, replicas_of  # noqa: PLC0415  few labs have a cluster

    if seen.dns_replicas == 0:
        deployment = f"kubectl --kubeconfig={ADMIN} --namespace={NAMESPACE}"
        wanted = replicas_of(intent)
        yield differs(
            "dns-scaled-down",
            machine.name,
            "Deployment coredns",
            f"{wanted} replicas",
            "it is scaled to 0: the cluster has no DNS",
            f"{deployment} get deployment,pods --selector=k8s-app=kube-dns",
            f"{deployment} scale deployment coredns --replicas={wanted}",
        )


def _of_node(intent: Intent, machine: MachineIntent, seen: Software) -> Iterator[Difference]:
    if machine.kubelet is None or machine.kubelet.pod_cidr is None:
        return
    if seen.expired:
        yield differs(
            "certificate-expired",
            machine.name,
            "the certificate of the kubelet",
            "valid",
            f"it expired on {seen.expired}",
            f"openssl x509 -noout -subject -dates -in {_CERTIFICATE}",
            "on a control plane: kubeadm kubeconfig user --org system:nodes "
            f"--client-name system:node:{machine.name}; put that into "
            "/etc/kubernetes/kubelet.conf of the node, and restart its kubelet",
        )
    if seen.cni == ():
        yield differs(
            "cni-config-missing",
            machine.name,
            "the CNI configuration",
            "a .conflist in /etc/cni/net.d",
            "there is none: new pods get no network and the node is NotReady",
            "ls -l /etc/cni/net.d",
            "restore the network add-on's .conflist, or restart its pod if that writes it",
        )
    for mounted in seen.full:
        yield differs(
            "disk-full",
            machine.name,
            f"the file system at {mounted}",
            "space left",
            "it is full",
            f"df -h {mounted}",
            f"find what fills it (du -xh {mounted} | sort -h), and delete that or enlarge it",
        )
    yield from _programs(intent, machine, seen)


def _programs(intent: Intent, machine: MachineIntent, seen: Software) -> Iterator[Difference]:
    from lab.cluster.addons.flannel import NAMESPACE, TOPOLOGIES, subnet_line  # noqa: PLC0415  the same

    assert machine.kubelet, "asked of nodes alone"
    if machine.translation and machine.chassis is None:  # OVN needs no kube-proxy
        yield from _program(machine.name, seen, "kube-proxy", "kube-system", "proxy-stopped")
    if intent.topology in TOPOLOGIES:
        yield from _program(machine.name, seen, "flanneld", NAMESPACE, "flanneld-down")
        line = subnet_line(machine.kubelet.pod_cidr or "")
        if seen.subnet is not None and seen.subnet != line:
            yield differs(
                "wrong-subnet",
                machine.name,
                f"flannel's {SUBNET}",
                line,
                seen.subnet or "it is not set",
                f"cat {SUBNET}",
                f"sed -i 's#^FLANNEL_SUBNET=.*#{line}#' {SUBNET}",
            )


def _program(
    node: str, seen: Software, name: str, namespace: str, kind: str
) -> Iterator[Difference]:
    states = [state for there, state in seen.processes or () if there == name]
    if seen.processes is None or any(state not in _STOPPED for state in states):
        return
    yield differs(
        kind,
        node,
        f"program {name}",
        "running",
        "stopped by a signal" if states else "it does not run",
        f"ps -C {name} -o pid,state,lstart,args"
        if states
        else "journalctl -u kubelet --since=-5min --no-pager",
        f"pkill -CONT -x {name}"
        if states
        else f"check why it does not start (kubectl -n {namespace} describe pods), and fix that",
    )


class SoftwareCheck(Check):
    """Software and configuration files of each cluster node, the worst difference first."""

    order = 130
    kinds = (
        Kind("dns-scaled-down", fault="coredns-scaled-down", meets=_at_dns),
        Kind(
            "certificate-expired",
            fault="kubelet-certificate-expired",
            meets=on_machine,
            follows=True,
        ),
        Kind("cni-config-missing", fault="cni-config-missing", meets=on_machine, follows=True),
        Kind("disk-full", fault="disk-full", meets=on_machine, follows=True),
        Kind("proxy-stopped", fault="kube-proxy-stopped", meets=on_machine, follows=True),
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
