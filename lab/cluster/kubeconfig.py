"""kubeconfig files: how a user gets at a cluster. Pure."""

from __future__ import annotations

import warnings
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lab.cluster.certificates import Pair
from lab.cluster.documents import to_yaml

PREFIX = "hybridlab-"
_LISTS = ("clusters", "users", "contexts")


class KubeconfigError(ValueError):
    """A text that is no kubeconfig, and why."""


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

    def at(self, server: str) -> Access:
        """The same through another address."""
        return replace(self, server=server)


def document(access: Access) -> dict[str, Any]:
    """The kubeconfig as data."""
    name = access.name
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": _cluster(access)}],
        "users": [{"name": name, "user": _user(access)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def text(access: Access) -> str:
    """The kubeconfig as a file."""
    return to_yaml((document(access),))


def read(content: str, name: str) -> Access:
    """The way that a kubeconfig with one cluster and one user leads, under another name.

    Raises
    ------
    KubeconfigError
        When it has other parts than kubeadm's.

    """
    found = _loaded(content)
    try:
        cluster, user = found["clusters"][0]["cluster"], found["users"][0]["user"]
        client = Pair(_decoded(user["client-certificate-data"]), _decoded(user["client-key-data"]))
        return Access(
            name, str(cluster["server"]), _decoded(cluster["certificate-authority-data"]), client
        )
    except (KeyError, IndexError, TypeError) as error:
        raise KubeconfigError(f"it has no {error}") from error
    except (ValueError, AttributeError) as error:
        raise KubeconfigError("its certificates or its key are damaged") from error


def is_export(content: str) -> bool:
    """Whether a text is a lab's own kubeconfig and nothing else: it may be written over."""
    try:
        found = _loaded(content)
    except KubeconfigError:
        return False
    lists = [found.get(key) for key in _LISTS]
    if not all(isinstance(one, list) and len(one) == 1 for one in lists):
        return False
    entries = [entry for one in lists for entry in one]
    return all(
        isinstance(entry, Mapping) and str(entry.get("name")).startswith(PREFIX)
        for entry in entries
    )


def _cluster(access: Access) -> dict[str, str]:
    return {"certificate-authority-data": _encoded(access.ca), "server": access.server}


def _user(access: Access) -> dict[str, str]:
    return {
        "client-certificate-data": _encoded(access.client.certificate),
        "client-key-data": _encoded(access.client.key),
    }


def _loaded(content: str) -> Any:
    from ruamel.yaml import YAML  # noqa: PLC0415  slow
    from ruamel.yaml.error import MarkedYAMLError  # noqa: PLC0415  slow

    try:
        with warnings.catch_warnings(action="ignore"):  # of anchors, which are the user's own
            found = YAML(typ="safe", pure=True).load(content)
    except Exception as error:
        # Its constructors raise whatever Python does. Their words may hold the user's secrets.
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        where = f", line {mark.line + 1}" if mark else ""
        raise KubeconfigError(f"invalid YAML{where}") from error
    if not isinstance(found, dict) or found.get("kind", "Config") != "Config":
        raise KubeconfigError("not a document of kind 'Config'")
    return found


def _encoded(pem: str) -> str:
    return b64encode(pem.encode()).decode()


def _decoded(data: str) -> str:
    return b64decode(data, validate=True).decode()
