"""A node's flanneld is killed and cannot restart, because its image is gone.

This happens if a full disk makes the kubelet remove images and none can be pulled.
"""

from __future__ import annotations

from lab.cluster.addons.flannel import IMAGE, TOPOLOGIES
from lab.explain.faults.fault import Fault, FaultChange, FaultSite, change
from lab.explain.faults.parts import kubelets
from lab.topology.intent import Intent

_KEPT = "kept.invalid/"
_IMAGES = "ctr --namespace k8s.io images"
_SECONDS = 40


def _change(_: Intent, node: str, __: str) -> FaultChange:
    each = "for one in $({images} ls -q 2> /dev/null | grep '^{of}'); do {does}; done"
    renamed = _IMAGES + " tag --force {old} {new} > /dev/null && " + _IMAGES + " rm {old}"
    away = renamed.format(old='"$one"', new=f'"{_KEPT}$one"')
    back = renamed.format(old='"$one"', new=f'"${{one#{_KEPT}}}"')
    runs = "pgrep -x flanneld > /dev/null"
    started = (
        f"systemctl restart kubelet; for second in $(seq {_SECONDS}); do ! {runs} || break; "
        f"sleep 1; done; {runs}"
    )  # makes the kubelet look for the image at once instead of in a minute or two
    return change(
        node,
        [each.format(images=_IMAGES, of=f"{IMAGE}:", does=away), "pkill -KILL -x flanneld || true"],
        [
            each.format(images=_IMAGES, of=f"{_KEPT}{IMAGE}:", does=back),
            f"{runs} || {{ {started}; }}",
        ],
    )


FAULT = Fault(
    name="flanneld-killed",
    title="flanneld of a node was killed and its image is gone: it does not start again",
    needs="flannel, as a cluster's network",
    sites=lambda intent: (
        FaultSite(one.name) for one in kubelets(intent) if intent.topology in TOPOLOGIES
    ),
    change=_change,
    also=("flannel-down", "flanneld-down", "flannel-killed"),
)
