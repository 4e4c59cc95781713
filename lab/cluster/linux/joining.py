"""Linux machines made members of a kubeadm cluster, whatever state they are found in."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from lab._deadline import Deadline
from lab.cluster import certificates, kubeadm, kubeconfig
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.certificates import CertificateSubject, Pair
from lab.cluster.cluster import Cluster, ClusterNode
from lab.cluster.kubeadm import Surroundings, Ticket
from lab.cluster.linux import addon_documents, membership
from lab.cluster.linux.api import ADMIN, ClusterApi
from lab.cluster.linux.doing import Hand, failure
from lab.cluster.linux.operations import Operations
from lab.cluster.linux.parallel import on_each
from lab.cluster.linux.site import ClusterSite
from lab.plan.canonical import digest
from lab.topology.intent import Intent

TOKEN_MINUTES = 30
"""How long a join token lives on hardware."""
CA = "/etc/kubernetes/pki/ca.crt"
CA_KEY = "/etc/kubernetes/pki/ca.key"


class Entrance:
    """The way into one cluster, by what its first control plane has.

    Parameters
    ----------
    cluster
        The cluster, which has a control plane already.
    site
        Where its machines are reached.

    """

    def __init__(self, cluster: Cluster, site: ClusterSite) -> None:
        self._cluster = cluster
        self._site = site
        self._plane = cluster.control_planes()[0].name

    def token(self, deadline: Deadline) -> str:
        """A new join token, short-lived; kubeadm makes it, so that it is on no command line."""
        ttl = f"{TOKEN_MINUTES * self._site.patience}m"
        command = ("kubeadm", "token", "create", "--ttl", ttl, "--kubeconfig", ADMIN)
        done = self._site.shell(self._plane).run(command, deadline)
        if done.code:
            raise failure(f"making a join token on '{self._plane}'", done.code, done.stderr)
        return done.stdout.strip().splitlines()[-1]

    def ca(self, deadline: Deadline) -> str:
        """The authority's certificate, PEM."""
        return self._read(CA, deadline)

    def ca_hash(self, deadline: Deadline) -> str:
        """What a joining node pins: ``sha256:...``."""
        return certificates.pin(self.ca(deadline))

    def access(self, user: str, groups: tuple[str, ...], deadline: Deadline) -> kubeconfig.Access:
        """A way to the API as that user, by a new client certificate."""
        ca = Pair(self.ca(deadline), self._read(CA_KEY, deadline))
        client = certificates.issued(ca, CertificateSubject(user, groups))
        server = f"https://{kubeadm.endpoint(self._cluster)}"
        return kubeconfig.Access(
            kubeconfig.context(self._cluster.name), server, ca.certificate, client
        )

    def kubeconfig(self, user: str, groups: tuple[str, ...], deadline: Deadline) -> bytes:
        """The same as a file."""
        return kubeconfig.text(self.access(user, groups, deadline)).encode()

    def _read(self, path: str, deadline: Deadline) -> str:
        return self._site.shell(self._plane).get(path, deadline).decode()


API_SECONDS = 180.0
ENTRANCE_SECONDS = 90.0
REGISTER_SECONDS = 180.0
_KEY_BYTES = 32
"""Of the key that control planes' own keys are encrypted with (AES-256)."""


