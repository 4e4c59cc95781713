"""Kubernetes the Hard Way: a cluster of plain systemd units, without kubeadm.

As in Kubernetes the Hard Way, every controller runs etcd, API server, controller manager and
scheduler; RBAC lets the API server reach the kubelets, and etcd stores Secrets encrypted. Files
have the paths that kubeadm gives them.
"""

from __future__ import annotations

import json
import secrets
from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from lab.machines.cluster.cluster import API_PORT, Cluster, ClusterNode
from lab.machines.cluster.credentials import (
    Access,
    CertificateSubject,
    Pair,
    context_name,
    issue,
    kubeconfig_text,
    make_authority,
    make_signing_key,
)
from lab.machines.cluster.documents import Document, render, to_yaml
from lab.machines.cluster.kubeadm import (
    PROXY_KUBECONFIG,
    Surroundings,
    api_endpoint,
    api_names,
    api_server_arguments,
    controller_manager_arguments,
    etcd_arguments,
    first_service,
    kube_proxy_config,
    kubelet_config,
    leader_election,
)
from lab.machines.cluster.linux.api import ClusterApi
from lab.machines.cluster.linux.joining import API_SECONDS, REGISTER_SECONDS, kubelet_subject
from lab.machines.cluster.linux.node import (
    BIN,
    KUBELET_CONFIG,
    KUBELET_UNIT,
    MEDIUM,
    link_programs,
    plain_kubelet,
)
from lab.machines.cluster.linux.operations import (
    ClusterSite,
    Operation,
    Operations,
    Run,
    SystemdUnit,
    WriteFile,
    inputs_digest,
    unit_file,
)
from lab.plan.canonical import digest
from lab.shells.parallel import on_each
from lab.state.directory import make_private
from lab.state.failure import guarded_files
from lab.state.files import write_private
from lab.topology.intent import Intent

KEYS_DIRECTORY = "cluster-keys"
_SECRET_BYTES = 32
"""Bytes of the AES-CBC key (256 bits), the size in Kubernetes the Hard Way."""


class Keys:
    """Keys in one directory, each in its own file with mode 0600."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / KEYS_DIRECTORY

    def authority(self) -> Pair:
        """The cluster's certificate authority."""
        return self._kept("ca", "", lambda: make_authority("hybridlab"))

    def issued(self, file: str, subject: CertificateSubject) -> Pair:
        """A certificate for the subject; a new one if the subject or the authority has changed."""
        ca = self.authority()
        about = digest(subject, ca.certificate)
        return self._kept(file, about, lambda: issue(ca, subject))

    def plane(self) -> dict[str, Pair]:
        """What all controllers share: authority, service accounts, and encryption of Secrets."""
        key = b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()
        return {
            "ca": self.authority(),
            # signs service account tokens; the certificate is the public key
            "service-accounts": self._kept("service-accounts", "", make_signing_key),
            "encryption": self._kept("encryption", "", lambda: Pair("", key)),
        }

    def _kept(self, file: str, about: str, make: Callable[[], Pair]) -> Pair:
        path = self._directory / f"{file}.json"
        with guarded_files(f"reading '{path}'"):
            text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text and (pair := json.loads(text))["about"] == about:
            return Pair(pair["certificate"], pair["key"])
        made = make()
        make_private(self._directory)
        kept = {"about": about, "certificate": made.certificate, "key": made.key}
        write_private(path, json.dumps(kept))
        return made


PKI = "/etc/kubernetes/pki"
PLANE_PROGRAMS = (
    "etcd",
    "etcdctl",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
)
KUBELET_CLIENT = "kube-apiserver-kubelet-client"
_START_SECONDS = 120.0


Pairs = Mapping[str, Pair]
"""A machine's certificates and keys by name. Besides those of its subjects: ``ca`` (on a worker
without the key), ``service-accounts`` and ``encryption``, which has a key only."""
BLANK: Pairs = defaultdict(lambda: Pair("", ""))
"""For a digest that must not depend on keys."""


