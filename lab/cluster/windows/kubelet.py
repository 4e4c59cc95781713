"""The kubelet as a Windows service, and how it gets into the cluster. Pure.

The service is native: ``kube-log-runner.exe --log-file=... kubelet.exe --windows-service ...``, as
Kubernetes' image-builder has it since 2026-06. Such a service does not read kubeadm's
``kubeadm-flags.env``; the step that makes it does, and puts what it finds there behind our flags.
"""

from __future__ import annotations

import json

from lab.cluster.cluster import Cluster, ClusterNode
from lab.cluster.windows import places, versions
from lab.cluster.windows.join import Join

SERVICE = "kubelet"
"""kubeadm starts and stops the service of this name."""
PORT = 10250
HEALTH_SECONDS = 240
TLS_SECONDS = 300
"""kubeadm's own defaults for the kubelet's health and its certificate."""


def command(node: ClusterNode, pause: str, *, by_hand: bool) -> str:
    """The service's command line; no quotes are needed in it.

    ``cgroups-per-qos``, ``enforce-node-allocatable`` and ``resolv-conf`` undo what kubeadm writes
    for Linux into the configuration of all nodes.
    """
    given = [
        "--windows-service",
        "--v=2",
        f"--cert-dir={places.KUBELET}\\pki",
        f"--config={places.KUBELET_CONFIG}",
        *([] if by_hand else [f"--bootstrap-kubeconfig={places.BOOTSTRAP_CONF}"]),
        f"--kubeconfig={places.KUBELET_CONF}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
        f"--container-runtime-endpoint={places.PIPE}",
        "--enable-debugging-handlers",
        "--cgroups-per-qos=false",
        "--enforce-node-allocatable=",
        "--resolv-conf=",
    ]
    if versions.takes_infra_image(node.version):
        given.append(f"--pod-infra-container-image={pause}")
    return logged(SERVICE, "kubelet.exe", given)


def logged(service: str, program: str, given: list[str]) -> str:
    """A program behind kube-log-runner, since a Windows service has nowhere to write to."""
    runner = f"{places.PROGRAMS}\\kube-log-runner.exe --log-file={places.log(service)}"
    return " ".join([runner, f"{places.PROGRAMS}\\{program}", *given])


def join_document(node: ClusterNode, join: Join) -> str:
    """``kubeadm join --config``: the token stands in a file, not on a command line."""
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
            "criSocket": places.PIPE,
            "taints": [],
            "imagePullPolicy": "IfNotPresent",
        },
        "timeouts": {
            "kubeletHealthCheck": f"{HEALTH_SECONDS}s",
            "tlsBootstrap": f"{TLS_SECONDS}s",
        },
    }
    return json.dumps(document, indent=2) + "\n"


def configuration(cluster: Cluster) -> str:
    """``config.yaml`` where no kubeadm writes it; JSON is YAML."""
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{places.PKI}\\ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [cluster.dns_address],
        "clusterDomain": cluster.domain,
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "resolvConf": "",
        "containerRuntimeEndpoint": places.PIPE,
        "rotateCertificates": True,
    }
    return json.dumps(document, indent=2) + "\n"