class Joining:
    """Brings the nodes of one cluster in, and those out that are half in.

    Parameters
    ----------
    cluster, intent, manifest
        What is to be.
    site
        Where the machines are reached.

    """

    def __init__(
        self, cluster: Cluster, intent: Intent, manifest: Manifest, site: ClusterSite
    ) -> None:
        self._cluster = cluster
        self._site = site
        self._around = Surroundings(site.management, site.patience)
        self._documents = kubeadm.init(cluster, intent, manifest, self._around)
        self._of_nodes = addon_documents.node_documents(cluster, intent)
        self._api = ClusterApi(cluster, site)
        self._entrance = Entrance(cluster, site)

    def planes(self) -> None:
        """Every control plane, one after another: etcd takes one new member at a time."""
        first, *others = self._cluster.control_planes()
        mark = digest(self._documents)
        if self._mark(first) != mark:
            self._leave(first)
            self._site.say(f"{first.name}: kubeadm init")
            documents = self._documents
            self._do(first, membership.started(self._cluster, documents, self._site.patience))
            self._api.ready(self._site.deadline(membership.INIT_SECONDS))
            self._do(first, membership.initialised(documents, mark))
        self._api.ready(self._site.deadline(API_SECONDS))
        self._settle((first,))
        if others:
            self._others(others)

    def nodes(self, nodes: Iterable[ClusterNode]) -> None:
        """Nodes that are no control planes, all at once."""
        wanted = {node.name: node for node in nodes}
        there = self._api.nodes(self._site.deadline(API_SECONDS))
        mark = self._member_mark()
        new = [node for node in wanted.values() if self._is_new(node, mark, there)]
        if new:
            ticket = self._ticket()
            on_each(
                (node.name for node in new),
                lambda name: self._join(wanted[name], ticket, mark),
            )
        self._settle(wanted.values())

    def again(self, node: ClusterNode) -> None:
        """One node out, whatever it has been, and in again."""
        self._leave(node)
        if node.role == "control-plane":
            self._others([node])
        else:
            self.nodes([node])

    def _others(self, others: Iterable[ClusterNode]) -> None:
        mark = self._member_mark()
        there = self._api.nodes(self._site.deadline(API_SECONDS))
        for node in others:
            if self._is_new(node, mark, there):
                self._join(node, self._plane_ticket(), mark)
                # The next one's kubeadm gives etcd two seconds for an answer.
                self._api.ready(self._site.deadline(API_SECONDS), node)
            self._settle((node,))

    def _join(self, node: ClusterNode, ticket: Ticket, mark: str) -> None:
        self._leave(node)
        self._site.say(f"{node.name}: kubeadm join")
        documents = kubeadm.join(self._cluster, node, ticket, self._around)
        self._do(node, membership.joined(self._cluster, documents, mark, self._site.patience))

    def _leave(self, node: ClusterNode) -> None:
        """Take away what an earlier membership has left, the Node object included."""
        first = self._cluster.control_planes()[0]
        hand = Hand(node.name, self._site)
        if hand.say(("sh", "-c", membership.LEFT)).code == 0:
            self._site.say(f"{node.name}: taking an earlier membership away")
            hand.do(membership.left(self._cluster))
        if node.name != first.name:
            self._api.delete_node(node.name, self._site.deadline(API_SECONDS))

    def _settle(self, nodes: Iterable[ClusterNode]) -> None:
        """What a node is told that has registered, anew if it had left."""
        for node in nodes:
            if node.pod_cidr:
                self._api.set_pod_cidr(node, self._site.deadline(REGISTER_SECONDS))
            said = [one for one in self._of_nodes if one["metadata"]["name"] == node.name]
            if said:
                self._api.apply(said, self._site.deadline(API_SECONDS))

    def _ticket(self) -> Ticket:
        deadline = self._site.deadline(ENTRANCE_SECONDS)
        return Ticket(self._entrance.token(deadline), self._entrance.ca_hash(deadline))

    def _plane_ticket(self) -> Ticket:
        """With a key that the control planes' own keys wait under, uploaded just now."""
        key = secrets.token_hex(_KEY_BYTES)
        documents = tuple(
            {**one, "certificateKey": key} if one["kind"] == "InitConfiguration" else one
            for one in self._documents
        )
        self._do(self._cluster.control_planes()[0], membership.keys_uploaded(documents))
        plain = self._ticket()
        return Ticket(plain.token, plain.ca_hash, key)

    def _is_new(self, node: ClusterNode, mark: str, there: Iterable[str]) -> bool:
        return node.name not in set(there) or self._mark(node) != mark

    def _member_mark(self) -> str:
        """Another authority or version is another cluster."""
        deadline = self._site.deadline(ENTRANCE_SECONDS)
        return digest(
            self._entrance.ca_hash(deadline), kubeadm.endpoint(self._cluster), self._cluster.version
        )

    def _mark(self, node: ClusterNode) -> str:
        return Hand(node.name, self._site).say(("cat", membership.MARK)).stdout.strip()

    def _do(self, node: ClusterNode, operations: Operations) -> None:
        Hand(node.name, self._site).do(operations)