def controller_subjects(
    cluster: Cluster, intent: Intent, node: ClusterNode, around: Surroundings
) -> dict[str, CertificateSubject]:
    """Every certificate of a controller."""
    service = first_service(cluster)
    api = (
        *api_names(cluster, intent, around),
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


def run_controller(
    cluster: Cluster, intent: Intent, node: ClusterNode, pairs: Pairs, around: Surroundings
) -> Operations:
    """Start one controller's programs; the API is ready once a majority of controllers is."""
    links = tuple(link_programs(PLANE_PROGRAMS))
    files = _files(cluster, pairs)
    slow = around.patience
    (given,) = render(
        "cluster/linux/control_plane.yaml",
        cluster=cluster,
        node=node,
        planes=cluster.control_planes(),
        port=API_PORT,
    )
    more = {
        "etcd": etcd_arguments(slow),
        "kube-apiserver": api_server_arguments(intent, slow),
        "kube-controller-manager": controller_manager_arguments(cluster, slow),
        "kube-scheduler": leader_election(cluster, slow),
    }
    commands = {name: given[name] | arguments for name, arguments in more.items()}
    units = {
        name: _program_unit(
            name,
            "".join(f"\\\n    --{key}={text} " for key, text in arguments.items()).rstrip(),
            "LimitNOFILE=65536",
        )
        for name, arguments in commands.items()
    }
    read: dict[str, tuple[Operation, ...]] = {
        name: (*links, *files, unit) for name, unit in units.items()
    }
    # started without waiting: etcd is ready only when a majority of its members is
    services = tuple(
        SystemdUnit(
            f"{name}.service", inputs_digest(read[name]), wait=False, seconds=_START_SECONDS
        )
        for name in units
    )
    return (*links, *files, *units.values(), *services)


def kubelet_rbac() -> tuple[Document, ...]:
    """The RBAC objects that let the API server reach the kubelets' API."""
    return render("cluster/linux/kubelet_rbac.yaml", user=KUBELET_CLIENT)


def _files(cluster: Cluster, pairs: Pairs) -> Operations:
    operations: list[Operation] = []
    for name in ("ca", "apiserver", "apiserver-kubelet-client", "etcd"):
        operations += pair_files(f"{PKI}/{name}", pairs[name])
    accounts = pairs["service-accounts"]
    operations += [
        WriteFile(f"{PKI}/sa.pub", accounts.certificate, secret=True),
        WriteFile(f"{PKI}/sa.key", accounts.key, 0o600, secret=True),
    ]
    for name in ("admin", "controller-manager", "scheduler"):
        # to the API server on the same machine: HAProxy has none until one is ready
        server = api_endpoint(cluster) if name == "admin" else f"127.0.0.1:{API_PORT}"
        path = f"/etc/kubernetes/{name}.conf"
        operations.append(kubeconfig_file(cluster, path, server, pairs["ca"], pairs[name]))
    key = {"name": "key1", "secret": pairs["encryption"].key}
    encryption = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [
            {
                "resources": ["secrets"],
                # those written before encryption stay readable
                "providers": [{"aescbc": {"keys": [key]}}, {"identity": {}}],
            }
        ],
    }
    text = to_yaml((encryption,))
    operations.append(WriteFile("/etc/kubernetes/encryption.yaml", text, 0o600, secret=True))
    return tuple(operations)


def pair_files(path: str, pair: Pair) -> Operations:
    """Write certificate and key to ``PATH.crt`` and ``PATH.key``."""
    return (
        WriteFile(f"{path}.crt", pair.certificate, secret=True),
        WriteFile(f"{path}.key", pair.key, 0o600, secret=True),
    )


def kubeconfig_file(cluster: Cluster, path: str, server: str, ca: Pair, client: Pair) -> WriteFile:
    """A kubeconfig on the machine."""
    access = Access(context_name(cluster.name), f"https://{server}", ca.certificate, client)
    return WriteFile(path, kubeconfig_text(access), 0o600, secret=True)


def _program_unit(program: str, arguments: str, *more: str) -> WriteFile:
    """A unit for one of Kubernetes' programs, restarted without limit."""
    return unit_file(
        f"{program}.service",
        program,
        (
            "After=network-online.target hybridlab-network.service",
            "Wants=network-online.target",
            f"RequiresMountsFor={MEDIUM}",
        ),
        (
            f"ExecStart={BIN}/{program} {arguments}",
            "Restart=always",
            "RestartSec=5",
            "StartLimitInterval=0",
            *more,
        ),
    )


WORKER_PROGRAMS = ("kubelet", "kube-proxy", "kubectl")
_PROXY_UNIT = "kube-proxy.service"
_PROXY_CONFIG = "/var/lib/kube-proxy/config.yaml"
_WORKER_CA = "/etc/kubernetes/pki/ca.crt"
_KUBELET_PAIR = "/var/lib/kubelet/pki/kubelet-by-hand"


