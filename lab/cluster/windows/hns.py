"""What the Host Networking Service is asked to make, as its own JSON (version 1). Pure.

As ``New-HnsNetwork`` of microsoft/SDN builds it. The adapter is not in it: the step on the node
finds it by the node's address, because its name has spaces and changes.
"""

from __future__ import annotations

from lab.cluster.windows.network import NodeNetwork

EXTERNAL = "External"
"""A network that is there only so that the virtual switch is: its making drops the link, and that
of all later ones does not (start-kubelet.ps1 of microsoft/SDN)."""
_EXTERNAL_PREFIX = "192.168.255.0/30"
_EXTERNAL_GATEWAY = "192.168.255.1"
_EXTERNAL_VSID = 9999
"""Any but the overlay's own."""
HOST_COMPARTMENT = 1

Document = dict[str, object]


def external(network: NodeNetwork) -> Document:
    """The network that makes the virtual switch, of the same kind as the one that is wanted."""
    subnet: Document = {"AddressPrefix": _EXTERNAL_PREFIX, "GatewayAddress": _EXTERNAL_GATEWAY}
    if network.kind == "Overlay":
        subnet["Policies"] = [{"Type": "VSID", "VSID": _EXTERNAL_VSID}]
    return {"Type": network.kind, "Name": EXTERNAL, "Subnets": [subnet]}


def own(network: NodeNetwork) -> Document:
    """The l2bridge of the pods."""
    subnet = {"AddressPrefix": network.pod_cidr, "GatewayAddress": network.gateway}
    return {"Type": network.kind, "Name": network.name, "Subnets": [subnet]}


def networks(network: NodeNetwork) -> tuple[Document, ...]:
    """Those that the lab makes, in order; none where Calico makes them all."""
    if network.maker == "calico":
        return ()
    if network.kind == "Overlay":
        return (external(network),)
    return external(network), own(network)


def endpoint(network: NodeNetwork) -> Document | None:
    """The node's own endpoint; None where flannel or Calico makes it."""
    if network.maker != "lab":
        return None
    return {
        "Name": network.endpoint,
        "IPAddress": network.endpoint_address,
        "GatewayAddress": "0.0.0.0",  # noqa: S104  on the link, says HNS' language
        "Policies": [],
    }


def attachment() -> Document:
    """How an endpoint becomes one of the host."""
    return {"SystemType": "Host", "CompartmentId": HOST_COMPARTMENT}
