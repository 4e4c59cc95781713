"""The objects that are made in an existing cluster, on its owner's terms. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lab.machines.attached.design import debug_pod, host_pod
from lab.machines.attached.record import AttachedRecord, NodeFound
from lab.machines.cluster.probe_manifests import (
    AGNHOST,
    POD_SPEC,
    Manifests,
    ObjectOwner,
    manifests,
    netexec,
    pin_by_name,
)
from lab.topology.intent import Intent
from lab.topology.observed import POD

Object = dict[str, Any]

CONTAINER = "netexec"
"""Of every pod: the container in which commands run."""
HOST_PORT = 19080
"""Of netexec in a node's own network: not one that programs of clusters use, nor a node port."""
_USER = 65_534
"""``nobody``: restricted Pod Security admits no root."""
_PLANES = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_OS_TAINTS = ("os", "node.kubernetes.io/os")
"""Keys by which clusters keep pods off Windows nodes (Kubernetes documentation, Windows)."""


def make_objects(record: AttachedRecord, intent: Intent, owner: ObjectOwner) -> Manifests:
    """Namespace, pods and Services: those of a lab's cluster, as this cluster takes them."""
    image = record.terms.pulled
    usual = manifests(intent, owner, {"linux": image, "windows": image}, host_pods=False)
    by_pod = {pod.name: machine.name for machine in intent.machines for pod in machine.pods}
    nodes = {node.name: node for node in record.cluster.nodes}
    pods = [_admit(record, nodes[by_pod[pod["metadata"]["name"]]], pod) for pod in usual.pods]
    privileged = record.terms.host_network or record.terms.debug_pods
    if record.terms.host_network:
        pods += [
            _make_host_pod(record, nodes[each.name], name, owner)
            for each in intent.machines
            if (name := host_pod(each))
        ]
    if record.terms.debug_pods:
        pods += [
            _make_debug_pod(record, nodes[each.name], name, owner)
            for each in intent.machines
            if (name := debug_pod(each))
        ]
    standard = "privileged" if privileged else "restricted"
    labels = {**owner.labels(), "pod-security.kubernetes.io/enforce": standard}
    own = {"apiVersion": "v1", "kind": "Namespace"}
    return replace(
        usual,
        namespace={**own, "metadata": {"name": record.namespace, "labels": labels}},
        pods=tuple(pods),
        services=tuple(_open(record, service) for service in usual.services),
    )


def _make_host_pod(
    record: AttachedRecord, node: NodeFound, name: str, owner: ObjectOwner
) -> Object:
    """A pod in a node's own network."""
    spec = {
        **POD_SPEC,
        "os": {"name": node.os},
        "hostNetwork": True,
        "containers": [netexec(record.terms.pulled, AGNHOST, owner, name, HOST_PORT)],
    }
    metadata = {"name": name, "labels": {**owner.labels(), POD: name}}
    pod = _admit(record, node, {"metadata": metadata, "spec": spec})
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def _make_debug_pod(
    record: AttachedRecord, node: NodeFound, name: str, owner: ObjectOwner
) -> Object:
    """A pod that may read all of its node; it starts without the cluster's network."""
    container = {
        "name": CONTAINER,
        "image": record.terms.pulled,
        "imagePullPolicy": "IfNotPresent",
        "command": [AGNHOST, "pause"],
        "securityContext": {"privileged": True, "runAsUser": 0},
    }
    spec = {
        **POD_SPEC,
        "os": {"name": node.os},
        "hostNetwork": True,
        "hostPID": True,
        "containers": [container],
        **_pin(record, node),
    }
    labels = {**owner.labels(), POD: name}
    metadata = {"name": name, "labels": labels, "namespace": record.namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _admit(record: AttachedRecord, node: NodeFound, pod: Object) -> Object:
    """A pod in the lab's namespace, with what the cluster's owner asks for."""
    spec = {**pod["spec"], **_pin(record, node)}
    spec |= _restrict(node, spec)
    metadata = {**pod["metadata"], "namespace": record.namespace}
    return {**pod, "metadata": metadata, "spec": spec}


def _pin(record: AttachedRecord, node: NodeFound) -> Object:
    """What puts a pod on its node, on the owner's terms."""
    return {
        "nodeSelector": {"kubernetes.io/os": node.os},
        **pin_by_name(node.name),
        "tolerations": list(make_tolerations(record, node)),
        **({"imagePullSecrets": [{"name": n} for n in record.terms.pull_secrets]}
           if record.terms.pull_secrets else {}),
    }  # fmt: skip


def make_tolerations(record: AttachedRecord, node: NodeFound) -> Iterator[Object]:
    """The taints of control planes and of Windows nodes, and those that the user names."""
    for key in (*_PLANES, *(_OS_TAINTS if node.os == "windows" else ())):
        yield {"key": key, "operator": "Exists"}
    for words in record.terms.tolerations:
        key_value, _, effect = words.partition(":")
        key, equals, value = key_value.partition("=")
        toleration: Object = {"key": key, "operator": "Equal" if equals else "Exists"}
        toleration |= {"value": value} if equals else {}
        yield toleration | ({"effect": effect} if effect else {})


def _restrict(node: NodeFound, spec: Object) -> Object:
    """What the Pod Security standard "restricted" asks for."""
    if node.os == "windows":
        return {
            "securityContext": {"runAsNonRoot": True},
            "containers": [
                {**each, "securityContext": {"runAsNonRoot": True}} for each in spec["containers"]
            ],
        }
    profile = {"seccompProfile": {"type": "RuntimeDefault"}}
    within = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": _USER,
    }
    return {
        "securityContext": {"runAsNonRoot": True, "runAsUser": _USER, **profile},
        "containers": [{**each, "securityContext": within} for each in spec["containers"]],
    }


def _open(record: AttachedRecord, service: Object) -> Object:
    """A Service whose address and node ports the API server chooses."""
    spec = {key: value for key, value in service["spec"].items() if key != "clusterIP"}
    spec["ipFamilies"] = ["IPv4"]
    spec["ports"] = [
        {key: value for key, value in port.items() if key != "nodePort"} for port in spec["ports"]
    ]
    metadata = {**service["metadata"], "namespace": record.namespace}
    return {**service, "metadata": metadata, "spec": spec}
