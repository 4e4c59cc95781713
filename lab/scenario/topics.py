"""What clusters in the field have and a lab does not, or has under another name. Pure.

One table answers by name wherever a scenario has a word that is not known, instead of the known
word whose spelling is nearest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lab._dataclass import dataclass

PAGE = "docs/reference/not-modelled.md"
_ADDRESS_RANGES = ("kubernetes.service_cidr", "kubernetes.dns_address")


@dataclass(frozen=True, slots=True)
class Topic:
    """Something that people write into the description of a cluster."""

    name: str
    """As its users call it, with an article where it needs one."""
    what: str
    """What it is, in a few words."""
    nearest: str
    """What a lab has instead, as a clause."""
    pattern: str
    """Regular expression for the words that mean it; see :func:`words`."""
    lists: tuple[str, ...] = ()
    """Keys of a scenario, with dots, that hold one value; a list there means this topic."""
    modelled: bool = False
    """Whether a lab has it, under another name."""

    @property
    def answer(self) -> str:
        """A clause for an error: what it is, whether a lab has it, what is nearest, the page."""
        state = "has another name here:" if self.modelled else "is not modelled; nearest:"
        return f"{self.name} ({self.what}) {state} {self.nearest}; see {PAGE}"

    @property
    def brief(self) -> str:
        """A shorter clause, for errors that say themselves what to write."""
        return f"{self.name} is not modelled; see {PAGE}"


IPV6 = Topic(
    "IPv6 or dual stack",
    "pods, Services or nodes with IPv6 addresses",
    "IPv4 ranges, one each for pods, Services and nodes",
    r"ipv6|dual-?stack|ip-?famil",
    lists=_ADDRESS_RANGES,
)
POOLS = Topic(
    "a second pod range",
    "several IP pools or cluster CIDRs",
    'one range, "kubernetes.pod_cidr", and a part of it for each node ("pod_cidr" of the node)',
    r"ip-?pools?\b|\bpools\b|cluster-?cidrs\b|pod-?cidrs\b",
    lists=("kubernetes.pod_cidr",),
)
SUBNETS = Topic(
    "a routed underlay",
    "racks, or nodes in several subnets",
    'one node network only, with routes to pods in its router: topology "upstream-tor", or '
    '"calico-bgp" with "peering: tor"',
    r"\bracks?\b|\bleafs?\b|\bleaves\b|\bspines?\b|\bunderlays?\b|\bfabrics?\b|\bclos\b|\bsubnets\b",
    lists=("network", "network.cidr", "network.router", "network.mtu"),
)
IPIP = Topic(
    "IP-in-IP",
    "packets of pods inside IP packets, without UDP",
    'topology "calico-vxlan" (a tunnel) or "calico-bgp" (no tunnel)',
    r"ip-?ip\b|ip-?in-?ip",
)
TOPICS = (
    IPV6,
    POOLS,
    SUBNETS,
    Topic(
        "the size of Calico's blocks",
        "blockSize",
        '"kubernetes.node_prefix", as each node has exactly one block',
        r"block-?size",
        modelled=True,
    ),
    Topic(
        "the range of pods",
        "podSubnet, clusterCIDR",
        '"kubernetes.pod_cidr"',
        r"pod-?subnet|cluster-?cidr\b|pod-?network-?cidr",
        modelled=True,
    ),
    Topic(
        "the range of Services",
        "serviceSubnet",
        '"kubernetes.service_cidr"',
        r"service-?subnet|service-?cluster-?ip-?range",
        modelled=True,
    ),
    Topic(
        "the network add-on",
        "the CNI",
        '"topology.kind"',
        r"^cni\b|^network-?plugin|^default-?cni",
        modelled=True,
    ),
    Topic(
        "one address of all API servers",
        "controlPlaneEndpoint, HAProxy in front of control planes",
        'a node with "role: services"',
        r"control-?plane-?endpoint|ha-?proxy|api-?server-?(lb|load)|external-load-balancer",
        modelled=True,
    ),
    Topic(
        "IPVS",
        "a mode of kube-proxy",
        '"proxy_mode: nftables", or iptables',
        r"\bip-?vs\b",
    ),
    IPIP,
    Topic(
        "encryption between nodes",
        "WireGuard, IPsec",
        'topology "overlay" or "calico-vxlan", whose tunnel is not encrypted',
        r"wire-?guard|ip-?sec\b|encrypt",
    ),
    Topic(
        "a BGP route reflector",
        "nodes that peer with a few nodes instead of all",
        'topology "calico-bgp" with "peering: tor", where nodes peer with the router alone',
        r"route-?reflect|^rr$",
    ),
    Topic(
        "external etcd",
        "etcd on machines of its own",
        "etcd on every control plane; write several control planes",
        r"etcd",
    ),
    Topic(
        "a Service of type LoadBalancer",
        "an address outside the cluster, as from a cloud, MetalLB or kube-vip",
        'the ports that it would forward to: family "nodeport", and "node_port: true" of a special '
        'Service; in front of API servers a node with "role: services"',
        r"load-?balanc|metal-?lb|kube-?vip|klipper",
    ),
    Topic(
        "a Service with externalIPs",
        "addresses outside the cluster that nodes accept for it",
        'family "nodeport", and "node_port: true" of a special Service',
        r"external-?ips?\b",
    ),
    Topic(
        "a pod on the host's network",
        "hostNetwork, hostPort",
        'the nodes themselves, which ask and answer in families "node-pod", "pod-node" and '
        '"node-service"',
        r"host-?network|host-?ports?\b",
    ),
    Topic(
        "NodeLocal DNSCache",
        "a DNS cache on every node",
        'the cluster\'s DNS Service alone, family "dns"',
        r"node-?local",
    ),
    Topic(
        "NetworkPolicy",
        "rules about which pods may talk",
        'a real cluster of topology "calico-vxlan" (--provider nspawn), where kubectl makes them, '
        'and "exceptions" for the cells that they refuse',
        r"network-?polic|net-?pol\b|^polic(y|ies)$",
    ),
    Topic(
        "a data plane in eBPF",
        "Cilium, Calico's BPF mode, no kube-proxy",
        'topology "overlay" (its tunnel) or "host-gateway" (its native routing), with kube-proxy',
        r"e-?bpf\b|\bbpf\b|cilium|kube-?proxy-?(free|replacement)",
    ),
    Topic(
        "another network add-on",
        "Weave, Antrea, kube-router, Canal, kindnet",
        'topology "custom" with its own manifests, on a cluster; on namespaces "overlay" '
        '(a tunnel: Weave, Antrea, Canal) or "host-gateway" (routes: kindnet, kube-router)',
        r"\bweave|\bantrea|kube-?router|\bcanal\b|\bkindnet|\bromana",
    ),
    Topic(
        "a second network of pods",
        "Multus, SR-IOV, macvlan, ipvlan",
        'further cards of nodes on real machines, "nics"',
        r"multus|sr-?iov|mac-?vlan|ip-?vlan",
    ),
    Topic(
        "a VLAN or bond of nodes",
        "tagged or joined network cards",
        'one segment, "network.cidr"',
        r"^vlans?\b|\bbond(s|ing)?\b",
    ),
    Topic(
        "Ingress or Gateway API",
        "HTTP routing into the cluster",
        'the NodePort behind it, family "nodeport"',
        r"ingress|gateway-?api|http-?routes?\b",
    ),
    Topic(
        "a service mesh",
        "Istio, Linkerd",
        'plain Services, family "pod-service"',
        r"istio|linkerd|service-?mesh|envoy",
    ),
    Topic(
        "an egress gateway",
        "a chosen source address for traffic that leaves the cluster",
        'the address of the pod\'s node, family "pod-external"',
        r"egress",
    ),
    Topic(
        "topology-aware routing",
        "trafficDistribution, topology hints",
        '"internal_traffic: local" of a special Service',
        r"traffic-?distribution|topology-?(aware|hints?)",
    ),
    Topic(
        "a Service of type ExternalName",
        "a DNS alias",
        '"headless: true" of a special Service',
        r"external-?names?\b",
    ),
    Topic(
        "SCTP",
        "a transport protocol",
        '"protocols: [tcp, udp]"',
        r"\bsctp\b",
    ),
    Topic(
        "another container runtime",
        "dockershim, cri-dockerd, CRI-O",
        "containerd, on every cluster",
        r"docker|cri-?o\b",
    ),
)


def words(text: str) -> str:
    """The text's words in lower case with ``-`` between them: ``externalIPs`` is external-ips."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})|[^A-Za-z0-9]+", "-", text)
    return apart.strip("-").lower()


def topic_of(text: str) -> Topic | None:
    """The topic that a word of a scenario means, if the table has it."""
    written = words(text)
    return next((topic for topic in TOPICS if re.search(topic.pattern, written)), None)


def topic_of_list(key: str, texts: Sequence[str]) -> Topic | None:
    """The topic that a list means where a scenario has one value; ``key`` with dots."""
    if any(":" in text for text in texts):
        return IPV6
    return next((topic for topic in TOPICS if key in topic.lists), None)
