"""Joins Linux machines to a kubeadm cluster, whatever state they are in."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace

from lab._deadline import Deadline
from lab.machines.addons.addon import POD_NETWORK_UNIT, addons
from lab.machines.bundle.manifest import Manifest
from lab.machines.cluster.cluster import Cluster, ClusterNode
from lab.machines.cluster.credentials import (
    Access,
    CertificateSubject,
    Pair,
    context_name,
    issue,
    kubeconfig_text,
    public_key_pin,
)
from lab.machines.cluster.documents import Document, to_yaml
from lab.machines.cluster.kubeadm import (
    PATCHES,
    PROXY_TABLES,
    SOCKET,
    Surroundings,
    Ticket,
    api_endpoint,
    init_documents,
    join_documents,
    static_pod_patches,
)
from lab.machines.cluster.linux.api import ADMIN, ClusterApi
from lab.machines.cluster.linux.node import MARK
from lab.machines.cluster.linux.operations import (
    UNITS,
    ClusterSite,
    Operations,
    Remove,
    Run,
    WriteFile,
    command_failure,
)
from lab.machines.recorded_states import forget_record
from lab.plan.canonical import digest
from lab.shells.parallel import on_each
from lab.topology.footprint import find_footprint
from lab.topology.intent import Intent

_CONFIG = "/run/hybridlab/kubeadm.yaml"
"""In ``/run``, because it holds a token: a restart removes it at the latest."""
INIT_SECONDS = 600.0
JOIN_SECONDS = 400.0
RESET_SECONDS = 240.0
UPLOAD_SECONDS = 120.0
_AGAIN = "run 'lab up' again: it first removes what is half done"
_STARTING = ("preflight", "certs", "kubeconfig", "etcd", "control-plane", "kubelet-start")
"""Phases of ``kubeadm init`` up to the start of the static pods."""
_FINISHING = (
    "wait-control-plane",
    "upload-config",
    "upload-certs",
    "mark-control-plane",
    "bootstrap-token",
    "kubelet-finalize",
    "addon",
    "show-join-command",
)
"""The remaining phases (``cmd/kubeadm/app/cmd/init.go``, 1.36)."""
_POD_NETWORK = f"{UNITS}/{POD_NETWORK_UNIT}"
HAS_JOINED = (
    "[ -e /etc/kubernetes/kubelet.conf ] || [ -e /etc/kubernetes/manifests/kube-apiserver.yaml ] "
    f"|| [ -e /etc/kubernetes/pki ] || [ -e /var/lib/etcd/member ] || [ -e {MARK} ]"
)
"""Shell command: whether anything of an earlier membership exists."""


def start_control_plane(
    cluster: Cluster, documents: tuple[Document, ...], patience: int
) -> Operations:
    """Start the programs of the first control plane.

    kubeadm alone would count the API server's start into the limit for one call
    (``kubernetesAPICall``) and give up on a slow machine, so the lab waits for that start itself.
    """
    return (
        *_patches(cluster, patience),
        WriteFile(_CONFIG, to_yaml(documents), 0o600),
        _init(documents, _FINISHING),
    )


def finish_control_plane(documents: tuple[Document, ...], mark: str) -> Operations:
    """Run the remaining phases on a first control plane that is started and answers."""
    return (_init(documents, _STARTING), *_mark_joined(mark))


def join_node(
    cluster: Cluster, documents: tuple[Document, ...], mark: str, patience: int
) -> Operations:
    """Join a node or a further control plane."""
    return (
        *_patches(cluster, patience),
        WriteFile(_CONFIG, to_yaml(documents), 0o600, secret=True),
        Run(("kubeadm", "join", "--config", _CONFIG), seconds=JOIN_SECONDS, hint=_AGAIN),
        *_mark_joined(mark),
    )


def upload_keys(documents: tuple[Document, ...]) -> Operations:
    """Upload the control plane's keys for further ones, encrypted with the documents' key."""
    upload = ("kubeadm", "init", "phase", "upload-certs", "--upload-certs", "--config", _CONFIG)
    return (
        WriteFile(_CONFIG, to_yaml(documents), 0o600, secret=True),
        Run(upload, seconds=UPLOAD_SECONDS),
        Remove((_CONFIG,)),
    )


def leave_cluster(cluster: Cluster) -> Operations:
    """Remove everything of a membership: kubeadm's, kube-proxy's and the network add-on's.

    The machine stays prepared: programs, images and the lab's own CNI configuration remain, and the
    unit that creates the bridge before the first pod runs again.
    """
    beside = find_footprint(cluster.topology)
    of_proxy = PROXY_TABLES[cluster.proxy_mode]
    tables = [f"{family}:{name}" for family in ("ip", "ip6") for name in of_proxy]
    named = "|".join((*tables, *(f"*:{name}" for name in beside.tables)))
    lines = [
        f"cd /sys/class/net; for one in {' '.join(beside.devices)}; do",
        '  if [ -e "$one" ]; then ip link delete "$one"; fi',
        "done",
        "nft list tables | while read -r _ family name; do",
        f'  case "$family:$name" in {named}) nft delete table "$family" "$name";; esac',
        "done",
    ]
    lines += [f"ovs-vsctl --timeout=10 --if-exists del-br {switch}" for switch in beside.switches]
    lines += [f"ip route flush root {cluster.pod_cidr}"]
    return (
        Run(("kubeadm", "reset", "--force", "--cri-socket", SOCKET), seconds=RESET_SECONDS),
        Run(("sh", "-c", "\n".join(lines))),
        Run(("systemctl", "try-restart", POD_NETWORK_UNIT), unless=f"[ ! -e {_POD_NETWORK} ]"),
        Remove(("/etc/kubernetes", "/var/lib/etcd", "/var/lib/cni", *beside.paths, MARK)),
    )


def _patches(cluster: Cluster, patience: int) -> Operations:
    return tuple(
        WriteFile(f"{PATCHES}/{name}", content)
        for name, content in static_pod_patches(cluster.version, patience).items()
    )


def _init(documents: tuple[Document, ...], skipped: tuple[str, ...]) -> Run:
    """``kubeadm init`` without some phases; the option overrides those of the configuration."""
    phases = ",".join((*skipped, *documents[0]["skipPhases"]))
    command = ("kubeadm", "init", "--config", _CONFIG, f"--skip-phases={phases}")
    return Run(command, seconds=INIT_SECONDS, hint=_AGAIN)


def _mark_joined(mark: str) -> Operations:
    return (Remove((_CONFIG,)), WriteFile(MARK, f"{mark}\n"))


TOKEN_MINUTES = 30
"""Lifetime of a join token on hardware, in seconds."""
CA = "/etc/kubernetes/pki/ca.crt"
CA_KEY = "/etc/kubernetes/pki/ca.key"


def kubelet_subject(node: ClusterNode) -> CertificateSubject:
    """Of the certificate of a kubelet without kubeadm, as client and server."""
    groups, hosts = ("system:nodes",), (node.name, node.address)
    return CertificateSubject(f"system:node:{node.name}", groups, hosts)


class JoinCredentials:
    """Credentials for joining one cluster, obtained from its first control plane."""

    def __init__(self, cluster: Cluster, site: ClusterSite) -> None:
        self._cluster = cluster
        self._site = site
        self._plane = cluster.control_planes()[0].name
        self._api = ClusterApi(cluster, site)

    def token(self, deadline: Deadline) -> str:
        """A new, short-lived join token that is in effect.

        kubeadm generates it, so that it is on no command line.
        """
        ttl = f"{TOKEN_MINUTES * self._site.patience}m"
        command = ("kubeadm", "token", "create", "--ttl", ttl, "--kubeconfig", ADMIN)
        done = self._site.shell(self._plane).run(command, deadline)
        if done.code:
            raise command_failure(f"making a join token on '{self._plane}'", done.code, done.stderr)
        token = done.stdout.strip().splitlines()[-1]
        self._api.wait_for_signature(token, deadline)
        return token

    def ca(self, deadline: Deadline) -> str:
        """The certificate authority's certificate, PEM."""
        return self._site.shell(self._plane).get(CA, deadline).decode()

    def ca_hash(self, deadline: Deadline) -> str:
        """The hash that a joining node pins: ``sha256:...``."""
        return public_key_pin(self.ca(deadline))

    def access(self, user: str, groups: tuple[str, ...], deadline: Deadline) -> Access:
        """Access to the API as this user, with a new client certificate."""
        ca = self._authority(deadline)
        client = issue(ca, CertificateSubject(user, groups))
        server = f"https://{api_endpoint(self._cluster)}"
        return Access(context_name(self._cluster.name), server, ca.certificate, client)

    def serving_pair(self, node: ClusterNode, deadline: Deadline) -> Pair:
        """A certificate with which the node's kubelet serves the API server."""
        return issue(self._authority(deadline), kubelet_subject(node))

    def _authority(self, deadline: Deadline) -> Pair:
        key = self._site.shell(self._plane).get(CA_KEY, deadline).decode()
        return Pair(self.ca(deadline), key)

    def kubeconfig(self, user: str, groups: tuple[str, ...], deadline: Deadline) -> bytes:
        """The same as a kubeconfig file."""
        return kubeconfig_text(self.access(user, groups, deadline)).encode()


