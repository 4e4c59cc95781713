"""What a cluster reports once the probe pods exist, and the labels they carry. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from ipaddress import ip_address
from typing import Any

from lab.topology.intent import Obstacle

NAMESPACE = "hybridlab-probe"
"""Namespace of the probe pods and their Services; a cluster has one lab."""
LAB = "hybridlab.io/lab"
TOKEN = "hybridlab.io/token"  # noqa: S105  a mark, no secret
POD = "hybridlab.io/pod"
"""Label with the pod's name, for selectors."""
SERVICE = "service.hybridlab.io"
"""``service.hybridlab.io/NAME`` on each pod behind the Service of that name."""
POD_VARIABLE = "HYBRIDLAB_POD"
TOKEN_VARIABLE = "HYBRIDLAB_TOKEN"  # noqa: S105  a mark, no secret
"""Environment variables of every probe pod's processes; the node's agent finds pods by them."""
DNS_NAMESPACE, DNS_SELECTOR = "kube-system", "k8s-app=kube-dns"
"""Namespace of the cluster's DNS, as kubeadm sets it and others expect it."""


VTEP_ANNOTATION = "flannel.alpha.coreos.com/backend-data"
"""Annotation with the MAC of flannel's tunnel device: ``{"VNI":4096,"VtepMAC":"..."}``."""

TUNNEL_ANNOTATION = "projectcalico.org/IPv4VXLANTunnelAddr"
"""Annotation with the address of Calico's tunnel device."""


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """One pod as the API reports it."""

    name: str
    node: str | None
    address: str | None
    phase: str
    ready: bool
    trouble: str
    """Why it is not ready; empty if it is, or if no reason is given."""
    obstacle: Obstacle | None = None
    """Why it cannot run; None if it runs, or may yet."""


@dataclass(frozen=True, slots=True)
class ObservedService:
    """One Service as the API reports it."""

    name: str
    address: str


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """One node as the API reports it."""

    name: str
    pod_cidr: str | None
    tunnel_mac: str | None
    """MAC of flannel's VXLAN device; None if there is none."""
    tunnel_address: str | None = None
    """Address of Calico's tunnel device, one of the node's pod addresses; None if there is none."""


@dataclass(frozen=True, slots=True)
class NodeVersion:
    """The versions that one node reports."""

    node: str
    kubelet: str
    system: str
    """``Debian GNU/Linux 12 (bookworm)``, ``Windows Server 2022 Datacenter``."""
    kernel: str
    """``6.1.0-32-amd64``; on Windows the patch level, ``10.0.20348.2762``."""
    runtime: str


@dataclass(frozen=True, slots=True)
class PodLink:
    """How a pod is attached, as the agent on its node sees it."""

    pod: str
    mac: str
    port: str
    """Device at the node's end; empty if unknown."""
    mtu: int
    gateway: str | None


@dataclass(frozen=True, slots=True)
class ClusterObserved:
    """Everything that is known only at run time."""

    pods: tuple[ObservedPod, ...]
    dns: tuple[ObservedPod, ...]
    services: tuple[ObservedService, ...]
    nodes: tuple[ObservedNode, ...]
    links: tuple[PodLink, ...] = ()


_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_DEVICE = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.@]{0,14}")
"""Names of Linux network devices (at most 15 characters), of the kind that agents report."""


def to_text(observed: ClusterObserved) -> str:
    """The observation as JSON, for the journal."""
    return json.dumps(asdict(observed))


def from_text(text: str) -> ClusterObserved:
    """Parse the output of :func:`to_text`.

    Raises ValueError when a value is not a valid name, address or MAC.
    """
    from pydantic import TypeAdapter  # noqa: PLC0415  slow, and for few commands

    observed = TypeAdapter(ClusterObserved).validate_json(text, strict=True)
    for pod in (*observed.pods, *observed.dns):
        _check(_NAME, pod.name, pod.node)
        if not pod.obstacle:
            ip_address(pod.address or "")
    for link in observed.links:
        _check(_NAME, link.pod)
        _check(_MAC, link.mac or None)
        _check(_DEVICE, link.port or None)
        ip_address(link.gateway or "::")
    for node in observed.nodes:
        _check(_NAME, node.name)
        _check(_MAC, node.tunnel_mac)
        ip_address(node.tunnel_address or "::")
    return observed


