"""What kubelet, kube-proxy, network add-ons and daemons change in a namespace. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from lab.facts.ruleset import NOTHING


@dataclass(frozen=True, slots=True)
class Churn:
    """What others create, change and remove in a namespace: regular expressions."""

    objects: re.Pattern[str] = NOTHING
    """Matches ``new``, ``gone`` or ``changed``, a section and an object, and the device of a route:
    ``"new link dummy0"``, ``"gone route route to 10.1.0.0/24 dev eth0"``.
    """
    devices: re.Pattern[str] = NOTHING
    """Devices that come and go with everything that is theirs; one that stays is compared."""
    rules: re.Pattern[str] = NOTHING
    """The part of an nftables rule that varies; a rule that is nothing else comes and goes."""


CACHED_MTU = "cached path MTU"
STILL = Churn()
"""Nothing: the lab alone makes what is there."""
_OF_DAEMONS = (
    # virtual switches; routes of addresses that daemons hold: what they learn has their protocol
    r"new link (?:ovs-|br-|genev_sys_).*|(?:new|gone) route .* proto kernel"
    r"|\w+ route .* proto (?:bird|keepalived)"
    r"|changed link \S+ promisc"
)
_OF_ADDONS = r"new (?:link|forwarding|queue|vlan) .*|new route .* dev \S+"
_EPHEMERAL = r"(?:3[2-9]|[4-6]\d)\d{3}"
_OF_KUBERNETES = (
    # endpoints and Services: the elements of kube-proxy's maps and sets, and chains of each
    r"\w+ nftables (?:map|set) ip6? kube-proxy .*"
    r"|(?:new|gone) nftables chain ip6? kube-proxy (?:service|endpoint|external|firewall)-.*"
    r"|(?:new|gone) nftables chain ip6? \S+ (?:KUBE-(?:SVC|SEP|EXT|FW|SVL)-|cali-\w+-).*"
    r"|\w+ ipset ipset (?:cali|KUBE-).*"
    # Calico's chains and sets of pods, Profiles and nodes
    r"|\w+ nftables (?:map ip6? calico \S+-wl-dispatch|set ip6? calico cali40\S+)"
    r"|(?:new|gone) nftables chain ip6? calico \w+-cali-(?:pri|pro|tw|fw)-.*"
    # a node that joins anew has another tunnel device; checks compare its entries
    r"|\w+ (?:neighbour|forwarding) .* dev (?:flannel\.|vxlan\.calico).*"
    r"|\w+ (?:route|address) .* dev vxlan\.calico"
    r"|\w+ route .* proto bird"
    # programs listen on ports that the kernel chooses
    rf"|gone socket socket \S+ \S+:{_EPHEMERAL}"
)
_POD_DEVICES = r"veth[0-9a-f]{8}|cali[0-9a-f]{11}"
_OF_ENDPOINTS = (
    r"(?<=numgen random mod )\d+ v?map \{.*?\}|ip saddr @affinity-.*"
    # of a Service without endpoints; nft does not print the target of iptables
    r"|meta l4proto \w+ (?:ip6? daddr \S+)? *\w+ dport \d+ counter"
    r"|.*(?:jump|goto) (?:KUBE-(?:SVC|SEP|EXT|FW|SVL)-|cali-[tf]w-).*"
)


@cache
def churn(
    *,
    kubernetes: bool,
    daemons: bool,
    held: frozenset[str] = frozenset(),
    mtus: frozenset[int] = frozenset(),
) -> Churn:
    """What kubelet, kube-proxy and network add-ons do, or routing daemons and virtual switches.

    ``held``: the addresses, without prefix length, that daemons add and remove. ``mtus``: the MTUs
    of the lab's devices, which large packets teach.
    """
    of_addons = kubernetes and daemons
    every = ((_OF_KUBERNETES, kubernetes), (_OF_DAEMONS, daemons), (_OF_ADDONS, of_addons))
    objects = [text for text, on in every if on]
    if daemons and held:
        objects.append(f"(?:new|gone) address (?:{'|'.join(map(re.escape, sorted(held)))})/.*")
    if mtus:
        objects.append(f"new cache {CACHED_MTU} (?:{'|'.join(map(str, sorted(mtus)))})")
    if not kubernetes:
        return Churn(re.compile("|".join(objects))) if objects else STILL
    return Churn(*map(re.compile, ("|".join(objects), _POD_DEVICES, _OF_ENDPOINTS)))
