"""A cluster's state for the evidence archive: nodes, logs, and tables of API objects.

The writer of the archive removes secrets from every piece. Nothing here queries Secrets or shows
the environment of a container.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from lab._deadline import Deadline
from lab._errors import DeadlineError, LabError
from lab._log import table_lines
from lab.facts import linux
from lab.facts.node import NodeFacts
from lab.facts.questions import CutOffError
from lab.machines.system import EvidencePiece, System, UnansweredError
from lab.shells.shell import Completed, Shell

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
"""API path of each kind."""
_ROLE = "node-role.kubernetes.io/"
_NONE = "-"


def table(kind: str, items: Iterable[Object]) -> str:
    """The objects of a kind as a table, one per line; ``kind`` is a key of :data:`PATHS`."""
    headings, row = _KINDS[kind]
    rows = [row(item) for item in items]
    ordered = sorted(rows, key=(lambda cells: cells[0]) if kind == "events" else None)
    return "".join(f"{line}\n" for line in table_lines((headings, *ordered)))


def _name(item: Object) -> tuple[str, str]:
    data = item.get("metadata", {})
    return str(data.get("namespace", "")), str(data.get("name", ""))


def _node(item: Object) -> Row:
    status, spec = item.get("status", {}), item.get("spec", {})
    info = status.get("nodeInfo", {})
    labels = item.get("metadata", {}).get("labels") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    ready = conditions.get("Ready", {})
    state = "Ready" if ready.get("status") == "True" else f"NotReady: {ready.get('reason', _NONE)}"
    addresses = [
        address["address"]
        for address in status.get("addresses") or ()
        if address["type"] == "InternalIP"
    ]
    return (
        _name(item)[1],
        state + (", cordoned" if spec.get("unschedulable") else ""),
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
    ready = sum(bool(container.get("ready")) for container in containers)
    waiting = [
        str(container["state"]["waiting"].get("reason", ""))
        for container in containers
        if "waiting" in (container.get("state") or {})
    ]
    return (
        *_name(item),
        f"{ready}/{len(spec.get('containers') or ())}",
        ",".join(filter(None, waiting)) or str(status.get("reason") or status.get("phase", _NONE)),
        str(sum(int(container.get("restartCount", 0)) for container in containers)),
        str(status.get("podIP", _NONE)),
        str(spec.get("nodeName", _NONE)),
    )


def _service(item: Object) -> Row:
    spec = item.get("spec", {})
    ports = (
        f"{port['port']}" + (f":{port['nodePort']}" if port.get("nodePort") else "")
        + f"/{port.get('protocol', 'TCP')}"
        for port in spec.get("ports") or ()
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
        ",".join(endpoint.get("addresses") or ())
        + ("" if (endpoint.get("conditions") or {}).get("ready", True) else " (not ready)")
        for endpoint in item.get("endpoints") or ()
    )
    return (
        *_name(item),
        str(labels.get("kubernetes.io/service-name", _NONE)),
        ",".join(str(port.get("port")) for port in item.get("ports") or ()) or _NONE,
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


def _pairs(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or _NONE


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


Piece = tuple[str, bytes]
"""Path within the archive, and content."""
Ask = Callable[[str, Deadline], Mapping[str, Any]]
"""Gets a path of the API: ``ask("/api/v1/nodes", deadline)``."""

EACH_SECONDS = 20.0
"""Seconds for one piece on a healthy node, multiplied by the caller's patience."""
LOG_LINES = 2000
"""Lines kept of a log, from its end."""
_LOG = ".log"

RECENTLY = "--since=-15min"
"""For a connection that fails now: a node's start logs many things that did not exist yet."""
_JOURNAL = f"journalctl --lines={LOG_LINES} --no-pager --output=short-iso"
_LINUX: Mapping[str, str] = {
    **{f"{unit}.log": f"{_JOURNAL} --unit={unit}" for unit in ("kubelet", "containerd", "haproxy")},
    "kernel.log": f"{_JOURNAL} --dmesg",
    "daemons.log": (
        "for kept in /etc/hybridlab/daemons/*/; do "
        'log="/run/$(basename "$kept")/log"; [ -e "$log" ] || continue; '
        'echo "== $log"; tail -n 300 "$log"; done'
    ),
    "pods.log": (
        "for log in /var/log/pods/kube-system_*/*/*.log /var/log/pods/kube-flannel_*/*/*.log "
        "/var/log/pods/hybridlab-*/*/*.log; do "
        '[ -e "$log" ] || continue; echo "== $log"; tail -n 300 "$log"; done'
    ),
    "crictl.txt": "crictl pods; crictl ps --all; crictl images",
    "configuration.txt": (
        "for file in /var/lib/kubelet/config.yaml /var/lib/kubelet/kubeadm-flags.env "
        "/etc/containerd/config.toml /etc/cni/net.d/* /run/flannel/subnet.env; do "
        '[ -f "$file" ] || continue; echo "== $file"; cat "$file"; done; '
        "ls -l /opt/cni/bin"
    ),
    "counters.txt": "cat /proc/net/snmp /proc/net/netstat; conntrack -S",
    "units.txt": "systemctl --no-pager --failed; systemctl --no-pager status kubelet containerd",
}
"""File, and the command whose output it contains."""


