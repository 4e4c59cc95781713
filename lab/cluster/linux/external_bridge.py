"""The machine's own Open vSwitch with the card of the node segment in a bridge. Pure.

ovn-kubernetes takes over a bridge that is there, and makes the rest of the switch itself. The
bridge has the card's addresses and MAC; it is made again at every start, before the kubelet.
"""

from __future__ import annotations

from lab.cluster.linux.operations import Operations, Run, Service, WriteFile, inputs
from lab.cluster.ovn_kubernetes import PACKAGE
from lab.topology.intent import MachineIntent

_SCRIPT = "/usr/local/lib/hybridlab/external-bridge"
_UNIT = "hybridlab-external-bridge.service"


def made(machine: MachineIntent) -> Operations:
    """Open vSwitch running, and every card that the Intent has in a bridge put into one."""
    there = "command -v ovs-vsctl >/dev/null"
    script = WriteFile(_SCRIPT, "".join(f"{line}\n" for line in _lines(machine)), 0o755)
    unit = WriteFile(f"/etc/systemd/system/{_UNIT}", _UNIT_TEXT)
    return (
        Run(
            ("sh", "-c", f"{there} || {{ echo 'ovs-vsctl is not installed' >&2; exit 1; }}"),
            unless=there,
            cure=f"build the machine's image anew, with package '{PACKAGE}' in its recipe",
        ),
        Service("openvswitch-switch.service"),
        script,
        unit,
        Service(_UNIT, inputs((script, unit))),
    )


def _lines(machine: MachineIntent) -> tuple[str, ...]:
    lines = ["#!/bin/sh", "# The node segment's card becomes a port of a bridge.", "set -eu"]
    for card in machine.interfaces:
        if card.card is None:
            continue
        settings = f"fail_mode=standalone 'other_config:hwaddr=\"{card.mac}\"'"
        clauses = (
            "ovs-vsctl --timeout=60",
            f"--may-exist add-br {card.name}",
            f"set Bridge {card.name} {settings}",
            f"--may-exist add-port {card.name} {card.card}",
        )
        lines += [
            " -- ".join(clauses),
            f"ip link set {card.card} mtu {card.mtu} up",
            f"ip address flush dev {card.card} scope global",
            f"ip link set {card.name} mtu {card.mtu} up",
        ]
        lines += [f"ip address replace {address} dev {card.name}" for address in card.addresses]
        lines += [
            f"ip route replace {route.destination} via {route.via} dev {card.name}"
            for route in machine.routes
            if route.device == card.name and route.via
        ]
    return tuple(lines)


_UNIT_TEXT = f"""[Unit]
Description=The card of the lab's node segment in a bridge of Open vSwitch
Requires=openvswitch-switch.service
After=openvswitch-switch.service hybridlab-network.service
Before=kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={_SCRIPT}

[Install]
WantedBy=multi-user.target
"""
