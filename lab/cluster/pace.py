"""What of Kubernetes' own clocks is slower on emulated machines. Pure.

A processor that is emulated does a tenth of the work or less: programs that judge each other by
the clock then take the slow for dead, and what they do every second takes all there is. With
patience 1 nothing here is slower, and Kubernetes is as it comes.
"""

from __future__ import annotations

import json

_LEASE_SECONDS = 40
"""The kubelet's default of ``nodeLeaseDurationSeconds``; it renews four times in it."""
_GRACE_SECONDS = 50
"""The controller manager's default of ``node-monitor-grace-period`` since 1.32."""
_SLOWEST = 4
"""A dead node must be told in minutes, however slow the machines are."""
_ETCD_CHECK_SECONDS = 2
"""kube-apiserver's default for asking etcd whether it is well."""
_LOOK_SECONDS = 3
"""Three that fail in a row, and nothing more is sent there."""
_PROBE_SECONDS = 30
"""Between two probes of a static pod; kubeadm has 1 (readiness) and 10."""
_LIVENESS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
_READINESS = {"kube-apiserver": 20, "kube-scheduler": 36, "etcd": 36}
"""Static pods that have this probe, and since which minor for certain: a patch of one that
is not there makes a pod that is refused."""
_TIMEOUTS = {
    "controlPlaneComponentHealthCheck": 240,
    "kubeletHealthCheck": 240,
    "kubernetesAPICall": 60,
    "etcdAPICall": 120,
    "tlsBootstrap": 300,
    "discovery": 300,
}
"""kubeadm's own defaults of its timeouts, in seconds."""


def timeouts(patience: int) -> dict[str, str]:
    """How long kubeadm waits for what."""
    return {name: f"{seconds * patience}s" for name, seconds in _TIMEOUTS.items()}


def etcd(patience: int) -> dict[str, str]:
    """Clocks of etcd (100 ms, 1000 ms); it does not write down each request that was slow."""
    if patience == 1:
        return {}
    return {
        "heartbeat-interval": str(100 * patience),
        "election-timeout": str(1000 * patience),
        "log-level": "error",
    }


def api_server(patience: int) -> dict[str, str]:
    """How long etcd may take to say that it is well; nothing is spent on who is served first."""
    if patience == 1:
        return {}
    return {
        "enable-priority-and-fairness": "false",
        "etcd-healthcheck-timeout": f"{_ETCD_CHECK_SECONDS * patience}s",
        "etcd-readycheck-timeout": f"{_ETCD_CHECK_SECONDS * patience}s",
    }


def controller_manager(patience: int) -> dict[str, str]:
    """When a node that says nothing is believed dead."""
    slow = min(patience, _SLOWEST)
    return {"node-monitor-grace-period": f"{_GRACE_SECONDS * slow}s"} if slow > 1 else {}


def balancer(patience: int) -> int:
    """Seconds between HAProxy's looks at an API server, each of which may take as long."""
    return _LOOK_SECONDS * min(patience, _SLOWEST)


def kubelet(patience: int) -> dict[str, int]:
    """How often a node says that it lives."""
    slow = min(patience, _SLOWEST)
    return {"nodeLeaseDurationSeconds": _LEASE_SECONDS * slow} if slow > 1 else {}


def election(planes: int, patience: int) -> dict[str, str]:
    """One that is alone needs no election; slow ones must not lose it for being slow."""
    if planes == 1:
        return {"leader-elect": "false"}
    if patience == 1:
        return {}
    return {
        "leader-elect-lease-duration": f"{15 * patience}s",
        "leader-elect-renew-deadline": f"{10 * patience}s",
        "leader-elect-retry-period": f"{2 * patience}s",
    }


def patches(version: str, patience: int) -> dict[str, str]:
    """Patches by kubeadm of its static pods, content by file name.

    Its probes are a TLS handshake a second for each program, and etcd asked by most.
    """
    if patience == 1:
        return {}
    minor = int(version.split(".")[1])
    paced = {"periodSeconds": _PROBE_SECONDS, "timeoutSeconds": _PROBE_SECONDS}
    found = {}
    for name in _LIVENESS:
        container: dict[str, object] = {"name": name, "livenessProbe": paced}
        if minor >= _READINESS.get(name, minor + 1):
            container["readinessProbe"] = paced
        found[f"{name}+strategic.json"] = json.dumps({"spec": {"containers": [container]}}) + "\n"
    return found
