"""OVN and OVS on a Windows node as the guide of Kubernetes 1.9 has them. Pure, and unverified.

No step runs any of this: OVS for Windows is in no bundle, its project's Windows part is dead, and
the Docker network of the guide is an HNS network today. It is kept so that the topology's
document can be held against something.
"""

from __future__ import annotations

from ipaddress import IPv4Network

from lab.cluster.cluster import ClusterNode

UNVERIFIED = True
BRIDGE = "br-ex"
INTEGRATION = "br-int"
ADAPTER = "HNSTransparent"
EXTENSION = "Cloudbase Open vSwitch Extension"
NETWORK = "external"

Document = dict[str, object]


def network(node: ClusterNode) -> Document:
    """The transparent network on the node's card that OVS takes over, for HNS."""
    subnet = IPv4Network(str(node.pod_cidr))
    return {
        "Type": "Transparent",
        "Name": NETWORK,
        "Subnets": [{"AddressPrefix": str(subnet), "GatewayAddress": str(subnet[1])}],
    }


def commands(card: str) -> tuple[str, ...]:
    """After it, in PowerShell; ``card`` is the alias of the card for the tunnels."""
    internal = f"{ADAPTER} -- set interface {ADAPTER} type=internal"
    return (
        "$a = Get-NetAdapter | Where-Object -FilterScript { $_.Name -match 'HNSTransparent' }",
        f"Rename-NetAdapter -Name $a[0].Name -NewName '{ADAPTER}'",
        "Stop-Service -Name 'ovs-vswitchd' -Force",
        f"Disable-VMSwitchExtension -Name '{EXTENSION}'",
        f"ovs-vsctl.exe --no-wait del-br {BRIDGE}",
        f"ovs-vsctl.exe --no-wait --may-exist add-br {BRIDGE}",
        f"ovs-vsctl.exe --no-wait add-port {BRIDGE} {internal}",
        f"ovs-vsctl.exe --no-wait add-port {BRIDGE} '{card}'",
        f"Enable-VMSwitchExtension -Name '{EXTENSION}'",
        "Restart-Service -Name 'ovs-vswitchd'",
    )


def plugin(node: ClusterNode) -> Document:
    """Configuration of ``ovn_cni.exe``, with the guide's own texts for truth values."""
    return {
        "name": "net",
        "type": "ovn_cni.exe",
        "bridge": INTEGRATION,
        "isGateway": "true",
        "ipMasq": "false",
        "ipam": {"type": "host-local", "subnet": str(node.pod_cidr)},
    }
