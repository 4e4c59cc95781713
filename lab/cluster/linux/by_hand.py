"""Kubernetes the hard way: a control plane of plain units, without kubelet or kubeadm. Pure.

As Kubernetes the Hard Way has it: etcd, API server, controller manager and scheduler on every
controller, RBAC for the API server to reach the kubelets, Secrets encrypted in etcd. Files
have the paths that kubeadm gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lab.cluster import kubeadm, kubeconfig, pace
from lab.cluster.certificates import CertificateSubject, Pair
from lab.cluster.cluster import API_PORT, Cluster, ClusterNode
from lab.cluster.documents import Document, to_yaml
from lab.cluster.kubeadm import Surroundings
from lab.cluster.linux import medium
from lab.cluster.linux.operations import Operation, Operations, SystemdUnit, WriteFile, inputs
from lab.topology.intent import Intent

PKI = "/etc/kubernetes/pki"
PROGRAMS = (
    "etcd",
    "etcdctl",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
)
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
_START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class PlaneKeys:
    """What one controller holds."""

    ca: Pair
    service_accounts: Pair
    encryption: str
    issued: Mapping[str, Pair]
    """By the names of :func:`subjects`."""


BLANK = PlaneKeys(Pair("", ""), Pair("", ""), "", {})
"""For a digest, which must not depend on keys."""


def subjects(
    cluster: Cluster, intent: Intent, node: ClusterNode, around: Surroundings
) -> dict[str, CertificateSubject]:
    """Every certificate of a controller."""
    service = kubeadm.first_service(cluster)
    api = (
        *kubeadm.names(cluster, intent, around),
        service,
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        f"kubernetes.default.svc.{cluster.domain}",
    )
    local = ("localhost", "127.0.0.1", node.name, node.address)
    return {
        "apiserver": CertificateSubject("kube-apiserver", (), api),
        "apiserver-kubelet-client": CertificateSubject(KUBELET_CLIENT),
        "etcd": CertificateSubject(f"etcd-{node.name}", (), local),
        "admin": CertificateSubject("admin", ("system:masters",)),
        "controller-manager": CertificateSubject("system:kube-controller-manager"),
        "scheduler": CertificateSubject("system:kube-scheduler"),
    }


def plane(
    cluster: Cluster, intent: Intent, node: ClusterNode, keys: PlaneKeys, around: Surroundings
) -> Operations:
    """One controller with its programs running; the API is ready when most controllers are."""
    links = tuple(medium.programs(PROGRAMS))
    files = _files(cluster, keys)
    commands = {
        "etcd": _etcd(cluster, node, around.patience),
        "kube-apiserver": _api_server(cluster, intent, node, around.patience),
        "kube-controller-manager": _controller_manager(cluster, around.patience),
        "kube-scheduler": {
            "kubeconfig": "/etc/kubernetes/scheduler.conf",
            **kubeadm.scheduler_arguments(cluster, around.patience),
        },
    }
    units = {name: _unit(name, arguments) for name, arguments in commands.items()}
    read: dict[str, tuple[Operation, ...]] = {
        name: (*links, *files, unit) for name, unit in units.items()
    }
    # set off and not waited for: etcd is ready when most of its members are
    services = tuple(
        SystemdUnit(f"{name}.service", inputs(read[name]), wait=False, seconds=_START_SECONDS)
        for name in units
    )
    return (*links, *files, *units.values(), *services)


def kubelet_rights() -> tuple[Document, ...]:
    """What lets the API server reach the kubelets' own API."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    name = "system:kube-apiserver-to-kubelet"
    resources = ("proxy", "stats", "log", "spec", "metrics", "configz", "healthz", "pods")
    return (
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": [f"nodes/{one}" for one in resources],
                    "verbs": ["*"],
                }
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {**role, "name": name},
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": KUBELET_CLIENT}
            ],
        },
    )


def encryption(key: str) -> Document:
    """Secrets are encrypted in etcd; what was written before is still read."""
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [
            {
                "resources": ["secrets"],
                "providers": [
                    {"aescbc": {"keys": [{"name": "key1", "secret": key}]}},
                    {"identity": {}},
                ],
            }
        ],
    }


def _files(cluster: Cluster, keys: PlaneKeys) -> Operations:
    nothing = Pair("", "")
    pairs = {"ca": keys.ca} | {
        name: keys.issued.get(name, nothing)
        for name in ("apiserver", "apiserver-kubelet-client", "etcd")
    }
    found: list[Operation] = []
    for name, pair in pairs.items():
        found += pair_files(f"{PKI}/{name}", pair)
    accounts = keys.service_accounts
    found += [
        WriteFile(f"{PKI}/sa.pub", accounts.certificate, secret=True),
        WriteFile(f"{PKI}/sa.key", accounts.key, 0o600, secret=True),
    ]
    files = {"admin": "admin", "controller-manager": "controller-manager", "scheduler": "scheduler"}
    for file, name in files.items():
        # to the API server beside it: HAProxy has none that is not ready
        server = kubeadm.endpoint(cluster) if name == "admin" else f"127.0.0.1:{API_PORT}"
        found.append(
            kubeconfig_file(
                cluster,
                f"/etc/kubernetes/{file}.conf",
                server,
                keys.ca.certificate,
                keys.issued.get(name, nothing),
            )
        )
    text = to_yaml((encryption(keys.encryption),))
    found.append(WriteFile("/etc/kubernetes/encryption.yaml", text, 0o600, secret=True))
    return tuple(found)


