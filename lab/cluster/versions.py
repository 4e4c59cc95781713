"""What the nodes of a cluster really run: versions of Kubernetes, system and container runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab._deadline import Deadline
from lab.cluster.api import Api


@dataclass(frozen=True, slots=True)
class NodeVersion:
    """What one node says of itself."""

    node: str
    kubelet: str
    """``v1.36.3``."""
    system: str
    """``Debian GNU/Linux 12 (bookworm)``, ``Windows Server 2022 Datacenter``."""
    kernel: str
    """``6.1.0-32-amd64``; on Windows the patch level, ``10.0.20348.2762``."""
    runtime: str
    """``containerd://2.3.7``."""


def versions(api: Api, deadline: Deadline) -> tuple[NodeVersion, ...]:
    """What every node says, in the order of names.

    Raises
    ------
    DeadlineError
        When the API server is lost for longer.

    """
    listed = api.patiently(
        "reading the nodes' versions", lambda: api.listing("/api/v1/nodes", deadline), deadline
    )
    return tuple(read_version(one) for _, one in sorted(listed.objects.items()))


def read_version(found: Mapping[str, Any]) -> NodeVersion:
    """The versions of a node of the API's JSON."""
    info = (found.get("status") or {}).get("nodeInfo") or {}
    return NodeVersion(
        node=found["metadata"]["name"],
        kubelet=info.get("kubeletVersion", ""),
        system=info.get("osImage", ""),
        kernel=info.get("kernelVersion", ""),
        runtime=info.get("containerRuntimeVersion", ""),
    )
