"""Faults of a Windows node's HNS: its networks, endpoints, load balancers and their policies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from lab.explain.check import RECREATE_NETWORK, REMOVE_POLICIES
from lab.explain.faults.registry import (
    Fault,
    FaultChange,
    FaultCommand,
    FaultSite,
    hosts,
    probes,
    sites_on,
    with_peers,
)
from lab.machines.addons.flannel import TOPOLOGIES
from lab.machines.cluster.linux.api import ADMIN
from lab.topology.intent import Intent, MachineIntent, Route
from lab.topology.observed import NAMESPACE
from lab.topology.routing import bare
from lab.windows.faults import ON_EACH, on_node, windows_kubelets

_OBJECT = "ref Guid id, out IntPtr handle, out IntPtr error"
_FUNCTIONS = (
    *(f"HcnOpen{kind}({_OBJECT})" for kind in ("Network", "Endpoint")),
    *(
        f"HcnModify{kind}(IntPtr handle, string request, out IntPtr error)"
        for kind in ("Network", "Endpoint")
    ),
    *(f"HcnClose{kind}(IntPtr handle)" for kind in ("Network", "Endpoint")),
)
_LIBRARY = '[DllImport("computenetwork.dll", CharSet = CharSet.Unicode)]'
_DECLARED = " ".join(f"{_LIBRARY} public static extern int {each};" for each in _FUNCTIONS)
_HCN = (
    "if (-not ([System.Management.Automation.PSTypeName]'Hybridlab.Hcn').Type) "
    f"{{ Add-Type -Namespace Hybridlab -Name Hcn -MemberDefinition '{_DECLARED}' }}; "
    "$handle = $problem = [IntPtr]::Zero"
)
"""Version 2 of HNS: the cmdlets have version 1, which cannot change policies."""
_Document = Mapping[str, object]


def _modified(kind: str, chosen: str, request: str, policy: _Document) -> str:
    """The script that adds a policy to some HNS objects, or removes it. ``chosen``: a filter."""
    document = json.dumps(
        {"ResourceType": "Policy", "RequestType": request, "Settings": {"Policies": [policy]}}
    )

    def checked(function: str, arguments: str) -> str:
        failed = f"throw ('{function}: 0x{{0:x8}}' -f $code)"
        return f"$code = [Hybridlab.Hcn]::{function}({arguments}); if ($code -lt 0) {{ {failed} }}"

    opened = checked(f"HcnOpen{kind}", "[ref]$id, [ref]$handle, [ref]$problem")
    changed = checked(f"HcnModify{kind}", f"$handle, '{document}', [ref]$problem")
    return (
        f"{_HCN}; Get-Hns{kind} | Where-Object -FilterScript {{ {chosen} }} | "
        "ForEach-Object -Process { "
        f"$id = [guid]$_.ID; {opened}; "
        f"try {{ {changed} }} finally {{ $null = [Hybridlab.Hcn]::HcnClose{kind}($handle) }} }}"
    )


def _route(machine: MachineIntent, peer: MachineIntent) -> Route | None:
    """The overlay's route to the peer's pods."""
    cidr = peer.translation.local_cidr if peer.translation else None
    tunnel = machine.tunnel.name if machine.tunnel else None
    return next(
        (route for route in machine.routes if route.destination == cidr and route.device == tunnel),
        None,
    )


def _to_others(intent: Intent) -> Iterator[FaultSite]:
    return with_peers(
        windows_kubelets(intent),
        lambda machine: (host.name for host in hosts(intent) if _route(machine, host)),
    )


def _remote(intent: Intent, node: str, peer: str) -> tuple[str, dict[str, Any]]:
    """The filter of flannel's network, and its RemoteSubnetRoute as flannel made it."""
    machine, other = intent.machine(node), intent.machine(peer)
    route, tunnel = _route(machine, other), machine.tunnel
    assert route is not None, "a site has one"
    assert tunnel is not None, "the same"
    mac = next(each.mac for each in machine.neighbours if each.address == route.via)
    remote = next(each.remote for each in machine.forwarding if each.mac == mac)
    settings = {
        "DestinationPrefix": route.destination,
        "IsolationId": tunnel.vni,
        "ProviderAddress": remote,
        "DistributedRouterMacAddress": mac,
    }
    return f"$_.Name -eq '{tunnel.name}'", {"Type": "RemoteSubnetRoute", "Settings": settings}


