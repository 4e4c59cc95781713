"""Names, ports and addresses that every lab uses itself and a scenario cannot use."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

NAMES: dict[str, str] = {
    "router": "the router in front of the nodes",
    "client": "the client outside the cluster",
    "fabric": "the switch that joins the machines",
    "coredns": "the pod that answers DNS",
}
"""Names of the machines and pods that every lab has; no node can have them."""

DNS_POD = "coredns"
"""The pod behind the DNS Service, on the first Linux node with a kubelet."""

SERVICE_PORT = 80
"""Port of the usual Services."""
POD_PORT = 8080
"""Port on which every probe pod answers, over TCP and UDP."""
SECOND_POD_PORT = 8081
"""Second port of a probe pod, over TCP, if a Service sends packets to it."""

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
"""Ports that programs on the nodes use; no NodePort can have them."""

DNS_SERVICE = "kube-dns"

SERVICES: dict[str, str] = {
    "kubernetes": "the Service of the API server",
    DNS_SERVICE: "the Service of the cluster's DNS",
    "dns": "the Service of the cluster's DNS",
}

OUTSIDE_CIDR = IPv4Network("198.51.100.0/24")
"""The network outside the cluster, with the client (TEST-NET-2, RFC 5737)."""

HYPERVISOR_CIDR = IPv4Network("203.0.113.0/24")
"""The network between a scenario's hypervisors (TEST-NET-3, RFC 5737)."""

POD_RANGE_HEAD = 4
"""Addresses at the start of a node's pod range that no pod gets: the network address, and those of
the bridge and gateways, which depend on the topology (network + 1 to network + 3)."""

POD_RANGE_RESERVED = POD_RANGE_HEAD + 1
"""Addresses of a node's pod range that no pod gets, including the broadcast address."""


def router_address(network: IPv4Network) -> IPv4Address:
    """The router's default address on the node segment: the first."""
    return network[min(1, network.num_addresses - 1)]