def worker_subjects(node: ClusterNode) -> dict[str, CertificateSubject]:
    """The worker's certificates; its kubelet uses one as client and server."""
    return {
        "kubelet": kubelet_subject(node),
        "proxy": CertificateSubject("system:kube-proxy", ("system:node-proxier",)),
    }


def run_worker(cluster: Cluster, node: ClusterNode, pairs: Pairs, patience: int = 1) -> Operations:
    """Start the worker's programs; it registers by itself."""
    server, ca = api_endpoint(cluster), pairs["ca"]
    common: tuple[Operation, ...] = (
        *link_programs(WORKER_PROGRAMS),
        WriteFile(_WORKER_CA, ca.certificate, secret=True),
    )
    own: tuple[Operation, ...] = (
        *pair_files(_KUBELET_PAIR, pairs["kubelet"]),
        kubeconfig_file(cluster, "/etc/kubernetes/kubelet.conf", server, ca, pairs["kubelet"]),
        WriteFile(KUBELET_CONFIG, to_yaml((worker_kubelet_config(cluster, patience),))),
        plain_kubelet(node.name, node.address),
    )
    proxies: tuple[Operation, ...] = (
        kubeconfig_file(cluster, PROXY_KUBECONFIG, server, ca, pairs["proxy"]),
        WriteFile(_PROXY_CONFIG, to_yaml((kube_proxy_config(cluster),))),
        _program_unit("kube-proxy", f"--config={_PROXY_CONFIG} --hostname-override={node.name}"),
    )
    return (
        *common,
        *own,
        *proxies,
        SystemdUnit(KUBELET_UNIT, inputs_digest((*common, *own))),
        SystemdUnit(_PROXY_UNIT, inputs_digest((*common, *proxies))),
    )


def worker_kubelet_config(cluster: Cluster, patience: int) -> Document:
    """The cluster's kubelet configuration with what kubeadm would add."""
    return {
        **kubelet_config(cluster, patience),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": _WORKER_CA},
        },
        "authorization": {"mode": "Webhook"},
        "rotateCertificates": False,
        "tlsCertFile": f"{_KUBELET_PAIR}.crt",
        "tlsPrivateKeyFile": f"{_KUBELET_PAIR}.key",
    }


class HardWay:
    """Creates one cluster without kubeadm."""

    def __init__(self, cluster: Cluster, intent: Intent, site: ClusterSite) -> None:
        self._cluster = cluster
        self._intent = intent
        self._site = site
        self._around = Surroundings(site.management, site.patience)
        self._api = ClusterApi(cluster, site)
        self._keys = Keys(site.directory)

    def start(self) -> None:
        """Start all controllers in parallel: etcd needs a majority of them."""
        made = {}
        for node in self._cluster.control_planes():
            subjects = controller_subjects(self._cluster, self._intent, node, self._around)
            pairs = self._keys.plane() | self._issued(node, subjects)
            made[node.name] = run_controller(self._cluster, self._intent, node, pairs, self._around)
        on_each(made, lambda name: self._site.run(name, made[name]))
        self._api.wait_until_ready(self._site.deadline(API_SECONDS))
        self._api.apply(kubelet_rbac(), self._site.deadline(API_SECONDS))

    def nodes(self, nodes: Iterable[ClusterNode]) -> None:
        """Start all workers in parallel; one whose Node was deleted registers again."""
        wanted = tuple(nodes)
        made = {}
        for node in wanted:
            pairs = {"ca": self._keys.authority()} | self._issued(node, worker_subjects(node))
            made[node.name] = run_worker(self._cluster, node, pairs, self._site.patience)
        on_each(made, lambda name: self._site.run(name, made[name]))
        registered = self._api.nodes(self._site.deadline(API_SECONDS))
        for node in wanted:
            if node.name not in registered:
                self.register(node)
            self._api.set_pod_cidr(node, self._site.deadline(REGISTER_SECONDS))

    def register(self, node: ClusterNode) -> None:
        """Restart the kubelet, which registers when it starts."""
        self._site.run(node.name, (Run(("systemctl", "restart", "kubelet.service")),))

    def _issued(
        self, node: ClusterNode, subjects: Mapping[str, CertificateSubject]
    ) -> dict[str, Pair]:
        return {
            name: self._keys.issued(f"{node.name}-{name}", subject)
            for name, subject in subjects.items()
        }