@dataclass(frozen=True, slots=True)
class EvidenceNode:
    """A node that can be queried, and its system; None for Linux."""

    name: str
    shell: Shell
    system: System | None = None


def gather(
    nodes: Iterable[EvidenceNode],
    ask: Ask | None,
    deadline: Deadline,
    patience: int = 1,
) -> Iterator[Piece]:
    """All pieces: ``NODE/cluster/FILE``, and ``api/KIND.txt``.

    Never raises for what cannot be obtained: its piece is ``FILE.missing`` and says why. A node
    that does not answer is not queried again.

    Parameters
    ----------
    nodes
        All nodes of the cluster.
    ask
        The API; None if there is no kubeconfig yet.
    deadline
        For everything; each piece has at most :data:`EACH_SECONDS`, times ``patience``.
    patience
        8 if machines are emulated.

    """
    for node in nodes:
        yield from _collect_pieces(f"{node.name}/cluster", _pieces(node), deadline, patience)
    if ask is not None:
        yield from _collect_pieces("api", _api(ask), deadline, patience)


def logs(
    nodes: Iterable[EvidenceNode], deadline: Deadline, patience: int = 1, since: str = ""
) -> Iterator[Piece]:
    """The end of the nodes' logs: ``NODE/FILE``, with the limits of :func:`gather`.

    ``since``: an option of journalctl for Linux nodes, such as :data:`RECENTLY`.
    """
    for node in nodes:
        pieces = ((file, make) for file, make in _pieces(node, since) if file.endswith(_LOG))
        yield from _collect_pieces(node.name, pieces, deadline, patience)


def _collect_pieces(
    where: str,
    pieces: Iterator[EvidencePiece],
    deadline: Deadline,
    patience: int,
) -> Iterator[Piece]:
    answered = False
    for file, make in pieces:
        path = f"{where}/{file}"
        if not deadline.left():
            yield f"{path}.missing", b"there was no time left\n"
            continue
        try:
            text = make(Deadline(min(EACH_SECONDS * patience, deadline.left())))
        except LabError as error:
            yield f"{path}.missing", f"{error}\n".encode()
            if _is_nobody_there(error, first=not answered):
                return
            continue
        answered = True
        yield path, text.encode()


def _is_nobody_there(error: LabError, *, first: bool) -> bool:
    """Whether the next query would time out, too; a single slow one may be the tool's fault."""
    if isinstance(error, UnansweredError | CutOffError):
        return False
    return first or not isinstance(error, DeadlineError)


def _pieces(node: EvidenceNode, since: str = "") -> Iterator[EvidencePiece]:
    return node.system.node_evidence(node.shell) if node.system else _linux(node, since)


def _linux(node: EvidenceNode, since: str) -> Iterator[EvidencePiece]:
    yield "facts.json", lambda within: facts_json(linux.observe(node.shell, within))
    for file, line in _LINUX.items():
        script = line.replace(_JOURNAL, f"{_JOURNAL} {since}".rstrip())
        yield file, printed_by(partial(node.shell.run, ("sh", "-c", f"{script}\n")))


def printed_by(run: Callable[[Deadline], Completed]) -> Callable[[Deadline], str]:
    """Makes the content of a piece: what a command prints, standard error included."""

    def make(within: Deadline) -> str:
        done = run(within)
        return done.stdout + done.stderr

    return make


def _api(ask: Ask) -> Iterator[EvidencePiece]:
    def listing(kind: str, path: str, within: Deadline) -> str:
        return table(kind, ask(path, within).get("items") or ())

    for kind, path in PATHS.items():
        yield f"{kind}.txt", partial(listing, kind, path)


def facts_json(facts: NodeFacts) -> str:
    """A node's facts as a file of the evidence; of each item its value."""
    content = asdict(facts)
    content["items"] = {key: item.value for key, item in facts.items.items()}
    for pod, entry in zip(facts.pods or (), content["pods"] or (), strict=True):
        entry["items"] = {key: item.value for key, item in pod.items.items()}
    return json.dumps(content, indent=1) + "\n"
