"""What was seen, compared with the Intent: in the order of a packet's hops. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from lab.cluster.footprint import LAB, By, Footprint, footprint
from lab.explain.checks import (
    bridge,
    calico,
    chassis,
    logical,
    node_software,
    pod,
    routing,
    services,
    sessions,
    switch,
    tunnel,
    underlay,
)
from lab.explain.checks.duplicates import between
from lab.explain.difference import Difference, Look
from lab.facts.node import NodeFacts, PodFacts
from lab.topology import gateways
from lab.topology.intent import Intent, MachineIntent

_NETWORK = "Get-HnsNetwork | Select-Object -Property Name, Type, ManagementIP, Subnets, Policies"
_ENDPOINT = "Get-HnsEndpoint | Select-Object -Property Name, IPAddress, IsRemoteEndpoint, Policies"
_RESTART_FLANNEL = "Restart-Service -Name 'flanneld'; then kube-proxy"
_RESTART_PROXY = (
    "Stop-Service -Name 'kube-proxy'; Get-HnsPolicyList | Remove-HnsPolicyList; "
    "Start-Service -Name 'kube-proxy'"
)
_AGAIN = (
    "Stop-Service -Name 'kube-proxy', 'flanneld'; Get-HnsNetwork | Where-Object -Property Name "
    "-EQ -Value '{network}' | Remove-HnsNetwork; Start-Service -Name 'flanneld', 'kube-proxy' "
    "(the link drops for seconds)"
)
_WORDS: dict[str, tuple[str, str]] = {
    "pod-missing": (_ENDPOINT, "delete the pod, so that its endpoint is made again"),
    "pod-link-down": (
        _ENDPOINT,
        "delete the pod; on build 1909 run kube-proxy as NT AUTHORITY\\NetworkService",
    ),
    "bridge-missing": (_NETWORK, _AGAIN),
    "bridge-address": (_NETWORK, _AGAIN),
    "tunnel-missing": (_NETWORK, _AGAIN),
    "wrong-vni": (_NETWORK, "correct VNI in net-conf.json; " + _AGAIN),
    "wrong-port": (_NETWORK, "correct Port in net-conf.json to 4789; " + _AGAIN),
    "tunnel-local": (_NETWORK, "give flanneld --iface the node's address; " + _AGAIN),
    "route-missing": (
        (
            "(Get-HnsNetwork | Where-Object -Property Name -EQ -Value '{network}').Policies; "
            "Get-NetRoute -AddressFamily IPv4"
        ),
        _RESTART_FLANNEL,
    ),
    "wrong-route": ("Get-NetRoute -AddressFamily IPv4", _RESTART_FLANNEL),
    "stray-route": (
        "Get-NetRoute -AddressFamily IPv4",
        "Remove-NetRoute -DestinationPrefix of that route",
    ),
    "neighbour-missing": (_NETWORK, _RESTART_FLANNEL),
    "stale-neighbour": ("Get-NetNeighbor -AddressFamily IPv4", _RESTART_FLANNEL),
    "entry-missing": (_NETWORK, _RESTART_FLANNEL),
    "wrong-entry": (_NETWORK, _RESTART_FLANNEL),
    "service-rules-missing": ("Get-HnsPolicyList; hnsdiag.exe list loadbalancers", _RESTART_PROXY),
    "service-missing": ("Get-HnsPolicyList; hnsdiag.exe list loadbalancers", _RESTART_PROXY),
    "stale-backend": ("Get-HnsPolicyList; hnsdiag.exe list loadbalancers", _RESTART_PROXY),
    "backend-missing": ("Get-HnsPolicyList; hnsdiag.exe list loadbalancers", _RESTART_PROXY),
    "masquerade-missing": (
        _ENDPOINT,
        "add an OutBoundNAT policy to AdditionalArgs of the CNI configuration; delete the pods",
    ),
    "masquerade-exception-missing": (
        _ENDPOINT,
        "add the prefix to the OutBoundNAT ExceptionList of the CNI configuration; delete the pods",
    ),
    "forwarding-off": (
        (
            "Get-NetIPInterface -AddressFamily IPv4 | Select-Object -Property InterfaceAlias, "
            "Forwarding"
        ),
        "Set-NetIPInterface -InterfaceAlias 'vEthernet*' -Forwarding Enabled",
    ),
    "link-missing": ("Get-NetAdapter", "see the adapter in the machine's definition"),
    "link-down": ("Get-NetAdapter", "Enable-NetAdapter -Name of that adapter"),
    "link-address": (
        "Get-NetIPAddress -AddressFamily IPv4",
        "give the node its address by DHCP reservation: making an HNS network loses a static one",
    ),
    "link-mtu": (
        "Get-NetIPInterface -AddressFamily IPv4",
        "Set-NetIPInterface -NlMtuBytes on that interface",
    ),
    "link-mac": ("Get-NetAdapter", "let MAC addresses be changed on the hypervisor's network"),
    "tunnel-port-dropped": (
        "Get-NetFirewallRule -Enabled True -Direction Inbound",
        (
            "New-NetFirewallRule -DisplayName 'VXLAN' -Direction Inbound -Protocol UDP "
            "-LocalPort 4789 -Action Allow"
        ),
    ),
    "packets-barred": (
        "Get-NetFirewallRule -Enabled True -Direction Inbound",
        (
            "New-NetFirewallRule -DisplayName 'kubelet' -Direction Inbound -Protocol TCP "
            "-LocalPort 10250 -Action Allow"
        ),
    ),
    "node-port-barred": (
        "Get-NetFirewallRule -Enabled True -Action Block -Direction Inbound",
        "Disable-NetFirewallRule -DisplayName of that rule",
    ),
    "program-down": (
        (
            "Get-Service | Where-Object -Property Name -In 'containerd', 'kubelet', 'kube-proxy', "
            "'flanneld'"
        ),
        "Start-Service -Name of that service, and see its log",
    ),
}


def put(difference: Difference, machine: MachineIntent) -> Difference:
    """The difference with Windows' own commands, where there are any."""
    words = _WORDS.get(difference.kind)
    if words is None:
        return difference
    network = machine.tunnel or machine.bridge
    name = network.name if network else ""
    shows, mends = (text.replace("{network}", name) for text in words)
    return replace(difference, shows=shows, mends=mends)


