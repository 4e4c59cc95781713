"""One thing on a cell's path that is not as intended, and which fault it amounts to. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from lab.cluster.observers.difference import Difference

FAULT_OF: Mapping[str, str] = {
    "link-down": "node-link-down",
    "pod-link-down": "pod-link-down",
    "wrong-vni": "wrong-vni",
    "wrong-port": "wrong-udp-port",
    "tunnel-port-dropped": "tunnel-udp-dropped",
    "tunnel-port-rejected": "tunnel-udp-rejected",
    "forwarding-off": "ip-forward-off",
    "route-missing": "route-missing",
    "entry-missing": "fdb-entry-missing",
    "stale-neighbour": "stale-neighbour",
    "bridge-mtu": "mtu-black-hole",
    "tunnel-mtu": "mtu-black-hole",
    "link-mtu": "mtu-black-hole",
    "pod-mtu": "mtu-black-hole",
    "packets-lost": "packet-loss",
    "slowed": "slow-link",
    "duplicate-address": "duplicate-pod-address",
    "duplicate-pod-cidr": "duplicate-node-pod-cidr",
    "stale-backend": "service-backend-stale",
    "balancer-stale": "service-backend-stale",
    "balancers-missing": "service-rules-missing",
    "service-rules-missing": "service-rules-missing",
    "node-port-barred": "nodeport-blocked",
    "masquerade-missing": "masquerade-missing",
    "masquerade-exception-missing": "outboundnat-exception-missing",
    "name-server-barred": "dns-unreachable",
    "duplicate-mac": "two-nodes-one-mac",
    "session-down": "bgp-session-down",
    "gateway-missing": "gateway-dead",
    "gateway-barred": "gateway-dead",
    "proxy-stopped": "kube-proxy-stopped",
    "flanneld-down": "flanneld-killed",
    "runtime-down": "containerd-stopped",
    "wrong-subnet": "wrong-pod-cidr",
    "cni-config-missing": "cni-config-missing",
    "certificate-expired": "kubelet-certificate-expired",
    "disk-full": "disk-full",
    "dns-scaled-down": "coredns-scaled-down",
    "felix-down": "felix-killed",
    "wrong-pool": "wrong-pool",
    "wrong-encapsulation": "wrong-encapsulation",
    "wrong-as": "wrong-as-number",
}
"""What is observed, and the fault of the catalogue that looks like it. Other kinds have none."""

_IN_POD = "in the pod: "
_TOOLS = (
    *("birdc", "bridge", "cat", "crictl", "df", "if", "ip", "iptables", "iptables-save"),
    *("journalctl", "kubectl", "ls", "openssl", "ps", "sed"),
    *("ovn-nbctl", "ovn-sbctl", "ovs-appctl", "ovs-ofctl", "ovs-vsctl"),
    *("modprobe", "nft", "pkill", "ss", "sysctl", "systemctl", "tc"),
)
_CHAIN = re.compile(r"[;|&'\"<>$]")


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, where, how to see it, and how to mend it."""

    kind: str
    """As the observers call it: a :data:`~lab.cluster.observers.difference.Kind`, or one of
    the explainer's own: ``"lost-between"``, ``"machine-silent"``, ``"intent-ends"``."""
    fault: str
    """The catalogue's name for it; empty where it has none."""
    node: str
    object: str
    intended: str
    observed: str
    shows: str
    """The command that shows it, on the machine or in the pod ``place``; or words."""
    mends: str
    """The command that mends it there; or words."""
    place: str
    """Pod or machine where the commands are run."""
    hop: int = -1
    """Its place on the path, counted from 0; -1 where it is not on the path."""

    @property
    def sentence(self) -> str:
        """``on worker1, tunnel flannel.4096: VNI 4097; it should be: VNI 4096``."""
        return f"on {self.node}, {self.object}: {self.observed}; it should be: {self.intended}"

    @property
    def line(self) -> str:
        """The sentence with the fault's name."""
        return f"{self.sentence} ({self.fault})" if self.fault else self.sentence

    def shown_by(self, lab: str) -> str:
        """What to type to see it."""
        return by_hand(lab, self.place, self.shows)

    def mended_by(self, lab: str) -> str:
        """What to type to mend it."""
        return by_hand(lab, self.place, self.mends)


def found(difference: Difference, hop: int) -> Finding:
    """The finding that a difference is; ``hop`` is -1 where it is not on the path."""
    inside = difference.shows.startswith(_IN_POD)
    pod = difference.object.rpartition("pod ")[2]  # "neighbour 10.244.1.1 of pod worker1-p1"
    return Finding(
        kind=difference.kind,
        fault=FAULT_OF.get(difference.kind, ""),
        node=difference.node,
        object=difference.object,
        intended=difference.intended,
        observed=difference.observed,
        shows=difference.shows,
        mends=difference.mends,
        place=pod if inside else difference.place or difference.node,
        hop=hop,
    )


def by_hand(lab: str, place: str, text: str) -> str:
    """A command as it is typed where ``lab`` is; words stay words."""
    line = text.removeprefix(_IN_POD)
    words = line.split()
    if not words or words[0] not in _TOOLS:
        return line
    told = f"sh -c {shlex.quote(line)}" if _CHAIN.search(line) else line
    return f"lab exec {lab} {place} -- {told}"
