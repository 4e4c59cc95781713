"""What of a node is judged: whether it may join, what is left on it, and how it is. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from lab._errors import BrokenError
from lab.cluster.bundle.manifest import Manifest
from lab.cluster.cluster import Cluster, ClusterNode
from lab.cluster.windows import images, network, places, steps, versions
from lab.cluster.windows.decided import Decided
from lab.cluster.windows.observed import WindowsObserved, too_old, year_of
from lab.imaging.windows.settings import RELEASES
from lab.topology.intent import Intent

_OWN_NETWORKS = ("External", "cbr0", "l2bridge", "flannel.", "Calico")
"""Names of HNS networks that a node's life leaves, or how they begin."""


def refused(
    cluster: Cluster, intent: Intent, node: ClusterNode, manifest: Manifest
) -> tuple[str, ...]:
    """Why this node cannot join, as far as that is known before anything is created. Pure."""
    reasons = [versions.refusal(node.version)]
    if cluster.topology not in network.KNOWN:
        unknown = f"topology '{cluster.topology}' is not known on Windows"
        reasons.append(network.DOCUMENTED_ONLY.get(cluster.topology, unknown))
    year = year_of(intent.machine(node.name).hardware.image)
    if year is not None:
        reasons += images.missing(manifest, RELEASES[year].build)
    return tuple(f"{node.name}: {reason}" for reason in reasons if reason)


def unfit(decided: Decided, seen: WindowsObserved) -> str | None:
    """Why the Windows that was found cannot take part; None if it can. Pure."""
    lacking = images.missing(decided.manifest, seen.build)
    return too_old(seen, decided.cluster.topology) or (lacking[0] if lacking else None)


def leftovers(there: tuple[str, ...], hns_networks: tuple[str, ...]) -> tuple[str, ...]:
    """What of an earlier life's network is on the node. Pure."""
    files = tuple(path for path in there if path != places.KUBELET_CONF)
    return (*files, *(name for name in hns_networks if name.startswith(_OWN_NETWORKS)))


def made_networks(wanted: steps.HnsNetwork) -> tuple[tuple[str, str], ...]:
    """Name and prefix of every network that a step makes."""
    documents = [json.loads(one) for one in wanted.networks]
    return tuple((one["Name"], one["Subnets"][0]["AddressPrefix"]) for one in documents)


def ailing(facts: Mapping[str, Any]) -> str:
    """What of a node's services does not run, or would not after a restart; empty if all is well.

    Each must start by itself and, but for the first, depend on the one before.
    """
    words = []
    before: str | None = None
    for one in facts["services"]:
        if one["state"] != "Running":
            words.append(f"{one['name']} is {one['state']}")
        elif one["start"] != "Automatic":
            words.append(f"{one['name']} starts {one['start']}")
        elif before is not None and before not in one["depends"]:
            words.append(f"{one['name']} does not wait for {before}")
        before = one["name"]
    words += [
        f"task {one['name']} is {one['state'] or 'missing'}"
        for one in facts["tasks"]
        if one["state"] != "Running"
    ]
    return ", ".join(words)


def checked_vip(decided: Decided, address: str) -> str:
    """The address that was reserved, which must be of the node's pods.

    Raises
    ------
    BrokenError
        When it is of an earlier life.

    """
    cidr = decided.network.pod_cidr
    if IPv4Address(address) not in IPv4Network(cidr):
        raise BrokenError(
            f"reserving an address on '{decided.node.name}'",
            f"'{places.SOURCE_VIP}' there says {address}, which is not in its pod CIDR {cidr}",
            "delete the node from the cluster, and 'lab up' again: what an earlier life left goes",
        )
    return address
