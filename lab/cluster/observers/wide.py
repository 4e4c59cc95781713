"""What ``kubectl get -A -o wide`` shows, from the API's own objects. Pure.

No Secret is asked for, and no environment of a container is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Object = Mapping[str, Any]
Row = tuple[str, ...]

PATHS: Mapping[str, str] = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "services": "/api/v1/services",
    "endpointslices": "/apis/discovery.k8s.io/v1/endpointslices",
    "daemonsets": "/apis/apps/v1/daemonsets",
    "deployments": "/apis/apps/v1/deployments",
    "leases": "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
    "events": "/api/v1/events",
}
"""What is asked for, and where."""
_ROLE = "node-role.kubernetes.io/"
_NONE = "-"


def table(kind: str, items: Iterable[Object]) -> str:
    """The objects of a kind as a table, one a line; ``kind`` is a key of :data:`PATHS`."""
    headings, row = _KINDS[kind]
    rows = [row(item) for item in items]
    ordered = rows if kind == "events" else sorted(rows)
    if kind == "events":
        ordered = sorted(rows, key=lambda one: one[0])
    return _aligned((headings, *ordered))


def _aligned(rows: Sequence[Row]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "".join(f"{line}\n" for line in lines)


def _name(item: Object) -> tuple[str, str]:
    data = item.get("metadata", {})
    return str(data.get("namespace", "")), str(data.get("name", ""))


def _node(item: Object) -> Row:
    status, spec = item.get("status", {}), item.get("spec", {})
    info = status.get("nodeInfo", {})
    labels = item.get("metadata", {}).get("labels") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    ready = conditions.get("Ready", {})
    said = "Ready" if ready.get("status") == "True" else f"NotReady: {ready.get('reason', _NONE)}"
    addresses = [
        one["address"] for one in status.get("addresses") or () if one["type"] == "InternalIP"
    ]
    return (
        _name(item)[1],
        said + (", cordoned" if spec.get("unschedulable") else ""),
        ",".join(key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)) or _NONE,
        str(info.get("kubeletVersion", _NONE)),
        ",".join(addresses) or _NONE,
        str(spec.get("podCIDR", _NONE)),
        str(info.get("osImage", _NONE)),
        str(info.get("kernelVersion", _NONE)),
        str(info.get("containerRuntimeVersion", _NONE)),
    )


def _pod(item: Object) -> Row:
    status, spec = item.get("status", {}), item.get("spec", {})
    containers = status.get("containerStatuses") or ()
    ready = sum(bool(one.get("ready")) for one in containers)
    waiting = [
        str(one["state"]["waiting"].get("reason", ""))
        for one in containers
        if "waiting" in (one.get("state") or {})
    ]
    return (
        *_name(item),
        f"{ready}/{len(spec.get('containers') or ())}",
        ",".join(filter(None, waiting)) or str(status.get("reason") or status.get("phase", _NONE)),
        str(sum(int(one.get("restartCount", 0)) for one in containers)),
        str(status.get("podIP", _NONE)),
        str(spec.get("nodeName", _NONE)),
    )


def _service(item: Object) -> Row:
    spec = item.get("spec", {})
    ports = (
        f"{one['port']}" + (f":{one['nodePort']}" if one.get("nodePort") else "")
        + f"/{one.get('protocol', 'TCP')}"
        for one in spec.get("ports") or ()
    )  # fmt: skip
    return (
        *_name(item),
        str(spec.get("type", _NONE)),
        str(spec.get("clusterIP", _NONE)),
        ",".join(ports) or _NONE,
        _pairs(spec.get("selector")),
    )


def _slice(item: Object) -> Row:
    labels = item.get("metadata", {}).get("labels") or {}
    ends = (
        ",".join(one.get("addresses") or ())
        + ("" if (one.get("conditions") or {}).get("ready", True) else " (not ready)")
        for one in item.get("endpoints") or ()
    )
    return (
        *_name(item),
        str(labels.get("kubernetes.io/service-name", _NONE)),
        ",".join(str(one.get("port")) for one in item.get("ports") or ()) or _NONE,
        ", ".join(ends) or _NONE,
    )


def _daemons(item: Object) -> Row:
    status = item.get("status", {})
    template = item.get("spec", {}).get("template", {}).get("spec", {})
    return (
        *_name(item),
        str(status.get("desiredNumberScheduled", 0)),
        str(status.get("numberReady", 0)),
        _pairs(template.get("nodeSelector")),
    )


def _deployment(item: Object) -> Row:
    wanted = item.get("spec", {}).get("replicas", 1)
    return (*_name(item), f"{item.get('status', {}).get('readyReplicas', 0)}/{wanted}")


def _lease(item: Object) -> Row:
    spec = item.get("spec", {})
    return (_name(item)[1], str(spec.get("holderIdentity", _NONE)), str(spec.get("renewTime")))


def _event(item: Object) -> Row:
    about = item.get("involvedObject", {})
    moment = (
        item.get("lastTimestamp")
        or item.get("eventTime")
        or item["metadata"].get("creationTimestamp", _NONE)
    )
    return (
        str(moment),
        str(item.get("type", _NONE)),
        str(item.get("reason", _NONE)),
        str(item.get("count") or 1),
        f"{about.get('kind', '')} {about.get('namespace', '')}/{about.get('name', '')}",
        " ".join(str(item.get("message", "")).split()),
    )


def _pairs(found: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((found or {}).items())) or _NONE


_NAMED = ("NAMESPACE", "NAME")
_KINDS: Mapping[str, tuple[Row, Callable[[Object], Row]]] = {
    "nodes": (
        (
            *("NAME", "STATUS", "ROLES", "VERSION", "INTERNAL-IP", "POD-CIDR"),
            *("OS-IMAGE", "KERNEL", "RUNTIME"),
        ),
        _node,
    ),
    "pods": ((*_NAMED, "READY", "STATUS", "RESTARTS", "IP", "NODE"), _pod),
    "services": ((*_NAMED, "TYPE", "CLUSTER-IP", "PORTS", "SELECTOR"), _service),
    "endpointslices": ((*_NAMED, "SERVICE", "PORTS", "ENDPOINTS"), _slice),
    "daemonsets": ((*_NAMED, "DESIRED", "READY", "NODE-SELECTOR"), _daemons),
    "deployments": ((*_NAMED, "READY"), _deployment),
    "leases": (("NAME", "HOLDER", "RENEWED"), _lease),
    "events": (("LAST", "TYPE", "REASON", "COUNT", "OBJECT", "MESSAGE"), _event),
}
