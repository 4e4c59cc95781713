"""What is documented not to work from Windows nodes and pods, whatever the topology.

These are expectations. The rules that the embedded provider obeys so that emulated Windows
nodes really behave like this live with that provider; the two meet only in their ids.
"""

from __future__ import annotations

from lab.scenario.scenario import Limit, Match

KUBERNETES_DOCS = "Kubernetes documentation, Networking on Windows"

NODEPORT_SELF = Limit(
    "WIN-NODEPORT-SELF",
    Match(families=frozenset({"nodeport"}), source_kind="node", source_os="windows", entry="own"),
    "timeout",
    "a Windows node cannot reach a NodePort on itself; other nodes and outside clients can",
    KUBERNETES_DOCS,
)
HOST_SERVICE = Limit(
    "WIN-HOST-SERVICE",
    Match(families=frozenset({"node-service"}), source_os="windows"),
    "timeout",
    "a Service address cannot be reached from the Windows node itself, only from its pods",
    KUBERNETES_DOCS,
)
DNS_PARTIAL = Limit(
    "WIN-DNS-PARTIAL",
    Match(families=frozenset({"dns"}), source_os="windows", name_form="partial"),
    "no-such-name",
    "a Windows pod has one DNS suffix: partly qualified names (svc.namespace) do not resolve",
    "Kubernetes documentation, Networking on Windows: DNS limitations",
)
DNS_SHORT = Limit(
    "WIN-DNS-SHORT",
    Match(families=frozenset({"dns"}), source_os="windows", name_form="short"),
    "no-such-name",
    "with wincni, short service names do not resolve in Windows pods; fully qualified ones do",
    "field report on Windows nodes behind an upstream router (wincni, L2Bridge)",
)
OVERLAY_NODE_POD = Limit(
    "WIN-OVERLAY-NODE-POD",
    Match(families=frozenset({"node-pod"}), source_os="windows", relation="other-node"),
    "timeout",
    "with flannel vxlan, a Windows node reaches its own pods only, not those of other nodes",
    "Kubernetes documentation, Windows: flannel vxlan limitations (flannel 0.12 and later)",
)

EVERYWHERE: tuple[Limit, ...] = (NODEPORT_SELF, HOST_SERVICE, DNS_PARTIAL)
WITH_WINCNI: tuple[Limit, ...] = (*EVERYWHERE, DNS_SHORT)
