"""Calico by BGP on Windows nodes, as its manual installation has it. Pure, and unverified.

No step runs any of this: Windows' own routing service (RRAS) speaks BGP there, and the manifests
are outside Calico's operator. Sources: Calico's ``manifests/calico-windows-bgp.yaml``, and the
image recipes of Windows nodes for the features. It is kept so that the topology can be held
against something.
"""

from __future__ import annotations

from lab.cluster.cluster import API_PORT, Cluster
from lab.cluster.documents import Document
from lab.cluster.windows import places

UNVERIFIED = True
NAMESPACE = "calico-system"
FEATURES = ("RemoteAccess", "RSAT-RemoteAccess-PowerShell", "Routing")


def commands() -> tuple[str, ...]:
    """What makes a node a router that speaks BGP, in PowerShell; it restarts in between."""
    return (
        *(f"Install-WindowsFeature -Name {one}" for one in FEATURES),
        "Restart-Computer -Force",
        "Install-RemoteAccess -VpnType RoutingOnly",
        "Start-Service -Name RemoteAccess",
    )


def settings(cluster: Cluster) -> Document:
    """What Calico's containers on Windows read."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "calico-windows-config", "namespace": NAMESPACE},
        "data": {
            "CALICO_NETWORKING_BACKEND": "windows-bgp",
            "CNI_BIN_DIR": places.CNI_BIN,
            "CNI_CONF_DIR": places.CNI_CONF,
            "DNS_NAME_SERVERS": cluster.dns_address,
            "FELIX_HEALTHENABLED": "true",
            "K8S_SERVICE_CIDR": cluster.service_cidr,
            "KUBERNETES_SERVICE_HOST": cluster.endpoint,
            "KUBERNETES_SERVICE_PORT": str(API_PORT),
        },
    }