API_SECONDS = 180.0
CREDENTIALS_SECONDS = 90.0
REGISTER_SECONDS = 180.0
_KEY_BYTES = 32
"""Bytes of the key that encrypts the control planes' own keys (AES-256)."""


class Joining:
    """Joins the nodes of one cluster, and removes those that are half joined."""

    def __init__(
        self, cluster: Cluster, intent: Intent, manifest: Manifest, site: ClusterSite
    ) -> None:
        self._cluster = cluster
        self._site = site
        self._around = Surroundings(site.management, site.patience)
        self._documents = init_documents(cluster, intent, manifest, self._around)
        self._of_nodes = addons()[cluster.topology].node_documents(cluster, intent)
        self._api = ClusterApi(cluster, site)
        self._entrance = JoinCredentials(cluster, site)

    def start(self) -> None:
        """Start the first control plane."""
        first = self._cluster.control_planes()[0]
        mark = digest(self._documents)
        if self._mark(first) != mark:
            self._leave(first)
            self._site.say(f"{first.name}: kubeadm init")
            documents = self._documents
            self._site.run(
                first.name, start_control_plane(self._cluster, documents, self._site.patience)
            )
            self._api.wait_until_ready(self._site.deadline(INIT_SECONDS))
            self._site.run(first.name, finish_control_plane(documents, mark))
        self._api.wait_until_ready(self._site.deadline(API_SECONDS))
        self._settle((first,))

    def planes(self) -> None:
        """Join the other control planes one by one: etcd takes one new member at a time."""
        others = self._cluster.control_planes()[1:]
        mark = self._member_mark()
        nodes = self._api.nodes(self._site.deadline(API_SECONDS))
        for node in others:
            new = self._is_new(node, mark, nodes)
            if new:
                self._join(node, self._plane_ticket(), mark)
            # flannel is there already: without its network it ends, and is started again later
            self._settle((node,))
            if new:  # the next kubeadm gives etcd only two seconds to answer
                self._api.wait_until_ready(self._site.deadline(API_SECONDS), node)

    def nodes(self, nodes: Iterable[ClusterNode]) -> None:
        """Join the nodes that are not control planes, all in parallel."""
        wanted = {node.name: node for node in nodes}
        registered = self._api.nodes(self._site.deadline(API_SECONDS))
        mark = self._member_mark()
        new = [node for node in wanted.values() if self._is_new(node, mark, registered)]
        if new:
            ticket = self._ticket()
            on_each(
                (node.name for node in new),
                lambda name: self._join(wanted[name], ticket, mark),
            )
        self._settle(wanted.values())

    def _join(self, node: ClusterNode, ticket: Ticket, mark: str) -> None:
        self._leave(node)
        self._site.say(f"{node.name}: kubeadm join")
        documents = join_documents(self._cluster, node, ticket, self._around)
        self._site.run(node.name, join_node(self._cluster, documents, mark, self._site.patience))

    def _leave(self, node: ClusterNode) -> None:
        """Remove what an earlier membership has left, including the Node object."""
        if self._site.query(node.name, ("sh", "-c", HAS_JOINED)).code == 0:
            self._site.say(f"{node.name}: removing an earlier membership")
            forget_record(self._site.directory, node.name)
            self._site.run(node.name, leave_cluster(self._cluster))
        if node != self._cluster.control_planes()[0]:
            self._api.delete_node(node.name, self._site.deadline(API_SECONDS))

    def _settle(self, nodes: Iterable[ClusterNode]) -> None:
        """Apply the settings of registered nodes; nodes that joined again need them again."""
        for node in nodes:
            if node.pod_cidr:
                self._api.set_pod_cidr(node, self._site.deadline(REGISTER_SECONDS))
            documents = [
                document for document in self._of_nodes if document["metadata"]["name"] == node.name
            ]
            if documents:
                self._api.apply(documents, self._site.deadline(API_SECONDS))

    def _ticket(self) -> Ticket:
        deadline = self._site.deadline(CREDENTIALS_SECONDS)
        return Ticket(self._entrance.token(deadline), self._entrance.ca_hash(deadline))

    def _plane_ticket(self) -> Ticket:
        """A ticket with the key for the control planes' keys, which are uploaded now."""
        key = secrets.token_hex(_KEY_BYTES)
        documents = tuple(
            {**document, "certificateKey": key}
            if document["kind"] == "InitConfiguration"
            else document
            for document in self._documents
        )
        self._site.run(self._cluster.control_planes()[0].name, upload_keys(documents))
        return replace(self._ticket(), certificate_key=key)

    def _is_new(self, node: ClusterNode, mark: str, nodes: Iterable[str]) -> bool:
        return node.name not in set(nodes) or self._mark(node) != mark

    def _member_mark(self) -> str:
        """Identifies the cluster: another authority or version is another cluster."""
        deadline = self._site.deadline(CREDENTIALS_SECONDS)
        return digest(
            self._entrance.ca_hash(deadline), api_endpoint(self._cluster), self._cluster.version
        )

    def _mark(self, node: ClusterNode) -> str:
        return self._site.query(node.name, ("cat", MARK)).stdout.strip()
