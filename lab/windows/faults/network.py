"""Faults of a Windows node's network outside HNS: its and its firewall."""

from __future__ import annotations

from lab.explain.faults.registry import Fault, FaultChange, sites_on
from lab.topology.intent import Intent
from lab.windows.faults import ON_EACH, on_node, windows_kubelets


def _disable_card(intent: Intent, node: str, _: str) -> FaultChange:
    """By its MAC: HNS may have put a virtual adapter with the node's address over it."""
    mac = intent.machine(node).card.mac.replace(":", "-").upper()
    named = f"Get-NetAdapter | Where-Object -Property MacAddress -EQ -Value {mac}"
    return on_node(
        node,
        [f"{named} | Disable-NetAdapter -Confirm:$false"],
        [f"{named} | Enable-NetAdapter"],
    )


NODE_LINK_DOWN = Fault(
    name="node-link-down",
    title="a Windows node's adapter on the nodes' network is disabled",
    needs="a Windows node of a cluster",
    sites=ON_EACH,
    change=_disable_card,
    windows=True,
)


_RULE = "hybridlab-blocked-tunnel"


def _block_tunnel(intent: Intent, node: str, _: str) -> FaultChange:
    tunnel = intent.machine(node).tunnel
    assert tunnel is not None, "a site has one"
    removed = (
        f"Get-NetFirewallRule -Name {_RULE} -ErrorAction SilentlyContinue | Remove-NetFirewallRule"
    )
    blocked = (
        f"$null = New-NetFirewallRule -Name {_RULE} -DisplayName {_RULE} -Direction Inbound "
        f"-Action Block -Protocol UDP -LocalPort {tunnel.port}"
    )
    return on_node(node, [f"{removed}; {blocked}"], [removed])


TUNNEL_UDP_DROPPED = Fault(
    name="tunnel-udp-dropped",
    title="a Windows node's firewall blocks the tunnel's UDP packets",
    needs="a tunnel",
    sites=sites_on(windows_kubelets, lambda _, machine: machine.tunnel),
    change=_block_tunnel,
    windows=True,
)
