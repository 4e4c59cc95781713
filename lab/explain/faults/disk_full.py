"""A node's file system is full: the one for its pods' logs.

It is a small separate one, mounted over the directory: the node's own disk is not filled, because
that may be the disk of the machine that the lab runs on.
"""

from __future__ import annotations

from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import kubelets
from lab.topology.intent import Intent

_PLACE = "/var/log/pods"
_SOURCE = "pods-log"
_THERE = f"grep -q '^{_SOURCE} {_PLACE} ' /proc/mounts"
_BYTES = 65536


def _change(_: Intent, node: str, __: str) -> FaultChange:
    mount = f"mount -t tmpfs -o size={_BYTES},mode=755 {_SOURCE} {_PLACE}"
    return change(
        node,
        [f"{_THERE} || {mount}", f"head -c {_BYTES} /dev/zero > {_PLACE}/rotated"],
        [f"while {_THERE}; do umount -l {_PLACE}; done"],
    )


FAULT = Fault(
    name="disk-full",
    title="the file system of a node's pod logs is full: no container can be started there",
    needs="a kubelet, which the nodes of clusters have",
    sites=lambda intent: (FaultSite(one.name) for one in kubelets(intent)),
    change=_change,
    also=("no-space-left", "full-disk", "enospc"),
)
