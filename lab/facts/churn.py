"""What kubelet, kube-proxy, network add-ons and daemons change in a namespace. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from lab.facts.difference import Change, Difference
from lab.facts.ruleset import NOTHING
from lab.topology.subject import (
    AddressSubject,
    CachedMtuSubject,
    ChainSubject,
    DeviceSubject,
    EntrySubject,
    IpSetSubject,
    NeighbourSubject,
    ProxySubject,
    QueueSubject,
    RouteSubject,
    SetSubject,
    SettingSubject,
    SocketSubject,
    Subject,
    VlanSubject,
)


@dataclass(frozen=True, slots=True)
class Passing:
    """One kind of object that others create, change or remove."""

    subject: type[Subject]
    changes: frozenset[Change]
    attribute: str | None = None
    """The attribute of it; None for every one."""
    fields: tuple[tuple[str, re.Pattern[str]], ...] = ()
    """Fields of the subject, and patterns of all that they have."""

    def covers(self, difference: Difference) -> bool:
        """Whether a difference is of such an object."""
        return (
            isinstance(difference.subject, self.subject)
            and difference.change in self.changes
            and self.attribute in {None, difference.attribute}
            and all(
                pattern.fullmatch(str(getattr(difference.subject, name)))
                for name, pattern in self.fields
            )
        )


_NEW: frozenset[Change] = frozenset({"new"})
_GONE: frozenset[Change] = frozenset({"gone"})
_EVERY: frozenset[Change] = frozenset({"new", "gone", "changed"})


def _passing(
    subject: type[Subject],
    changes: frozenset[Change] = _EVERY,
    attribute: str | None = None,
    **fields: str,
) -> Passing:
    patterns = tuple((name, re.compile(pattern)) for name, pattern in fields.items())
    return Passing(subject, changes, attribute, patterns)


@dataclass(frozen=True, slots=True)
class Churn:
    """What others create, change and remove in a namespace."""

    objects: tuple[Passing, ...] = ()
    devices: re.Pattern[str] = NOTHING
    """Devices that come and go with everything that is theirs; one that stays is compared."""
    rules: re.Pattern[str] = NOTHING
    """The part of an nftables rule that varies; a rule that is nothing else comes and goes."""


STILL = Churn()
"""Nothing: the lab alone makes what is there."""
_OF_DAEMONS = (
    # virtual switches; routes of addresses that daemons hold: what they learn has their protocol
    _passing(DeviceSubject, _NEW, name=r"(?:ovs-|br-|genev_sys_).*"),
    _passing(RouteSubject, _NEW | _GONE, maker="kernel"),
    _passing(RouteSubject, maker="bird|keepalived"),
    _passing(DeviceSubject, frozenset({"changed"}), "promisc"),
)
_OF_ADDONS = (
    *(_passing(kind, _NEW) for kind in (DeviceSubject, EntrySubject, VlanSubject)),
    _passing(QueueSubject, _NEW, kind="queue|class"),
    _passing(RouteSubject, _NEW, device=".+"),
)
_EPHEMERAL = r"(?:3[2-9]|[4-6]\d)\d{3}"
_OF_TUNNELS = r"(?:flannel\.|vxlan\.calico).*"
_IP = "ip6?"
_OF_KUBERNETES = (
    # endpoints and Services: the elements of kube-proxy's maps and sets, and chains of each
    _passing(SetSubject, kind="map|set", family=_IP, table="kube-proxy"),
    _passing(
        *(ChainSubject, _NEW | _GONE),
        family=_IP,
        table="kube-proxy",
        chain="(?:service|endpoint|external|firewall)-.*",
    ),
    _passing(
        *(ChainSubject, _NEW | _GONE),
        family=_IP,
        chain=r"(?:KUBE-(?:SVC|SEP|EXT|FW|SVL)-|cali-\w+-).*",
    ),
    _passing(IpSetSubject, name="(?:cali|KUBE-).*"),
    # Calico's chains and sets of pods, Profiles and nodes
    _passing(SetSubject, kind="map", family=_IP, table="calico", name=r"\S+-wl-dispatch"),
    _passing(SetSubject, kind="set", family=_IP, table="calico", name=r"cali40\S+"),
    _passing(
        *(ChainSubject, _NEW | _GONE),
        family=_IP,
        table="calico",
        chain=r"\w+-cali-(?:pri|pro|tw|fw)-.*",
    ),
    # a node that joins anew has another tunnel device; checks compare its entries
    *(
        _passing(kind, device=_OF_TUNNELS)
        for kind in (NeighbourSubject, ProxySubject, EntrySubject)
    ),
    _passing(RouteSubject, device=r"vxlan\.calico"),
    _passing(AddressSubject, attribute="", device=r"vxlan\.calico"),
    _passing(RouteSubject, maker="bird"),
    # the CNI plugin portmap, once a pod asks for a port of the host
    _passing(SettingSubject, path=r"ipv4/conf/(?:cni0|cbr0)/route_localnet"),
    # programs listen on ports that the kernel chooses
    _passing(SocketSubject, _GONE, port=_EPHEMERAL),
)
_POD_DEVICES = r"veth[0-9a-f]{8}|cali[0-9a-f]{11}"
_OF_ENDPOINTS = (
    r"(?<=numgen random mod )\d+ v?map \{.*?\}|ip saddr @affinity-.*"
    # of a Service without endpoints; nft does not print the target of iptables
    r"|meta l4proto \w+ (?:ip6? daddr \S+)? *\w+ dport \d+ counter"
    r"|.*(?:jump|goto) (?:KUBE-(?:SVC|SEP|EXT|FW|SVL)-|cali-[tf]w-).*"
    # ports of the host that pods ask for, by the CNI plugin portmap 1.9
    r"|jump (?:hostip_hostports|hostports)|fib daddr type local jump hostports_all"
    r"|(?:ip6? daddr \S+ )?(?:tcp|udp|sctp) dport \d+ dnat to \S+ comment \"[0-9a-f]{64}\""
    r"|ip6? saddr \S+ ip6? daddr \S+ masquerade comment \"[0-9a-f]{64}\""
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
    objects: list[Passing] = []
    for passing, happens in (
        (_OF_KUBERNETES, kubernetes),
        (_OF_DAEMONS, daemons),
        (_OF_ADDONS, kubernetes and daemons),
    ):
        objects += passing if happens else ()
    if daemons and held:
        addresses = "|".join(map(re.escape, sorted(held)))
        objects.append(_passing(AddressSubject, _NEW | _GONE, "", address=f"(?:{addresses})/.*"))
    if mtus:
        objects.append(_passing(CachedMtuSubject, _NEW, mtu="|".join(map(str, sorted(mtus)))))
    if not kubernetes:
        return Churn(tuple(objects))
    return Churn(tuple(objects), re.compile(_POD_DEVICES), re.compile(_OF_ENDPOINTS))