def _check(form: re.Pattern[str], *texts: str | None) -> None:
    for text in texts:
        if text is not None and not form.fullmatch(text):
            raise ValueError(f"{text!r} does not match {form.pattern}")


def read_pod(document: Mapping[str, Any]) -> ObservedPod:
    """Parse a pod from the API's JSON."""
    status = document.get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    return ObservedPod(
        name=document["metadata"]["name"],
        node=document.get("spec", {}).get("nodeName"),
        address=status.get("podIP"),
        phase=status.get("phase", "Pending"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        trouble="; ".join(_list_troubles(status, conditions)),
    )


def _list_troubles(
    status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]
) -> Iterable[str]:
    """The problems that scheduler, kubelet and containers report."""
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        yield f"{scheduled.get('reason', 'Unschedulable')}: {scheduled.get('message', '')}"
    if status.get("reason"):
        yield f"{status['reason']}: {status.get('message', '')}"
    for container in status.get("containerStatuses") or ():
        for state in (container.get("state") or {}, container.get("lastState") or {}):
            for kind in ("waiting", "terminated"):
                reason = state.get(kind)
                if reason and reason.get("reason") != "ContainerCreating":
                    words = (reason.get("reason", kind), reason.get("message", "").strip())
                    yield ": ".join(word for word in words if word)


def read_service(document: Mapping[str, Any]) -> ObservedService:
    """Parse a Service from the API's JSON."""
    spec = document["spec"]
    return ObservedService(
        name=document["metadata"]["name"],
        address=spec.get("clusterIP", ""),
    )


def read_node(document: Mapping[str, Any]) -> ObservedNode:
    """Parse a node from the API's JSON."""
    metadata = document["metadata"]
    return ObservedNode(
        name=metadata["name"],
        pod_cidr=document.get("spec", {}).get("podCIDR"),
        tunnel_mac=_read_vtep(metadata.get("annotations") or {}),
        tunnel_address=_valid_address((metadata.get("annotations") or {}).get(TUNNEL_ANNOTATION)),
    )


def _valid_address(text: str | None) -> str | None:
    try:
        return str(ip_address(text or ""))
    except ValueError:
        return None


def _read_vtep(annotations: Mapping[str, str]) -> str | None:
    try:
        annotation = json.loads(annotations.get(VTEP_ANNOTATION, "null"))
    except ValueError:
        return None
    mac = annotation.get("VtepMAC") if isinstance(annotation, dict) else None
    return mac.lower() if isinstance(mac, str) and mac else None


def read_version(document: Mapping[str, Any]) -> NodeVersion:
    """Parse the versions of a node from the API's JSON."""
    info = (document.get("status") or {}).get("nodeInfo") or {}
    return NodeVersion(
        node=document["metadata"]["name"],
        kubelet=info.get("kubeletVersion", ""),
        system=info.get("osImage", ""),
        kernel=info.get("kernelVersion", ""),
        runtime=info.get("containerRuntimeVersion", ""),
    )


def ready_endpoints(slices: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """Names of the ready pods behind each Service, from its EndpointSlices."""
    ready: dict[str, frozenset[str]] = {}
    for endpoint_slice in slices:
        service = endpoint_slice["metadata"].get("labels", {}).get("kubernetes.io/service-name", "")
        names = frozenset(
            end["targetRef"]["name"]
            for end in endpoint_slice.get("endpoints") or ()
            if end.get("targetRef") and (end.get("conditions") or {}).get("ready") is not False
        )
        ready[service] = ready.get(service, frozenset()) | names
    return ready
