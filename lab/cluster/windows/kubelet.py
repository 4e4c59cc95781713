"""The kubelet as a Windows service, and how it gets into the cluster. Pure.

The service is native: ``kube-log-runner.exe --log-file=... kubelet.exe --windows-service ...``, as
Kubernetes' image-builder has it since 2026-06. Such a service does not read kubeadm's
``kubeadm-flags.env``; the step that makes it does, and appends the flags it finds there to ours.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Protocol

from lab._deadline import Deadline
from lab.cluster.cluster import Cluster, ClusterNode
from lab.cluster.windows import paths
from lab.cluster.windows.join_checks import takes_infra_image


@dataclass(frozen=True, slots=True)
class HardWayJoin:
    """What a node has instead of a token where nobody uses kubeadm."""

    kubelet_kubeconfig: bytes = field(repr=False)
    """With the node's own client certificate in it."""
    ca: bytes = field(repr=False)
    """The cluster's CA, PEM."""


@dataclass(frozen=True, slots=True)
class Join:
    """All that lets one node in."""

    endpoint: str
    """Of the API server, ``"10.9.176.11:6443"``."""
    token: str = field(repr=False)
    """kubeadm's, for minutes; empty by hand."""
    ca_hash: str
    """``"sha256:..."`` of the CA's public key; empty by hand."""
    proxy_kubeconfig: bytes = field(repr=False)
    network_kubeconfig: bytes | None = field(default=None, repr=False)
    """flanneld's; None where none runs."""
    by_hand: HardWayJoin | None = None


class NodeApi(Protocol):
    """What of the cluster's API a joining node needs somebody to ask."""

    def registered(self, name: str, deadline: Deadline) -> bool:
        """Whether there is a Node of that name."""

    def set_pod_cidr(self, node: ClusterNode, deadline: Deadline) -> None:
        """Wait for the Node, and give it the plan's pod CIDR."""


KUBELET_SERVICE = "kubelet"
"""kubeadm starts and stops the service of this name."""
KUBELET_PORT = 10250
HEALTH_SECONDS = 240
TLS_SECONDS = 300
"""kubeadm's own defaults for the kubelet's health and its certificate."""


def kubelet_command(node: ClusterNode, pause: str, *, by_hand: bool) -> str:
    """The service's command line; no quotes are needed in it.

    ``cgroups-per-qos``, ``enforce-node-allocatable`` and ``resolv-conf`` undo what kubeadm writes
    for Linux into the configuration of all nodes.
    """
    given = [
        "--windows-service",
        "--v=2",
        f"--cert-dir={paths.KUBELET}\\pki",
        f"--config={paths.KUBELET_CONFIG}",
        *([] if by_hand else [f"--bootstrap-kubeconfig={paths.BOOTSTRAP_CONF}"]),
        f"--kubeconfig={paths.KUBELET_CONF}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--container-runtime-endpoint={paths.PIPE}",
        "--enable-debugging-handlers",
        "--cgroups-per-qos=false",
        "--enforce-node-allocatable=",
        "--resolv-conf=",
    ]
    if takes_infra_image(node.version):
        given.append(f"--pod-infra-container-image={pause}")
    return logged_command(KUBELET_SERVICE, "kubelet.exe", given)


def logged_command(service: str, program: str, given: list[str]) -> str:
    """A program behind kube-log-runner, since a Windows service has nowhere to write to."""
    runner = f"{paths.PROGRAMS}\\kube-log-runner.exe --log-file={paths.log_file(service)}"
    return " ".join([runner, f"{paths.PROGRAMS}\\{program}", *given])


def join_document(node: ClusterNode, join: Join) -> str:
    """``kubeadm join --config``: the token is in a file, not on a command line."""
    document = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "token": join.token,
                "apiServerEndpoint": join.endpoint,
                "caCertHashes": [join.ca_hash],
            },
        },
        "nodeRegistration": {
            "name": node.name,
            "criSocket": paths.PIPE,
            "taints": [],
            "imagePullPolicy": "IfNotPresent",
        },
        "timeouts": {
            "kubeletHealthCheck": f"{HEALTH_SECONDS}s",
            "tlsBootstrap": f"{TLS_SECONDS}s",
        },
    }
    return json.dumps(document, indent=2) + "\n"


def kubelet_config(cluster: Cluster) -> str:
    """``config.yaml`` where no kubeadm writes it; JSON is YAML."""
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{paths.PKI}\\ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [cluster.dns_address],
        "clusterDomain": cluster.domain,
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "resolvConf": "",
        "containerRuntimeEndpoint": paths.PIPE,
        "rotateCertificates": True,
    }
    return json.dumps(document, indent=2) + "\n"
