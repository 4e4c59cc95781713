"""kubeconfig files: how a user gets at a cluster. Pure."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, replace
from typing import Any

from lab.cluster.certificates import Pair
from lab.cluster.documents import to_yaml

PREFIX = "hybridlab-"


def context(lab: str) -> str:
    """What a lab's context, cluster and user are called in a kubeconfig."""
    return f"{PREFIX}{lab}"


@dataclass(frozen=True, slots=True)
class Access:
    """One way to one API."""

    name: str
    """Of the cluster, the user and the context alike."""
    server: str
    """``https://ADDRESS:PORT``."""
    ca: str
    """PEM."""
    client: Pair
    server_name: str | None = None
    """The name that the server's certificate must have, where it is not the address asked."""

    def at(self, server: str, server_name: str | None = None) -> Access:
        """The same through another address."""
        return replace(self, server=server, server_name=server_name)


def document(access: Access) -> dict[str, Any]:
    """The kubeconfig as data."""
    cluster: dict[str, Any] = {
        "certificate-authority-data": _encoded(access.ca),
        "server": access.server,
    }
    if access.server_name:
        cluster["tls-server-name"] = access.server_name
    user = {
        "client-certificate-data": _encoded(access.client.certificate),
        "client-key-data": _encoded(access.client.key),
    }
    name = access.name
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def text(access: Access) -> str:
    """The kubeconfig as a file."""
    return to_yaml((document(access),))


def _encoded(pem: str) -> str:
    return b64encode(pem.encode()).decode()
