r"""Paths on a Windows node, the same as in public recipes, so that people find things.

Programs are in ``C:\k`` (every recipe since microsoft/SDN); the rest is where kubeadm and the
plugins look on Linux, on drive C.
"""

from __future__ import annotations

PROGRAMS = "C:\\k"
CONTAINERD = "C:\\Program Files\\containerd"
"""The one path with a space; containerd registers its service itself."""
CNI_BIN = "C:\\opt\\cni\\bin"
CNI_CONF = "C:\\etc\\cni\\net.d"
CNI_STATE = "C:\\var\\lib\\cni\\networks"
"""Directory of host-local, from the plugins' default ``/var/lib/cni/networks``."""
KUBERNETES = "C:\\etc\\kubernetes"
PKI = f"{KUBERNETES}\\pki"
MANIFESTS = f"{KUBERNETES}\\manifests"
"""Directory of static pods, which is empty: without it the kubelet logs an error every 20 s."""
KUBELET = "C:\\var\\lib\\kubelet"
KUBELET_PKI = f"{KUBELET}{PKI.removeprefix('C:')}"
"""Where a kubelet looks for ``/etc/kubernetes/pki``, which is not an absolute path on Windows."""
KUBELET_CONF = f"{KUBERNETES}\\kubelet.conf"
BOOTSTRAP_CONF = f"{KUBERNETES}\\bootstrap-kubelet.conf"
KUBELET_CONFIG = f"{KUBELET}\\config.yaml"
PATCHES = f"{KUBELET}\\patches"
"""Directory of kubeadm's patches, by their targets' names."""
KUBELET_PATCH = f"{PATCHES}\\kubeletconfiguration+merge.json"
KUBELET_PAIR = f"{KUBELET}\\pki\\kubelet-by-hand"
"""Certificate and key (``.crt``, ``.key``) with which a kubelet without kubeadm serves."""
KUBEADM_FLAGS = f"{KUBELET}\\kubeadm-flags.env"
PROXY_CONF = f"{PROGRAMS}\\kube-proxy.conf"
FLANNEL_CONF = f"{PROGRAMS}\\flanneld.conf"
FLANNEL_PROGRAM = f"{PROGRAMS}\\flanneld.json"
KEEPER = "C:\\hybridlab\\node-keep.ps1"
NET_CONF = "C:\\etc\\kube-flannel\\net-conf.json"
SUBNET_ENV = "C:\\run\\flannel\\subnet.env"
SOURCE_VIP = "C:\\sourcevip\\sourceVip.json"
SOURCE_VIP_REQUEST = "C:\\sourcevip\\sourceVipRequest.json"
LOGS = "C:\\var\\log"
PIPE = "npipe:////./pipe/containerd-containerd"


def log_file(service: str) -> str:
    """The log file of a service."""
    return f"{LOGS}\\{service}\\{service}.log"
