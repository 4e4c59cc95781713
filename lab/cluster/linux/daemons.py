"""The daemons of an Intent on real machines: a unit of systemd each, with the same files. Pure.

A daemon's directory, its files and its log are where the Intent has them, in ``/run``; what they
are made from at every start is kept below :data:`KEPT`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from lab.cluster.addons.registry import addons
from lab.cluster.linux.operations import Operations, Run, SystemdUnit, WriteFile, inputs
from lab.topology import bird
from lab.topology.daemon import LOG, Daemon
from lab.topology.intent import Intent, MachineIntent

KEPT = "/etc/hybridlab/daemons"


def wanted(intent: Intent) -> Mapping[str, tuple[Daemon, ...]]:
    """What the lab starts itself, by machine; machines without any are left out.

    In a cluster a node's speakers of BGP learn nothing before there are pods, so that BIRD is
    ready once it is up; where the pod network is Calico's or ovn-kubernetes', its nodes bring
    their own.
    """
    found = {machine.name: tuple(_of(intent, machine)) for machine in intent.machines}
    return {name: daemons for name, daemons in found.items() if daemons}


def unit(daemon: Daemon) -> str:
    """The name of its unit."""
    return f"hybridlab-{daemon.name}.service"


def unfit(intent: Intent) -> str:
    """Why one of them cannot be run as a unit, a clause; empty where all can."""
    asked = [one.name for daemons in wanted(intent).values() for one in daemons if one.after]
    if not asked:
        return ""
    listed = ", ".join(dict.fromkeys(asked))
    return (
        f"{listed} must be given orders once they are ready, which only the embedded provider does"
    )


def packages(intent: Intent) -> Mapping[str, frozenset[str]]:
    """By machine: the Debian packages that its image must have."""
    ours = wanted(intent)
    found = {
        one.name: frozenset(daemon.package for daemon in ours.get(one.name, ()))
        | _of_cluster(intent, one)
        for one in intent.machines
    }
    return {name: packages for name, packages in found.items() if packages}


def _of_cluster(intent: Intent, machine: MachineIntent) -> frozenset[str]:
    """Those of the network add-on; and what kube-proxy runs, where it is no pod but a unit."""
    addon = addons().get(intent.topology)
    if intent.kubernetes is None or addon is None or machine.os != "linux":
        return frozenset()
    planes = (one.kubelet for one in intent.machines if one.kubelet)
    by_hand = any(one.role == "control-plane" and one.pod_cidr is None for one in planes)
    unit = by_hand and machine.kubelet and machine.kubelet.pod_cidr
    iptables = unit and intent.kubernetes.proxy_mode == "iptables"
    return addon.packages(machine) | (frozenset({"iptables"}) if iptables else frozenset())


def started(daemon: Daemon) -> Operations:
    """The daemon as a service that starts with the machine."""
    kept = f"{KEPT}/{daemon.name}"
    files = tuple(WriteFile(f"{kept}/{one.name}", one.text, one.mode) for one in daemon.files)
    room = f"/etc/tmpfiles.d/hybridlab-{daemon.name}.conf"
    written = WriteFile(f"/etc/systemd/system/{unit(daemon)}", _unit(daemon))
    lacking = f"command -v {shlex.quote(daemon.command[0])} >/dev/null"
    there = Run(
        (
            "sh",
            "-c",
            f"{lacking} || {{ echo '{daemon.command[0]} is not installed' >&2; exit 1; }}",
        ),
        unless=lacking,
        hint=f"build the machine's image anew, with package '{daemon.package}' in its recipe",
    )
    return (
        there,
        *files,
        # Not the unit's RuntimeDirectory: systemd opens the log before it makes that.
        WriteFile(room, f"d {daemon.directory} 0755 root root -\n"),
        Run(
            ("systemd-tmpfiles", "--create", room),
            unless=f"test -d {shlex.quote(daemon.directory)}",
        ),
        written,
        SystemdUnit(unit(daemon), inputs((*files, written))),
    )


def _of(intent: Intent, machine: MachineIntent) -> Iterator[Daemon]:
    if intent.kubernetes is None:
        yield from machine.daemons
        return
    addon = addons().get(intent.topology)
    if machine.kubelet and addon and addon.routing_daemons:
        return
    for one in machine.daemons:
        yield replace(one, ready=bird.UP) if one.name == bird.NAME else one


def _unit(daemon: Daemon) -> str:
    before = "".join(f"ExecStartPre={shlex.join(command)}\n" for command in daemon.before)
    named = "".join(f"Environment={key}={value}\n" for key, value in daemon.environment)
    log = f"{daemon.directory}/{LOG}"
    return f"""[Unit]
Description=The lab's {daemon.name}
After=hybridlab-network.service network-pre.target
StartLimitIntervalSec=0

[Service]
Type=exec
WorkingDirectory={daemon.directory}
{named}ExecStartPre=cp -a {KEPT}/{daemon.name}/. {daemon.directory}/
{before}ExecStart={shlex.join(daemon.command)}
StandardOutput=append:{log}
StandardError=append:{log}
Restart=on-failure
RestartSec=1

[Install]
WantedBy=multi-user.target
"""
