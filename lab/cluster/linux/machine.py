"""What every Linux machine of a cluster gets before Kubernetes: names, kernel, its own network."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from lab.cluster.cluster import Cluster
from lab.cluster.linux.operations import Operations, Run, SystemdUnit, WriteFile, inputs
from lab.cluster.underlay import underlay
from lab.topology.intent import Intent, MachineIntent

_MODULES = {
    "overlay": ("grep", "-qw", "overlay", "/proc/filesystems"),
    "br_netfilter": ("test", "-d", "/proc/sys/net/bridge"),
}
"""Each with the command that says whether the kernel has it, loaded or built in."""
_SETTINGS = {
    "net.ipv4.ip_forward": 1,
    "net.bridge.bridge-nf-call-iptables": 1,
    "net.bridge.bridge-nf-call-ip6tables": 1,
}
"""Each network namespace has its own."""
_KERNEL_SETTINGS = {
    "fs.inotify.max_user_instances": 1024,  # the default of 128 is too little for a few dozen pods
}
"""Those that a kernel has once."""
_NETWORK = "/usr/local/lib/hybridlab/network"
_NETWORK_UNIT = "hybridlab-network.service"


def prepared(cluster: Cluster, intent: Intent, machine: MachineIntent) -> Operations:
    """Names of all machines, modules and settings of the kernel, no swap, its cards."""
    return (
        WriteFile("/etc/hosts", "".join(_hosts(cluster, intent))),
        *(_with_kernel_of_host() if cluster.host.shared_kernel else _with_own_kernel()),
        *_resolver(machine),
        *_network(intent, machine.name),
    )


def _with_own_kernel() -> Operations:
    modules = WriteFile("/etc/modules-load.d/hybridlab.conf", "".join(f"{m}\n" for m in _MODULES))
    settings, applied = _settings(_SETTINGS | _KERNEL_SETTINGS)
    return (
        modules,
        settings,
        Run(
            ("modprobe", "-a", *_MODULES),
            unless=" && ".join(shlex.join(there) for there in _MODULES.values()),
        ),
        applied,
        Run(
            ("systemctl", "mask", "--now", "swap.target"),
            unless="[ -L /etc/systemd/system/swap.target ]",
        ),
        Run(("swapoff", "-a"), unless='[ "$(wc -l </proc/swaps)" -le 1 ]'),
    )


def _with_kernel_of_host() -> Operations:
    """Nothing that another container or the host would notice."""
    required = (
        Run(there, unless=shlex.join(there), hint=f"run 'modprobe {name}' on the host of the lab")
        for name, there in _MODULES.items()
    )
    return (*required, *_settings(_SETTINGS))


def _settings(values: Mapping[str, int]) -> tuple[WriteFile, Run]:
    """The file that sets them with every start, and what sets them now."""
    lines = "".join(f"{key} = {value}\n" for key, value in values.items())
    file = WriteFile("/etc/sysctl.d/90-hybridlab.conf", lines)
    as_set = " && ".join(f'[ "$(sysctl -n {key})" = {value} ]' for key, value in values.items())
    return file, Run(("sysctl", "-q", "-p", file.path), unless=as_set)


def _hosts(cluster: Cluster, intent: Intent) -> Iterator[str]:
    yield "127.0.0.1 localhost\n"
    yield "::1 localhost ip6-localhost ip6-loopback\n"
    for machine in intent.machines:
        yield f"{machine.address()} {machine.name} {machine.name}.{cluster.name}\n"


def _resolver(machine: MachineIntent) -> Operations:
    """Whom the machine itself asks for names, where the scenario has somebody who answers."""
    if machine.resolver is None:
        return ()
    lines = [f"nameserver {machine.resolver.server}"]
    lines += [f"search {' '.join(machine.resolver.search)}"] if machine.resolver.search else []
    lines.append(f"options ndots:{machine.resolver.ndots}")
    return (WriteFile("/etc/resolv.conf", "".join(f"{line}\n" for line in lines)),)


def _tunnel(machine: MachineIntent) -> Iterator[str]:
    """The tunnel that no network add-on makes, with its entries."""
    own = machine.tunnel
    if own is None:
        return
    yield f"ip link show dev {own.name} >/dev/null 2>&1 ||"
    yield (
        f"    ip link add {own.name} address {own.mac} mtu {own.mtu} type vxlan id {own.vni} "
        f"dstport {own.port} local {own.local} dev {own.device} nolearning"
    )
    yield f"ip link set {own.name} up"
    yield from (f"ip address replace {address} dev {own.name}" for address in own.addresses)
    for entry in machine.forwarding:
        yield f"bridge fdb replace {entry.mac} dev {entry.device} dst {entry.remote} self permanent"
    for one in machine.neighbours:
        yield f"ip neighbour replace {one.address} lladdr {one.mac} dev {one.device} nud permanent"


def _network(intent: Intent, name: str) -> Operations:
    """The machine's own network at every start, before the kubelet looks for its address.

    Whoever brings the lab up makes it too; this is for a machine that restarts by itself.
    """
    machine = underlay(intent).machine(name)
    lines = ["#!/bin/sh", "# The cards of the lab and their routes, as the lab made them."]
    for card in machine.interfaces:
        lines.append(f"ip link set {card.name} mtu {card.mtu} up")
        lines += [f"ip address replace {address} dev {card.name}" for address in card.addresses]
    lines += _tunnel(machine)
    names = {card.name for card in machine.interfaces}
    for route in machine.routes:
        if route.by is None and route.device in names:
            via = f" via {route.via}" if route.via else ""
            lines.append(f"ip route replace {route.destination}{via} dev {route.device}")
    script = WriteFile(_NETWORK, "\n".join(lines) + "\n", 0o755)
    unit = WriteFile(
        f"/etc/systemd/system/{_NETWORK_UNIT}",
        f"""[Unit]
Description=The lab's network on this machine
Before=network-online.target kubelet.service haproxy.service
After=network-pre.target systemd-udevd.service
Wants=network-pre.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={_NETWORK}

[Install]
WantedBy=multi-user.target
""",
    )
    return (script, unit, SystemdUnit(_NETWORK_UNIT, inputs((script, unit))))