def _has(**settings: str) -> str:
    """Whether a network has a RemoteSubnetRoute with these settings."""
    conditions = [f"$_.{name} -eq '{value}'" for name, value in settings.items()]
    words = " -and ".join(["$_.Type -eq 'RemoteSubnetRoute'", *conditions])
    return f"@($_.Policies | Where-Object -FilterScript {{ {words} }}).Count"


def _without_route(intent: Intent, node: str, peer: str) -> FaultChange:
    """Take the RemoteSubnetRoute of flannel away; it is put back as flannel made it."""
    chosen, policy = _remote(intent, node, peer)
    exists = _has(DestinationPrefix=policy["Settings"]["DestinationPrefix"])
    return on_node(
        node,
        [_modified("Network", chosen, "Remove", policy)],
        [_modified("Network", f"{chosen} -and -not {exists}", "Add", policy)],
    )


_NOBODY = "02-00-00-00-00-01"
"""Locally administered; no machine of a lab has it."""


def _with_stale_router(intent: Intent, node: str, peer: str) -> FaultChange:
    """The peer's router has another MAC than HNS knows, as after a node was made again."""
    chosen, policy = _remote(intent, node, peer)
    settings = policy["Settings"]
    prefix, key = settings["DestinationPrefix"], "DistributedRouterMacAddress"
    stale = {**policy, "Settings": {**settings, key: _NOBODY}}
    is_stale = _has(DestinationPrefix=prefix, **{key: _NOBODY})
    change = {
        "do": [("Remove", policy, chosen), ("Add", stale, f"{chosen} -and -not {is_stale}")],
        "undo": [
            ("Remove", stale, f"{chosen} -and {is_stale}"),
            ("Add", policy, f"{chosen} -and -not {_has(DestinationPrefix=prefix)}"),
        ],
    }
    do, undo = (
        [_modified("Network", where, request, document) for request, document, where in steps]
        for steps in change.values()
    )
    return on_node(node, do, undo)


STALE_NEIGHBOUR = Fault(
    name="stale-neighbour",
    title="HNS of a Windows node has an old MAC for one other node's pods",
    needs="an overlay's route to another node's pods",
    sites=_to_others,
    change=_with_stale_router,
    peer="node",
    windows=True,
)


ROUTE_MISSING = Fault(
    name="route-missing",
    title="HNS of a Windows node has no RemoteSubnetRoute to the pods of one other node",
    needs="an overlay's route to another node's pods",
    sites=_to_others,
    change=_without_route,
    peer="node",
    windows=True,
)

SERVICE_RULES_MISSING = Fault(
    name="service-rules-missing",
    title="HNS of a Windows node has no load balancers, as if kube-proxy had not run",
    needs="a Windows node of a cluster",
    sites=ON_EACH,
    change=lambda _, node, __: on_node(
        node,
        [f"Stop-Service -Name kube-proxy; {REMOVE_POLICIES}"],
        ["Start-Service -Name kube-proxy"],
    ),
    windows=True,
)


def _of_pods(machine: MachineIntent) -> str:
    """The filter of the endpoints of a node's probe pods."""
    addresses = ", ".join(f"'{bare(pod.address)}'" for pod in probes(machine))
    return f"-not $_.IsRemoteEndpoint -and $_.IPAddress -in {addresses}"


def _block_dns(intent: Intent, node: str, _: str) -> FaultChange:
    settings = {"Action": "Block", "Direction": "Out", "Priority": 100, "RemotePorts": "53"}
    scripts = {
        request: [
            _modified(
                "Endpoint",
                _of_pods(intent.machine(node)),
                request,
                {"Type": "ACL", "Settings": {**settings, "Protocols": protocol}},
            )
            for protocol in ("17", "6")
        ]
        for request in ("Add", "Remove")
    }
    return on_node(node, scripts["Add"], scripts["Remove"])


DNS_UNREACHABLE = Fault(
    name="dns-unreachable",
    title="access control lists of HNS drop DNS queries of a Windows node's pods",
    needs="pods on a Windows node of a cluster",
    sites=sites_on(windows_kubelets, lambda _, machine: probes(machine)),
    change=_block_dns,
    windows=True,
)


