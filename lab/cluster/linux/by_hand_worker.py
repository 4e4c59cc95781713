"""Kubernetes the hard way: a worker's kubelet and kube-proxy as plain units. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lab.cluster import kubeadm, proxy
from lab.cluster.certificates import CertificateSubject, Pair
from lab.cluster.cluster import Cluster, ClusterNode
from lab.cluster.documents import Document, to_yaml
from lab.cluster.linux import kubelet, medium
from lab.cluster.linux.by_hand import kubeconfig_file, pair_files
from lab.cluster.linux.operations import Operation, Operations, SystemdUnit, WriteFile, inputs

PROGRAMS = ("kubelet", "kube-proxy", "kubectl")
_PROXY_UNIT = "kube-proxy.service"
_PROXY_CONFIG = "/var/lib/kube-proxy/config.yaml"
_CA = "/etc/kubernetes/pki/ca.crt"
_KUBELET_PAIR = "/var/lib/kubelet/pki/kubelet-by-hand"


@dataclass(frozen=True, slots=True)
class WorkerKeys:
    """What one worker holds: no key of the authority."""

    ca: str
    kubelet: Pair
    proxy: Pair


BLANK = WorkerKeys("", Pair("", ""), Pair("", ""))
"""For a digest, which must not depend on keys."""


def subjects(node: ClusterNode) -> dict[str, CertificateSubject]:
    """The worker's certificates; its kubelet asks and answers with the same one."""
    own = (node.name, node.address)
    return {
        "kubelet": CertificateSubject(f"system:node:{node.name}", ("system:nodes",), own),
        "proxy": CertificateSubject("system:kube-proxy", ("system:node-proxier",)),
    }


def worker(cluster: Cluster, node: ClusterNode, keys: WorkerKeys, patience: int = 1) -> Operations:
    """The worker with its programs running; it registers by itself."""
    server = kubeadm.endpoint(cluster)
    common: tuple[Operation, ...] = (
        *medium.programs(PROGRAMS),
        WriteFile(_CA, keys.ca, secret=True),
    )
    own: tuple[Operation, ...] = (
        *pair_files(_KUBELET_PAIR, keys.kubelet),
        kubeconfig_file(cluster, "/etc/kubernetes/kubelet.conf", server, keys.ca, keys.kubelet),
        WriteFile(kubelet.CONFIG, to_yaml((configuration(cluster, patience),))),
        kubelet.by_hand(node.name, node.address),
    )
    proxies: tuple[Operation, ...] = (
        kubeconfig_file(cluster, proxy.KUBECONFIG, server, keys.ca, keys.proxy),
        WriteFile(_PROXY_CONFIG, to_yaml((proxy.configuration(cluster),))),
        WriteFile(f"/etc/systemd/system/{_PROXY_UNIT}", _proxy_unit(node)),
    )
    return (
        *common,
        *own,
        *proxies,
        SystemdUnit(kubelet.UNIT, inputs((*common, *own))),
        SystemdUnit(_PROXY_UNIT, inputs((*common, *proxies))),
    )


def configuration(cluster: Cluster, patience: int) -> Document:
    """The kubelet's configuration: what kubeadm would add to the cluster's own stands here."""
    return {
        **kubeadm.kubelet(cluster, patience),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": _CA},
        },
        "authorization": {"mode": "Webhook"},
        "rotateCertificates": False,
        "tlsCertFile": f"{_KUBELET_PAIR}.crt",
        "tlsPrivateKeyFile": f"{_KUBELET_PAIR}.key",
    }


def _proxy_unit(node: ClusterNode) -> str:
    command = f"{medium.PROGRAMS}/kube-proxy --config={_PROXY_CONFIG}"
    return f"""[Unit]
Description=kube-proxy
After=network-online.target hybridlab-network.service
Wants=network-online.target
RequiresMountsFor={medium.PLACE}

[Service]
ExecStart={command} --hostname-override={node.name}
Restart=always
RestartSec=5
StartLimitInterval=0

[Install]
WantedBy=multi-user.target
"""
