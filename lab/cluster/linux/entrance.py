"""What a machine, Windows or Linux, needs to be let into the cluster: fresh each time."""

from __future__ import annotations

from lab._deadline import Deadline
from lab.cluster import certificates, kubeadm, kubeconfig
from lab.cluster.certificates import Pair, Subject
from lab.cluster.cluster import Cluster
from lab.cluster.linux.api import ADMIN
from lab.cluster.linux.doing import failure
from lab.cluster.linux.site import Site

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

    def __init__(self, cluster: Cluster, site: Site) -> None:
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
        client = certificates.issued(ca, Subject(user, groups))
        server = f"https://{kubeadm.endpoint(self._cluster)}"
        return kubeconfig.Access(
            kubeconfig.context(self._cluster.name), server, ca.certificate, client
        )

    def kubeconfig(self, user: str, groups: tuple[str, ...], deadline: Deadline) -> bytes:
        """The same as a file."""
        return kubeconfig.text(self.access(user, groups, deadline)).encode()

    def _read(self, path: str, deadline: Deadline) -> str:
        return self._site.shell(self._plane).get(path, deadline).decode()
