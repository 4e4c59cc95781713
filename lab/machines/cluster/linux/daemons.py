"""The daemons of an Intent on real machines, each a systemd unit with the Intent's files.

A daemon's directory, its files and its log are where the Intent has them, in ``/run``; the files
that they are copied from at every start are kept below :data:`KEPT`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest

from lab._errors import BrokenError, DeadlineError
from lab.machines.addons.addon import addons
from lab.machines.cluster.linux.operations import (
    ClusterSite,
    Operations,
    Run,
    SystemdUnit,
    WriteFile,
    inputs_digest,
    require_program,
    unit_file,
)
from lab.shells.parallel import on_each
from lab.topology import bird
from lab.topology.daemon import LOG, Daemon
from lab.topology.intent import Intent, MachineIntent

KEPT = "/etc/hybridlab/daemons"


def wanted_daemons(intent: Intent) -> Mapping[str, tuple[Daemon, ...]]:
    """The daemons that the lab itself starts, by machine; machines without any are left out.

    A cluster node's BGP speakers learn nothing before there are pods, so BIRD counts as ready once
    it is up. Calico and ovn-kubernetes bring the nodes' daemons themselves.
    """
    daemons_by_machine = {
        machine.name: tuple(_machine_daemons(intent, machine)) for machine in intent.machines
    }
    return {name: daemons for name, daemons in daemons_by_machine.items() if daemons}


def unit_name(daemon: Daemon) -> str:
    """Name of the daemon's unit."""
    return f"hybridlab-{daemon.name}.service"


def unfit_daemons(intent: Intent) -> str:
    """Why a daemon cannot run as a unit, as a clause; empty if all can."""
    unfit = [
        daemon.name
        for daemons in wanted_daemons(intent).values()
        for daemon in daemons
        if daemon.after
    ]
    if not unfit:
        return ""
    listed = ", ".join(dict.fromkeys(unfit))
    return f"{listed} need commands once they are ready, which only the embedded provider runs"


def required_packages(intent: Intent) -> Mapping[str, frozenset[str]]:
    """The Debian packages that each machine's image must have."""
    ours = wanted_daemons(intent)
    packages_by_machine = {
        machine.name: frozenset(daemon.package for daemon in ours.get(machine.name, ()))
        | _cluster_packages(intent, machine)
        for machine in intent.machines
    }
    return {name: packages for name, packages in packages_by_machine.items() if packages}


def _cluster_packages(intent: Intent, machine: MachineIntent) -> frozenset[str]:
    """Packages for the network add-on, and for a kube-proxy that runs as a unit, not a pod."""
    addon = addons().get(intent.topology)
    if intent.kubernetes is None or addon is None or machine.os != "linux":
        return frozenset()
    planes = (member.kubelet for member in intent.machines if member.kubelet)
    by_hand = any(plane.role == "control-plane" and plane.pod_cidr is None for plane in planes)
    unit = by_hand and machine.kubelet and machine.kubelet.pod_cidr
    iptables = unit and intent.kubernetes.proxy_mode == "iptables"
    return addon.packages(machine) | (frozenset({"iptables"}) if iptables else frozenset())


def daemon_operations(daemon: Daemon) -> Operations:
    """The daemon as a service that starts with the machine."""
    kept = f"{KEPT}/{daemon.name}"
    files = tuple(WriteFile(f"{kept}/{file.name}", file.text, file.mode) for file in daemon.files)
    room = f"/etc/tmpfiles.d/hybridlab-{daemon.name}.conf"
    written = _daemon_unit(daemon)
    return (
        require_program(daemon.command[0], daemon.package),
        *files,
        # Not the unit's RuntimeDirectory: systemd opens the log before it creates that.
        WriteFile(room, f"d {daemon.directory} 0755 root root -\n"),
        Run(
            ("systemd-tmpfiles", "--create", room),
            unless=f"test -d {shlex.quote(daemon.directory)}",
        ),
        written,
        SystemdUnit(unit_name(daemon), inputs_digest((*files, written))),
    )


def _machine_daemons(intent: Intent, machine: MachineIntent) -> Iterator[Daemon]:
    if intent.kubernetes is None:
        yield from machine.daemons
        return
    addon = addons().get(intent.topology)
    if machine.kubelet and addon and addon.routing_daemons:
        return
    for daemon in machine.daemons:
        yield replace(daemon, ready=bird.UP) if daemon.name == bird.NAME else daemon


