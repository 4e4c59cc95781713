"""How to see and mend on Windows what differs there. Pure."""

from __future__ import annotations

from dataclasses import replace

from lab.cluster.observers.difference import Difference
from lab.topology.intent import MachineIntent

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
