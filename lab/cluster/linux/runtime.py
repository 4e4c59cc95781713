"""containerd on a Linux node, from the bundle, with nothing ever pulled."""

from __future__ import annotations

import json

from lab.cluster.bundle.manifest import Manifest
from lab.cluster.host import HostTraits
from lab.cluster.linux import medium
from lab.cluster.linux.operations import Operation, Operations, SystemdUnit, WriteFile, inputs

SOCKET = "unix:///run/containerd/containerd.sock"
PAUSE = "registry.k8s.io/pause"
UNIT = "containerd.service"
PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")
_CRICTL = "crictl"
"""For people; neither kubeadm nor the kubelet has needed it since 1.31."""


def running(manifest: Manifest, host: HostTraits) -> Operations:
    """The container runtime with its configuration, and crictl told of it."""
    sandbox = manifest.image(PAUSE).name
    config = WriteFile("/etc/containerd/config.toml", configuration(sandbox, host))
    unit = WriteFile(f"/etc/systemd/system/{UNIT}", _UNIT)
    there = {program.name for program in manifest.programs if program.os == "linux"}
    links = tuple(medium.programs((*PROGRAMS, *({_CRICTL} & there))))
    endpoints = {"runtime-endpoint": SOCKET, "image-endpoint": SOCKET, "timeout": 60}
    files: tuple[Operation, ...] = (
        *links,
        *medium.cni_programs(manifest),
        WriteFile("/etc/crictl.yaml", json.dumps(endpoints) + "\n"),
        config,
        unit,
    )
    return (*files, SystemdUnit(UNIT, inputs((*links, config, unit))))


def configuration(sandbox: str, host: HostTraits) -> str:
    """Configuration of containerd 2.x (version 3).

    The directories of CNI plugins and their configuration are containerd's defaults,
    ``/opt/cni/bin`` and ``/etc/cni/net.d``: their keys differ between 2.0 and 2.1. Where no
    process may lower its OOM score, runc starts no pod unless containerd asks for none. Privileged
    containers get no devices where the kernel, and so the devices, are the host's.
    """
    scores = "" if host.can_lower_oom_score else _SCORES_KEPT
    return f"""version = 3

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{sandbox}'

[plugins.'io.containerd.cri.v1.images'.registry]
config_path = '/etc/containerd/certs.d'
{scores}
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = 'runc'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
{_NO_DEVICES if host.shared_kernel else ""}
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = '{medium.PROGRAMS}/runc'
SystemdCgroup = true
"""


_SCORES_KEPT = """
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
"""
_NO_DEVICES = """privileged_without_host_devices = true
"""
_UNIT = f"""[Unit]
Description=containerd
After=network.target local-fs.target dbus.service
RequiresMountsFor={medium.PLACE}

[Service]
ExecStart={medium.PROGRAMS}/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
RestartSec=5
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
OOMScoreAdjust=-999

[Install]
WantedBy=multi-user.target
"""
"""As containerd's own containerd.service has it."""
