"""Names and addresses that the lab uses itself, and a scenario cannot."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

NAMES: dict[str, str] = {
    "router": "the router in front of the nodes",
    "client": "the client outside the cluster",
    "fabric": "the switch that joins the machines",
    "coredns": "the pod that answers DNS",
}
"""Names of every lab's own machines and pods, which no node can have."""

DNS_POD = "coredns"
"""The pod behind the DNS Service, on the first Linux node with a kubelet."""

SERVICE_PORT = 80
"""The usual Services' own."""
POD_PORT = 8080
"""Every probe pod answers here, over TCP and UDP."""
SECOND_POD_PORT = 8081
"""And here, over TCP, where a Service sends packets to it."""

NODE_PORTS_TAKEN: dict[int, str] = {
    22: "SSH",
    53: "DNS",
    2379: "etcd",
    2380: "etcd",
    4789: "VXLAN",
    6443: "the API server",
    POD_PORT: "the node's own endpoint in the matrix",
    10248: "the kubelet",
    10249: "kube-proxy",
    10250: "the kubelet",
    10256: "kube-proxy",
    10257: "the controller manager",
    10259: "the scheduler",
}
"""Ports on which nodes answer themselves, and what does: no Service can have them there."""

DNS_SERVICE = "kube-dns"

SERVICES: dict[str, str] = {
    "kubernetes": "the Service of the API server",
    DNS_SERVICE: "the Service of the cluster's DNS",
    "dns": "the Service of the cluster's DNS",
}

OUTSIDE_CIDR = IPv4Network("198.51.100.0/24")
"""The network outside the cluster, where the client stands (TEST-NET-2, RFC 5737)."""

HYPERVISOR_CIDR = IPv4Network("203.0.113.0/24")
"""The network between a scenario's own hypervisors (TEST-NET-3, RFC 5737)."""

POD_RANGE_HEAD = 4
"""Addresses at the start of a node's pod range that no pod gets: the network address, and the
bridge's and gateways' that differ by topology (network + 1 to network + 3)."""

POD_RANGE_RESERVED = POD_RANGE_HEAD + 1
"""The same and the broadcast address."""


def router_address(network: IPv4Network) -> IPv4Address:
    """The router's address on the node segment where nobody gives one: the first."""
    return network[min(1, network.num_addresses - 1)]