def delete_pods(intent: Intent, node: str, *names: str, again: bool = False) -> FaultCommand:
    """The command that deletes probe pods, which the lab makes again, with new endpoints.

    A pod that has its endpoint again is not deleted a second time: its address is another.
    ``again``: it is. The command fails where the API does not answer.
    """
    pods = [pod for pod in probes(intent.machine(node)) if not names or pod.name in names]
    same = "" if again else ' && $2 == "{}"'
    old = " || ".join(f'$1 == "{pod.name}"{same.format(bare(pod.address))}' for pod in pods)
    ask = f"kubectl --kubeconfig={ADMIN} --namespace={NAMESPACE}"
    columns = "--no-headers -o custom-columns=NAME:.metadata.name,ADDRESS:.status.podIP"
    named = " ".join(pod.name for pod in pods)
    return FaultCommand(
        intent.control_plane(),
        f"rows=$({ask} get pods {named} --ignore-not-found {columns}) || exit; "
        f"names=$(echo \"$rows\" | awk '{old} {{ print $1 }}'); "
        f'[ -z "$names" ] || {ask} delete pods $names --wait --timeout=50s',
    )


def on_each_pod(intent: Intent) -> Iterator[FaultSite]:
    """Each Windows node, with its probe pods."""
    return with_peers(windows_kubelets(intent), lambda node: (pod.name for pod in probes(node)))


def _without_endpoint(intent: Intent, node: str, peer: str) -> FaultChange:
    pod = next(pod for pod in probes(intent.machine(node)) if pod.name == peer)
    chosen = f"-not $_.IsRemoteEndpoint -and $_.IPAddress -eq '{bare(pod.address)}'"
    removed = f"Get-HnsEndpoint | Where-Object -FilterScript {{ {chosen} }} | Remove-HnsEndpoint"
    change = on_node(node, [removed], [])
    return FaultChange(change.do, (delete_pods(intent, node, peer),))


HNS_ENDPOINT_REMOVED = Fault(
    name="hns-endpoint-removed",
    title="HNS of a Windows node has lost the endpoint of a pod",
    needs="pods on a Windows node of a cluster",
    sites=on_each_pod,
    change=_without_endpoint,
    peer="pod",
    also=("endpoint-missing", "hns-endpoint-missing"),
    kind="pod-missing",
    windows=True,
)


def make_network_again(machine: MachineIntent, wrong: str = "") -> str:
    """The script by which flanneld makes its network again, if there is none.

    ``wrong``: a condition for one that is there, ``$_``, and is removed first.
    """
    assert machine.tunnel is not None, "a site has one"
    name = machine.tunnel.name
    named = f"Get-HnsNetwork | Where-Object -Property Name -EQ -Value {name}"
    exists = f"@({named}).Count"
    right = f"@({named} | Where-Object -FilterScript {{ -not ({wrong}) }}).Count"
    again = RECREATE_NETWORK.replace("{network}", name)
    waited = f"foreach ($second in 1..40) {{ if ({exists}) {{ break }}; Start-Sleep -Seconds 1 }}"
    missing = f"if (-not {exists}) {{ throw '{name}: not made within 40 s' }}"
    return f"if (-not {right if wrong else exists}) {{ {again}; {waited}; {missing} }}"


def _without_network(intent: Intent, node: str, _: str) -> FaultChange:
    """Remove flannel's network, with all endpoints on it; flanneld makes it again as it starts."""
    machine = intent.machine(node)
    assert machine.tunnel is not None, "a site has one"
    named = f"Get-HnsNetwork | Where-Object -Property Name -EQ -Value {machine.tunnel.name}"
    change = on_node(node, [f"{named} | Remove-HnsNetwork"], [make_network_again(machine)])
    return FaultChange(change.do, (*change.undo, delete_pods(intent, node)))


OF_FLANNEL = sites_on(
    windows_kubelets,
    lambda intent, machine: machine.tunnel and intent.topology in TOPOLOGIES,
)


HNS_NETWORK_REMOVED = Fault(
    name="hns-network-removed",
    title="HNS of a Windows node has lost flannel's overlay, and every pod's endpoint with it",
    needs="flannel's overlay, as a cluster's network",
    sites=OF_FLANNEL,
    change=_without_network,
    also=("network-missing", "hns-network-missing"),
    kind="tunnel-missing",
    windows=True,
)
