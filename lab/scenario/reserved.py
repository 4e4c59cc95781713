"""Names and addresses that the lab uses itself, and a scenario cannot."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

NAMES: dict[str, str] = {
    "router": "the router that the nodes stand behind",
    "client": "the client outside the cluster",
    "fabric": "the switch that joins the machines",
    "coredns": "the pod that answers DNS",
}
"""Names of every lab's own machines and pods, which no node can have."""

DNS_POD = "coredns"
"""The pod behind the DNS Service, on the first Linux node with a kubelet."""

SERVICES: dict[str, str] = {
    "kubernetes": "the Service of the API server",
    "kube-dns": "the Service of the cluster's DNS",
    "dns": "the Service of the cluster's DNS",
}

OUTSIDE_CIDR = IPv4Network("198.51.100.0/24")
"""The network outside the cluster, where the client stands (TEST-NET-2, RFC 5737)."""

POD_RANGE_HEAD = 4
"""Addresses at the start of a node's pod range that no pod gets: the network address, and the
bridge's and gateways' that differ by topology (network + 1 to network + 3)."""

POD_RANGE_RESERVED = POD_RANGE_HEAD + 1
"""The same and the broadcast address."""


def router_address(network: IPv4Network) -> IPv4Address:
    """The router's address on the node segment: the first one."""
    return network.network_address + 1
