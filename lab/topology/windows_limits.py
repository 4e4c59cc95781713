"""What is documented not to work from Windows nodes and pods in every topology.

These are expectations. The rules that make the embedded provider's emulated Windows nodes behave
like this are part of that provider; the two share only ids.
"""

from __future__ import annotations

from collections.abc import Iterator

from lab._dataclass import dataclass
from lab.plan.plan import Plan, PlannedNode
from lab.scenario.scenario import Limit, Match
from lab.scenario.versions import SUPPORTED, WINDOWS_IMAGES

KUBERNETES_DOCS = "Kubernetes documentation, Networking on Windows"

NODEPORT_SELF = Limit(
    id="WIN-NODEPORT-SELF",
    when=Match(target_kind="nodeport", source_kind="node", source_os="windows", entry="own"),
    fails="timeout",
    reason="a Windows node cannot reach a NodePort on itself; other nodes and outside clients can",
    source=KUBERNETES_DOCS,
)
HOST_SERVICE = Limit(
    id="WIN-HOST-SERVICE",
    when=Match(target_kind="service", source_kind="node", source_os="windows"),
    fails="timeout",
    reason="a Service address cannot be reached from the Windows node itself, only from its pods",
    source="older Kubernetes documentation, Windows limitations; today's no longer has it, and "
    "Kubernetes' own test of host processes asks the API's Service from a node",
)
DNS_PARTIAL = Limit(
    id="WIN-DNS-PARTIAL",
    when=Match(families=("dns",), source_os="windows", name_form="partial"),
    fails="no-such-name",
    reason="a Windows pod has one DNS suffix: partly qualified names (svc.namespace) do not "
    "resolve",
    source="Kubernetes documentation, Networking on Windows: DNS limitations",
)
DNS_SHORT = Limit(
    id="WIN-DNS-SHORT",
    when=Match(
        families=(
            "dns",
            "headless",
        ),
        source_os="windows",
        name_form="short",
    ),
    fails="no-such-name",
    reason="the CNI configuration, as in the topology's document, does not take a pod's own DNS "
    "suffixes: short Service names do not resolve in Windows pods; fully qualified ones do",
    source="field report on Windows nodes behind an upstream router (win-bridge without the "
    "capability dns; kubernetes/kubernetes 65016); for wincni microsoft/SDN 150",
)
OVERLAY_NODE_POD = Limit(
    id="WIN-OVERLAY-NODE-POD",
    when=Match(families=("node-pod",), source_os="windows", relation="other-node"),
    fails="timeout",
    reason="with flannel vxlan, a Windows node reaches its own pods only, not those of other nodes",
    source="Kubernetes documentation, Windows: flannel vxlan limitations (flannel 0.12 and later)",
)

EVERYWHERE: tuple[Limit, ...] = (NODEPORT_SELF, HOST_SERVICE, DNS_PARTIAL)
WITHOUT_POD_DNS: tuple[Limit, ...] = (*EVERYWHERE, DNS_SHORT)
"""Of CNI configurations without the capability ``dns``; flannel's for Windows have it."""


@dataclass(frozen=True, slots=True)
class ProxyLimit:
    """What kube-proxy on Windows does differently with Services, and in which versions.

    ``limit`` applies to any node. If it is about packets to a Service's address, it means what the
    node and its pods send; if it is about node ports, what arrives at that node.
    """

    limit: Limit
    images: tuple[str, ...] = WINDOWS_IMAGES
    kubernetes: tuple[str, ...] = SUPPORTED


AFFINITY = Limit(
    id="WIN-AFFINITY",
    when=Match(families=("affinity",)),
    fails="several-backends",
    reason=(
        "kube-proxy has session affinity from Windows Server 2022 on; before, each connection "
        "gets any backend"
    ),
    source=KUBERNETES_DOCS,
)
UNSERVED = Limit(
    id="WIN-UNSERVED",
    when=Match(
        families=(
            "no-endpoints",
            "ports",
        ),
        refusal="refused",
    ),
    fails="timeout",
    reason=(
        "kube-proxy on Windows makes no policy for a Service without backends: packets are "
        "dropped, not rejected"
    ),
    source="inferred, not tried: kube-proxy's source (pkg/proxy/winkernel, 1.36) skips such "
    "Services",
)
SHORT_CIRCUIT = Limit(
    id="WIN-NODEPORT-OWN-PODS",
    when=Match(
        families=("nodeport-local",),
        source_kind="pod",
        entry="own",
        relation="other-node",
    ),
    fails="timeout",
    reason=(
        "with externalTrafficPolicy Local a Windows node sends its own pods to local backends "
        "only, as it does everyone else"
    ),
    source="inferred, not tried: kube-proxy's source (pkg/proxy/winkernel, 1.36) has no rule for "
    "them",
)

OF_PROXY: tuple[ProxyLimit, ...] = (
    ProxyLimit(AFFINITY, images=("windows-server-2019",)),
    ProxyLimit(UNSERVED),
    ProxyLimit(SHORT_CIRCUIT),
)


def of_proxy(plan: Plan) -> tuple[Limit, ...]:
    """The limits of the kube-proxies on the plan's Windows nodes, node by node."""
    if not any(service.purpose == "special" for service in plan.services):
        return ()
    return tuple(limit for node in plan.nodes if node.os == "windows" for limit in _of_node(node))


def _of_node(node: PlannedNode) -> Iterator[Limit]:
    for limit in OF_PROXY:
        if node.image in limit.images and node.version in limit.kubernetes:
            when = limit.limit.when
            if when.entry is None:
                by_address = when.replace(target_kind="service", source=node.name)
                yield limit.limit.replace(when=by_address)
            yield limit.limit.replace(when=when.replace(entry_node=node.name))