def _daemon_unit(daemon: Daemon) -> WriteFile:
    log = f"{daemon.directory}/{LOG}"
    return unit_file(
        unit_name(daemon),
        f"The lab's {daemon.name}",
        ("After=hybridlab-network.service network-pre.target", "StartLimitIntervalSec=0"),
        (
            "Type=exec",
            f"WorkingDirectory={daemon.directory}",
            *(f"Environment={key}={value}" for key, value in daemon.environment),
            f"ExecStartPre=cp -a {KEPT}/{daemon.name}/. {daemon.directory}/",
            *(f"ExecStartPre={shlex.join(command)}" for command in daemon.before),
            f"ExecStart={shlex.join(daemon.command)}",
            f"StandardOutput=append:{log}",
            f"StandardError=append:{log}",
            "Restart=on-failure",
            "RestartSec=1",
        ),
    )


_LAST_LINES = 5
_RUNS = "active"
"""systemd's states of a running unit; one that dies again and again is "activating"."""


def daemon_ailments(intent: Intent, site: ClusterSite) -> Mapping[str, str]:
    """By machine, the problem of its first daemon that does not run.

    Raises LabError when a machine cannot be reached.
    """
    wanted = wanted_daemons(intent)
    ailments = on_each(wanted, lambda name: _ailment(name, wanted[name], site))
    return {name: ailments[name] for name in wanted if ailments[name]}


def _ailment(name: str, some: tuple[Daemon, ...], site: ClusterSite) -> str:
    """The problem of the first daemon that does not run; empty if all do."""
    states = site.query(name, ("systemctl", "is-active", *map(unit_name, some))).stdout.split()
    for daemon, state in zip_longest(some, states[: len(some)], fillvalue="unknown"):
        assert isinstance(daemon, Daemon)
        if state != _RUNS:
            return f"{daemon.name} is {state}: {_read_log(name, daemon, site)}"
    return ""


def _read_log(name: str, daemon: Daemon, site: ClusterSite) -> str:
    """The last lines of a daemon's log, or why there are none."""
    completed = site.query(name, ("cat", f"{daemon.directory}/{LOG}"))
    if completed.code:
        return f"its log cannot be read: {completed.stderr.strip() or f'exit {completed.code}'}"
    return _last_lines(completed.stdout) or "its log is empty"


def _last_lines(log: str) -> str:
    """The last lines of a log, joined to one."""
    return " / ".join(line.strip() for line in log.strip().splitlines()[-_LAST_LINES:])


_LOOK_SECONDS = 0.5


def start_daemons(intent: Intent, site: ClusterSite) -> None:
    """Start every daemon that the lab runs itself; those that run properly are left alone.

    Raises BrokenError with its last output when a daemon cannot be started or has ended;
    DeadlineError with its last state when one is not ready in time.
    """
    wanted = wanted_daemons(intent)

    def begin(name: str) -> None:
        for daemon in now[name]:
            site.run(name, daemon_operations(daemon))

    def wait(name: str) -> None:
        for daemon in now[name]:
            _await_ready(name, daemon, site)

    for stage in sorted({daemon.stage for some in wanted.values() for daemon in some}):
        now = {
            name: chosen
            for name, some in wanted.items()
            if (chosen := tuple(daemon for daemon in some if daemon.stage == stage))
        }
        on_each(now, begin)
        on_each(now, wait)
        for name, some in now.items():
            site.say(f"{name}: {', '.join(daemon.name for daemon in some)} ready")


def _await_ready(name: str, daemon: Daemon, site: ClusterSite) -> None:
    ready, log = daemon.ready, ("cat", f"{daemon.directory}/{LOG}")
    action = f"waiting for {daemon.name} on '{name}' to be ready ('{ready.pattern}')"
    deadline = site.deadline(ready.seconds)
    for _ in deadline.tries(_LOOK_SECONDS):
        if site.query(name, ("systemctl", "is-failed", "--quiet", unit_name(daemon))).code == 0:
            raise BrokenError(action, f"it has ended: {_read_log(name, daemon, site)}")
        completed = site.query(name, ready.command or log)
        if completed.code == 0 and re.search(ready.pattern, completed.stdout, re.MULTILINE):
            return
        last = _last_lines(completed.stdout) or completed.stderr.strip() or "no output"
    raise DeadlineError(
        action,
        f"not done within {deadline.seconds:g} s; last seen: {last}",
        f"'lab exec {name} cat {daemon.directory}/{LOG}' shows its log",
    )
