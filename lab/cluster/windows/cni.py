"""The plugins' configuration on a Windows node. Pure.

Forms: flannel's overlay from sig-windows-tools (flannel-overlay.yml), win-bridge's from its own
``sample-v2.conf``, wincni's from the guide "Using Windows Server Containers in Kubernetes". All are
of version 2 of HNS' endpoint policies, as containerd's pods need them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from ipaddress import IPv4Network

from lab.cluster.cluster import Cluster
from lab.cluster.windows import places
from lab.cluster.windows.network import ENDPOINT_OFFSET, NodeNetwork

Document = dict[str, object]
_CAPABILITIES = {"portMappings": True, "dns": True}


def configuration(cluster: Cluster, network: NodeNetwork) -> tuple[str, str] | None:
    """Path and text of the plugin's file; None where somebody else writes it."""
    if network.plugin is None:
        return None
    if network.plugin.startswith("flannel+"):
        return f"{places.CNI_CONF}\\10-flannel.conf", text(_flannel(cluster, network))
    made = _static if network.plugin == "sdnbridge" else _win_bridge
    return f"{places.CNI_CONF}\\10-{network.name}.conf", text(made(cluster, network))


def text(document: Document) -> str:
    """As it lies in a file."""
    return json.dumps(document, indent=2) + "\n"


def _flannel(cluster: Cluster, network: NodeNetwork) -> Document:
    assert network.plugin is not None, "asked before"
    delegate = network.plugin.removeprefix("flannel+")
    delegated: Document = {"type": delegate}
    if delegate == "sdnoverlay":
        delegated["AdditionalArgs"] = list(_policies(network, "SDNROUTE", provider=True))
    elif delegate == "sdnbridge":
        delegated["AdditionalArgs"] = list(_policies(network, "SDNRoute"))
        delegated["optionalFlags"] = {"forceBridgeGateway": True}
    else:
        delegated["apiVersion"] = 2
        delegated["policies"] = list(_policies(network, "SDNRoute", lower=True))
        delegated["dns"] = _dns(cluster)
        delegated["loopbackDSR"] = True
    return {
        "name": network.name,
        "cniVersion": "0.2.0",
        "type": "flannel",
        "capabilities": _CAPABILITIES,
        "delegate": delegated,
    }


def _win_bridge(cluster: Cluster, network: NodeNetwork) -> Document:
    document: Document = {
        "name": network.name,
        "cniVersion": "0.3.1",
        "type": "win-bridge",
        "apiVersion": 2,
        "capabilities": _CAPABILITIES,
        "dns": _dns(cluster),
        "policies": list(_policies(network, "SDNRoute", lower=True)),
        "loopbackDSR": True,
    }
    if cluster.topology != "upstream-vrrp":
        # Without it HNS gives the addresses, and its gateway (network + 1) is the pods'.
        document["ipam"] = {
            "type": "host-local",
            "ranges": [[_range(network)]],
            "dataDir": "/var/lib/cni/networks",
        }
    return document


def _range(network: NodeNetwork) -> Document:
    """All that pods may have: not the two first addresses, which are HNS' and the node's own."""
    subnet = IPv4Network(network.pod_cidr)
    return {"subnet": network.pod_cidr, "rangeStart": str(subnet[ENDPOINT_OFFSET + 1])}


def _static(cluster: Cluster, network: NodeNetwork) -> Document:
    return {
        "name": network.name,
        "cniVersion": "0.2.0",
        "type": "sdnbridge",
        "capabilities": _CAPABILITIES,
        "ipam": {
            "environment": "azure",
            "subnet": network.pod_cidr,
            "routes": [{"GW": network.endpoint_address}],
        },
        "dns": {
            "Nameservers": [cluster.dns_address],
            "Search": [f"svc.{cluster.domain}"],
        },
        "AdditionalArgs": list(_policies(network, "SDNRoute")),
    }


def _dns(cluster: Cluster) -> Document:
    return {"nameservers": [cluster.dns_address], "search": [f"svc.{cluster.domain}"]}


def _policies(
    network: NodeNetwork, route: str, *, provider: bool = False, lower: bool = False
) -> Iterable[Document]:
    """Endpoint policies; ``lower`` for win-bridge, whose keys are written small."""
    values: list[Document] = [
        {"Type": "OutBoundNAT", "Settings": {"Exceptions": list(network.exceptions)}}
    ]
    values += [
        {"Type": route, "Settings": {"DestinationPrefix": prefix, "NeedEncap": True}}
        for prefix in network.encapsulated
    ]
    if provider:
        settings = {"ProviderAddress": network.provider_address}
        values.append({"Type": "ProviderAddress", "Settings": settings})
    name, value = ("name", "value") if lower else ("Name", "Value")
    return ({name: "EndpointPolicy", value: one} for one in values)
