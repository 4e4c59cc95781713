"""kube-proxy as a Windows service, and the address that it needs on an overlay. Pure."""

from __future__ import annotations

import json

from lab.cluster.cluster import Cluster, ClusterNode
from lab.cluster.windows import places, versions
from lab.cluster.windows.kubelet import logged
from lab.cluster.windows.network import NodeNetwork
from lab.cluster.windows.observed import Observed

SERVICE = "kube-proxy"
NETWORK_VARIABLE = "KUBE_NETWORK"


def command(
    cluster: Cluster,
    node: ClusterNode,
    network: NodeNetwork,
    observed: Observed,
    source_vip: str | None,
) -> str:
    """The service's command line.

    Parameters
    ----------
    cluster, node, network
        Of which it is.
    observed
        The node's Windows: an old 2019 has no Direct Server Return.
    source_vip
        Address that it sends from; an overlay needs one, a bridge has none.

    """
    assert (network.kind == "Overlay") == (source_vip is not None), "an overlay alone has one"
    given = [
        "--windows-service",
        "--v=2",
        "--proxy-mode=kernelspace",
        f"--hostname-override={node.name}",
        f"--kubeconfig={places.PROXY_CONF}",
        f"--cluster-cidr={cluster.pod_cidr}",
        f"--bind-address={node.address}",
        f"--enable-dsr={str(observed.dsr).lower()}",
    ]
    if source_vip is not None:
        given.append(f"--source-vip={source_vip}")
    elif network.endpoint != "cbr0":
        given.append(f"--root-hnsendpoint-name={network.endpoint}")
    if versions.takes_gates(node.version):
        gates = ["WinDSR=true"] if observed.dsr else []
        gates += ["WinOverlay=true"] if network.kind == "Overlay" else []
        given += [f"--feature-gates={','.join(gates)}"] if gates else []
    return logged(SERVICE, "kube-proxy.exe", given)


def environment(network: NodeNetwork) -> tuple[str, ...]:
    """Of the service."""
    return (f"{NETWORK_VARIABLE}={network.name}",)


def source_vip_request(network: NodeNetwork) -> str:
    """What host-local is asked: one address of the pods' own, so that no pod gets it."""
    document = {
        "cniVersion": "0.2.0",
        "name": network.name,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": network.pod_cidr}]],
            "dataDir": "/var/lib/cni/networks",
        },
    }
    return json.dumps(document)


def endpoint_request(network: NodeNetwork) -> str:
    """As above for flannel's bridge: the very address of its endpoint (network + 2).

    flannel's plugin hands host-local the whole pod CIDR, of which that is the first free one.
    """
    address = network.endpoint_address
    document = {
        "cniVersion": "0.2.0",
        "name": network.name,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": network.pod_cidr, "rangeStart": address, "rangeEnd": address}]],
            "dataDir": "/var/lib/cni/networks",
        },
    }
    return json.dumps(document)