_HOPS = (
    pod.check,
    bridge.check,
    services.check,
    routing.check,
    tunnel.check,
    switch.check,
    chassis.check,
    underlay.check,
)


def differences(
    intended: MachineIntent, observed: NodeFacts, *, by: By = "lab", beside: Footprint = LAB
) -> tuple[Difference, ...]:
    """What on one node is not as intended, the first hop first; empty where all is.

    What could not be asked is not judged, nor what hangs on a device that is down: that the
    device is down is told.

    Parameters
    ----------
    intended
        The machine, bound to what is known at run time only (:func:`settled`) where Kubernetes
        has made its network.
    observed
        What was seen on it.
    by
        Who has made its bridge, tunnel, pods and Services.
    beside
        What they make beside that.

    """
    look = Look(intended, observed, by, beside)
    found = tuple(one for hop in _HOPS for one in hop(look))
    if observed.os == "windows":
        return tuple(put(one, intended) for one in found)
    return found


def lab_differences(
    intent: Intent, observed: Mapping[str, NodeFacts], *, by: By = "lab"
) -> tuple[Difference, ...]:
    """What in the whole lab is not as intended: node by node, then between nodes."""
    if by == "kubernetes":
        bound, observed = settled(intent, observed), named(intent, observed)
    else:
        bound = as_held(intent, observed)
    beside = footprint(intent.topology, by)
    found: list[Difference] = []
    for machine in bound.everything():
        if machine.name in observed:
            found += differences(machine, observed[machine.name], by=by, beside=beside)
    return (
        *found,
        *sessions.differences(bound, observed, by=by),
        *between(bound, observed),
        *logical.differences(bound, observed),
        *node_software.differences(bound, observed),
        *calico.differences(bound, observed),
    )


def as_held(intent: Intent, observed: Mapping[str, NodeFacts]) -> Intent:
    """The Intent with the virtual gateways where they were seen, each on one machine.

    One that nobody holds, or several do, stays where the Intent has it.
    """
    seen = {
        gateway.node: [
            name
            for name in gateway.candidates
            if name in observed
            and (link := observed[name].link(gateway.device))
            and gateway.address in link.addresses
        ]
        for gateway in intent.gateways
    }
    return gateways.settled(intent, seen)


def named(intent: Intent, observed: Mapping[str, NodeFacts]) -> dict[str, NodeFacts]:
    """What was seen, each of Kubernetes' pods by its name instead of its network namespace's.

    It is known by the first of its addresses: one that is another's, too, was added behind it.
    """
    return {
        name: replace(facts, pods=tuple(_named(intent.machine(name), facts.pods)))
        if facts.pods
        else facts
        for name, facts in observed.items()
    }


def _named(machine: MachineIntent, pods: Iterable[PodFacts]) -> Iterator[PodFacts]:
    names = {pod.address.partition("/")[0]: pod.name for pod in machine.pods}
    for one in pods:
        own = next((text.partition("/")[0] for text in one.addresses()), "")
        yield replace(one, name=names.pop(own, one.name))  # of two with one address the first


def settled(intent: Intent, observed: Mapping[str, NodeFacts]) -> Intent:
    """The Intent with the MACs that Kubernetes' network add-on has chosen for tunnels.

    Each is taken from the node whose tunnel it is; the other nodes' entries for it follow.
    """
    macs = dict(_chosen(intent, observed))
    return replace(
        intent,
        machines=tuple(
            replace(
                machine,
                tunnel=replace(machine.tunnel, mac=macs.get(machine.tunnel.mac, machine.tunnel.mac))
                if machine.tunnel
                else None,
                neighbours=tuple(
                    replace(one, mac=macs.get(one.mac, one.mac)) for one in machine.neighbours
                ),
                forwarding=tuple(
                    replace(one, mac=macs.get(one.mac, one.mac)) for one in machine.forwarding
                ),
            )
            for machine in intent.machines
        ),
    )


def _chosen(intent: Intent, observed: Mapping[str, NodeFacts]) -> Iterator[tuple[str, str]]:
    for machine in intent.machines:
        there = observed[machine.name].tunnels if machine.name in observed else ()
        for one in there:
            if machine.tunnel and one.name == machine.tunnel.name and one.mac:
                yield machine.tunnel.mac, one.mac
