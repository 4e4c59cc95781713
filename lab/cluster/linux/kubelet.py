"""The kubelet's units on a Linux node: one for kubeadm, one for Kubernetes by hand."""

from __future__ import annotations

from lab.cluster.linux import medium
from lab.cluster.linux.operations import Operations, WriteFile

UNIT = "kubelet.service"
CONFIG = "/var/lib/kubelet/config.yaml"


def for_kubeadm() -> Operations:
    """Unit and drop-in as Kubernetes' own packages have them; kubeadm starts it."""
    return (
        WriteFile(f"/etc/systemd/system/{UNIT}", _unit(f"{medium.PROGRAMS}/kubelet")),
        WriteFile(f"/etc/systemd/system/{UNIT}.d/10-kubeadm.conf", _DROP_IN),
    )


def by_hand(name: str, address: str) -> WriteFile:
    """The unit with all its arguments."""
    words = (
        f"{medium.PROGRAMS}/kubelet",
        f"--config={CONFIG}",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        f"--hostname-override={name}",
        f"--node-ip={address}",
    )
    return WriteFile(f"/etc/systemd/system/{UNIT}", _unit(" \\\n    ".join(words)))


def _unit(command: str) -> str:
    return f"""[Unit]
Description=kubelet: The Kubernetes Node Agent
Wants=network-online.target
After=network-online.target containerd.service
RequiresMountsFor={medium.PLACE}

[Service]
ExecStart={command}
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
"""


_DROP_IN = f"""[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config={CONFIG}"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart={medium.PROGRAMS}/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""  # noqa: E501  systemd's lines are as long as they are
