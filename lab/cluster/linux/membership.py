"""How a Linux machine becomes a node by kubeadm, and ceases to be one. Pure."""

from __future__ import annotations

from lab.cluster import kubeadm, pace, proxy
from lab.cluster.cluster import Cluster
from lab.cluster.documents import Document, to_yaml
from lab.cluster.footprint import footprint
from lab.cluster.linux.operations import Operations, Remove, Run, WriteFile
from lab.cluster.linux.runtime import SOCKET

MARK = "/var/lib/hybridlab/member"
"""What the machine is a member of: written when it is one, and not before."""
_CONFIG = "/run/hybridlab/kubeadm.yaml"
"""Holds a token, and so is gone with a restart at the latest."""
INIT_SECONDS = 600.0
JOIN_SECONDS = 400.0
RESET_SECONDS = 240.0
UPLOAD_SECONDS = 120.0
_STARTING = ("preflight", "certs", "kubeconfig", "etcd", "control-plane", "kubelet-start")
"""Phases of ``kubeadm init`` up to the start of the static pods."""
_FINISHING = (
    "wait-control-plane",
    "upload-config",
    "upload-certs",
    "mark-control-plane",
    "bootstrap-token",
    "kubelet-finalize",
    "addon",
    "show-join-command",
)
"""The others (``cmd/kubeadm/app/cmd/init.go``, 1.36)."""
LEFT = (
    "[ -e /etc/kubernetes/kubelet.conf ] || [ -e /etc/kubernetes/manifests/kube-apiserver.yaml ] "
    f"|| [ -e /etc/kubernetes/pki ] || [ -e /var/lib/etcd/member ] || [ -e {MARK} ]"
)
"""A shell's line: whether anything of an earlier membership is there."""


def started(cluster: Cluster, documents: tuple[Document, ...], patience: int) -> Operations:
    """The first control plane's programs started.

    kubeadm alone would then count the API server's start among the time that one call may take
    (``kubernetesAPICall``), and give up on a slow machine; so that start is waited for by us.
    """
    return (
        *_patches(cluster, patience),
        WriteFile(_CONFIG, to_yaml(documents), 0o600),
        _kubeadm("init", INIT_SECONDS, (*_FINISHING, *_left_out(documents))),
    )


def initialised(documents: tuple[Document, ...], mark: str) -> Operations:
    """The first control plane made, of one that is started and answers."""
    return (
        _kubeadm("init", INIT_SECONDS, (*_STARTING, *_left_out(documents))),
        Remove((_CONFIG,)),
        WriteFile(MARK, f"{mark}\n"),
    )


def joined(
    cluster: Cluster, documents: tuple[Document, ...], mark: str, patience: int
) -> Operations:
    """A node or a further control plane joined."""
    return (
        *_patches(cluster, patience),
        WriteFile(_CONFIG, to_yaml(documents), 0o600, secret=True),
        _kubeadm("join", JOIN_SECONDS),
        Remove((_CONFIG,)),
        WriteFile(MARK, f"{mark}\n"),
    )


def keys_uploaded(documents: tuple[Document, ...]) -> Operations:
    """The control plane's keys in the cluster, for further ones, under the documents' key."""
    upload = ("kubeadm", "init", "phase", "upload-certs", "--upload-certs", "--config", _CONFIG)
    return (
        WriteFile(_CONFIG, to_yaml(documents), 0o600, secret=True),
        Run(upload, seconds=UPLOAD_SECONDS),
        Remove((_CONFIG,)),
    )


def left(cluster: Cluster) -> Operations:
    """Everything of a membership taken away: kubeadm's, kube-proxy's and the network add-on's.

    The machine stays prepared: programs, images and the lab's own CNI configuration are as they
    were.
    """
    beside = footprint(cluster.topology)
    of_proxy = proxy.TABLES[cluster.proxy_mode]
    tables = [f"{family}:{name}" for family in ("ip", "ip6") for name in of_proxy]
    named = "|".join((*tables, *(f"*:{name}" for name in beside.tables)))
    lines = [f"cd /sys/class/net; for one in {' '.join(beside.devices)}; do"]
    lines += ['  if [ -e "$one" ]; then ip link delete "$one"; fi', "done"]
    lines += ["nft list tables | while read -r _ family name; do"]
    lines += [
        f'  case "$family:$name" in {named}) nft delete table "$family" "$name";; esac',
        "done",
    ]
    lines += [f"ovs-vsctl --timeout=10 --if-exists del-br {one}" for one in beside.switches]
    lines += [f"ip route flush root {cluster.pod_cidr}"]
    return (
        Run(("kubeadm", "reset", "--force", "--cri-socket", SOCKET), seconds=RESET_SECONDS),
        Run(("sh", "-c", "\n".join(lines))),
        Remove(
            (
                "/etc/kubernetes",
                "/var/lib/etcd",
                "/var/lib/cni",
                *beside.paths,
                MARK,
            )
        ),
    )


def _patches(cluster: Cluster, patience: int) -> Operations:
    return tuple(
        WriteFile(f"{kubeadm.PATCHES}/{name}", content)
        for name, content in pace.patches(cluster.version, patience).items()
    )


def _left_out(documents: tuple[Document, ...]) -> tuple[str, ...]:
    """What the configuration skips; the option takes its place."""
    return tuple(documents[0]["skipPhases"])


def _kubeadm(verb: str, seconds: float, skipped: tuple[str, ...] = ()) -> Run:
    skip = (f"--skip-phases={','.join(skipped)}",) if skipped else ()
    return Run(
        ("kubeadm", verb, "--config", _CONFIG, *skip),
        seconds=seconds,
        hint="run 'lab up' again: what is half done is taken away first",
    )