def pair_files(path: str, pair: Pair) -> Operations:
    """Certificate and key, ``PATH.crt`` and ``PATH.key``."""
    return (
        WriteFile(f"{path}.crt", pair.certificate, secret=True),
        WriteFile(f"{path}.key", pair.key, 0o600, secret=True),
    )


def kubeconfig_file(cluster: Cluster, path: str, server: str, ca: str, client: Pair) -> WriteFile:
    """A kubeconfig on the machine."""
    name = kubeconfig.context(cluster.name)
    access = kubeconfig.Access(name, f"https://{server}", ca, client)
    return WriteFile(path, kubeconfig.text(access), 0o600, secret=True)


def _etcd(cluster: Cluster, node: ClusterNode, patience: int) -> dict[str, str]:
    members = cluster.control_planes()
    peers = ",".join(f"{one.name}=https://{one.address}:2380" for one in members)
    found = {
        "name": node.name,
        "data-dir": "/var/lib/etcd",
        "cert-file": f"{PKI}/etcd.crt",
        "key-file": f"{PKI}/etcd.key",
        "trusted-ca-file": f"{PKI}/ca.crt",
        "client-cert-auth": "true",
        "peer-cert-file": f"{PKI}/etcd.crt",
        "peer-key-file": f"{PKI}/etcd.key",
        "peer-trusted-ca-file": f"{PKI}/ca.crt",
        "peer-client-cert-auth": "true",
        "initial-advertise-peer-urls": f"https://{node.address}:2380",
        "listen-peer-urls": f"https://{node.address}:2380",
        "listen-client-urls": f"https://{node.address}:2379,https://127.0.0.1:2379",
        "advertise-client-urls": f"https://{node.address}:2379",
        "initial-cluster-token": f"hybridlab-{cluster.name}",
        "initial-cluster": peers,
        "initial-cluster-state": "new",
    }
    return found | pace.etcd(patience)


def _api_server(
    cluster: Cluster, intent: Intent, node: ClusterNode, patience: int
) -> dict[str, str]:
    members = ",".join(f"https://{one.address}:2379" for one in cluster.control_planes())
    return {
        "advertise-address": node.address,
        "allow-privileged": "true",
        "authorization-mode": "Node,RBAC",
        "client-ca-file": f"{PKI}/ca.crt",
        "enable-admission-plugins": "NodeRestriction",
        "encryption-provider-config": "/etc/kubernetes/encryption.yaml",
        "etcd-cafile": f"{PKI}/ca.crt",
        "etcd-certfile": f"{PKI}/etcd.crt",
        "etcd-keyfile": f"{PKI}/etcd.key",
        "etcd-servers": members,
        "kubelet-certificate-authority": f"{PKI}/ca.crt",
        "kubelet-client-certificate": f"{PKI}/apiserver-kubelet-client.crt",
        "kubelet-client-key": f"{PKI}/apiserver-kubelet-client.key",
        "kubelet-preferred-address-types": "InternalIP",
        "secure-port": str(API_PORT),
        "service-account-issuer": f"https://kubernetes.default.svc.{cluster.domain}",
        "service-account-key-file": f"{PKI}/sa.pub",
        "service-account-signing-key-file": f"{PKI}/sa.key",
        "service-cluster-ip-range": cluster.service_cidr,
        "tls-cert-file": f"{PKI}/apiserver.crt",
        "tls-private-key-file": f"{PKI}/apiserver.key",
        **kubeadm.api_server_arguments(intent, patience),
    }


def _controller_manager(cluster: Cluster, patience: int) -> dict[str, str]:
    config = "/etc/kubernetes/controller-manager.conf"
    return {
        "authentication-kubeconfig": config,
        "authorization-kubeconfig": config,
        "bind-address": "127.0.0.1",
        "client-ca-file": f"{PKI}/ca.crt",
        "cluster-cidr": cluster.pod_cidr,
        "cluster-name": f"hybridlab-{cluster.name}",
        "cluster-signing-cert-file": f"{PKI}/ca.crt",
        "cluster-signing-key-file": f"{PKI}/ca.key",
        "kubeconfig": config,
        "root-ca-file": f"{PKI}/ca.crt",
        "service-account-private-key-file": f"{PKI}/sa.key",
        "service-cluster-ip-range": cluster.service_cidr,
        "use-service-account-credentials": "true",
        **kubeadm.controller_manager_arguments(cluster, patience),
    }


def _unit(name: str, arguments: Mapping[str, str]) -> WriteFile:
    words = [f"{medium.PROGRAMS}/{name}", *(f"--{key}={text}" for key, text in arguments.items())]
    command = " \\\n    ".join(words)
    text = f"""[Unit]
Description={name}
After=network-online.target hybridlab-network.service
Wants=network-online.target
RequiresMountsFor={medium.PLACE}

[Service]
ExecStart={command}
Restart=always
RestartSec=5
StartLimitInterval=0
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
"""
    return WriteFile(f"/etc/systemd/system/{name}.service", text)
