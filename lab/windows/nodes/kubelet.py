"""The kubelet as a Windows service, and how it joins the cluster. Pure.

The service is native: ``kube-log-runner.exe --log-file=... kubelet.exe --windows-service ...``, as
in Kubernetes' image-builder since 2026-06. Such a service does not read kubeadm's
``kubeadm-flags.env``; the step that creates it does, and appends the flags found there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from lab.machines.cluster.cluster import Cluster, ClusterNode
from lab.machines.cluster.kubeadm import STORAGE
from lab.machines.system import NodeCredentials
from lab.windows.nodes import paths
from lab.windows.nodes.join_checks import takes_flag

KUBELET_SERVICE = "kubelet"
"""kubeadm starts and stops the service of this name."""
KUBELET_PORT = 10250
HEALTH_SECONDS = 240
TLS_SECONDS = 300
"""kubeadm's default limits for the kubelet's health and its certificate."""


def kubelet_command(
    node: ClusterNode, pause: str, labels: Mapping[str, str], *, by_hand: bool
) -> str:
    """The command line of the kubelet service; it needs no quoting.

    ``labels``: those that its Node registers with, beside Kubernetes' own.

    What the configuration has is not here: those flags are deprecated.
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
    ]
    if labels:
        given.append("--node-labels=" + ",".join(f"{key}={value}" for key, value in labels.items()))
    if takes_flag("kubelet", node.version, "--pod-infra-container-image"):
        given.append(f"--pod-infra-container-image={pause}")
    return logged_command(KUBELET_SERVICE, "kubelet.exe", given)


def logged_command(service: str, program: str, given: list[str]) -> str:
    """A program under kube-log-runner, because a Windows service has no console to log to."""
    runner = f"{paths.PROGRAMS}\\kube-log-runner.exe --log-file={paths.log_file(service)}"
    return " ".join([runner, f"{paths.PROGRAMS}\\{program}", *given])


def join_document(node: ClusterNode, join: NodeCredentials) -> str:
    """The document of ``kubeadm join --config``; the token is in a file, not on a command line."""
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
        "patches": {"directory": paths.PATCHES},
        "timeouts": {
            "kubeletHealthCheck": f"{HEALTH_SECONDS}s",
            "tlsBootstrap": f"{TLS_SECONDS}s",
        },
    }
    return json.dumps(document, indent=2) + "\n"


_WINDOWS: Mapping[str, object] = {
    "cgroupsPerQOS": False,
    "enforceNodeAllocatable": [],
    "resolvConf": "",
    "containerRuntimeEndpoint": paths.PIPE,
}
"""What the configuration of a Windows node has instead of a Linux node's values."""


def config_patch() -> str:
    """Kubeadm's patch of the configuration that all nodes of the cluster share."""
    return json.dumps(_WINDOWS, indent=2) + "\n"


def kubelet_config(cluster: Cluster) -> str:
    """``config.yaml`` for a node without kubeadm; JSON is valid YAML."""
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
        "rotateCertificates": True,
        "tlsCertFile": f"{paths.KUBELET_PAIR}.crt",
        "tlsPrivateKeyFile": f"{paths.KUBELET_PAIR}.key",
        **STORAGE,
        **_WINDOWS,
    }
    return json.dumps(document, indent=2) + "\n"
