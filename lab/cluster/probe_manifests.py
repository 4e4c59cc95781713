"""What the matrix asks of the API: a namespace, a pod for each probe pod, and the Services. Pure.

Names are the Intent's, so that cells and reports are the same on every provider. Each Service
selects by a label of its own, and so has exactly the backends that the Intent gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.cluster.labels import LAB, NAMESPACE, POD, POD_VARIABLE, SERVICE, TOKEN, TOKEN_VARIABLE
from lab.scenario.scenario import Os
from lab.topology.intent import Intent, MachineIntent, Pod, Service

Object = dict[str, Any]

PORT = 8080
"""netexec's, for HTTP and UDP; the one that every backend of an Intent has."""
AGNHOST = "/agnhost"
"""The program in the image, on both systems (its Dockerfile and Dockerfile_windows)."""
HOST_AGNHOST = "%CONTAINER_SANDBOX_MOUNT_POINT%/agnhost"
"""The same in a HostProcess container, which sees the node's own disk."""
_START_SECONDS = 300
"""Until netexec must answer inside its own pod; an emulated node is slow."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose the objects are."""

    lab: str
    token: str

    def labels(self) -> dict[str, str]:
        """The labels that every object carries."""
        return {LAB: self.lab, TOKEN: self.token}


@dataclass(frozen=True, slots=True)
class Manifests:
    """Everything, in the order of creation."""

    namespace: Object
    pods: tuple[Object, ...]
    services: tuple[Object, ...]


def manifests(intent: Intent, owner: Owner, images: Mapping[Os, str]) -> Manifests:
    """What an Intent asks for.

    Parameters
    ----------
    intent
        Bound or not: addresses of pods are not asked for, those of Services are.
    owner
        The lab, and the token that all its objects carry.
    images
        Full name of the agnhost image for each operating system that the Intent has pods of.

    """
    return Manifests(
        namespace=namespace(owner),
        pods=(
            *(
                _pod(machine, pod, owner, images[machine.os], services_of(intent, pod.name))
                for machine in intent.machines
                for pod in machine.pods
                if pod.role == "probe"
            ),
            *(
                _host_pod(machine, owner, images["windows"])
                for machine in intent.machines
                if machine.kubelet and machine.os == "windows"
            ),
        ),
        services=tuple(_service(service, owner) for service in services(intent)),
    )


def namespace(owner: Owner) -> Object:
    """The namespace; its pods may use the node's disk, as workload checks do."""
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {**owner.labels(), **labels}},
    }


def services(intent: Intent) -> tuple[Service, ...]:
    """Every Service that the lab makes: all but the cluster's DNS, in the Intent's order."""
    probes = {p.name for machine in intent.machines for p in machine.pods if p.role == "probe"}
    found: dict[str, Service] = {}
    for machine in intent.machines:
        for service in machine.translation.services if machine.translation else ():
            if all(backend.pod in probes for backend in service.backends):
                found.setdefault(service.name, service)
    return tuple(found.values())


def services_of(intent: Intent, pod: str) -> tuple[str, ...]:
    """Names of the Services that a pod stands behind."""
    return tuple(
        service.name
        for service in services(intent)
        if any(backend.pod == pod for backend in service.backends)
    )


def host_pod_name(node: str) -> str:
    """The pod that answers and asks in the place of a Windows node."""
    return f"host-{node}"


def pinned(machine: MachineIntent) -> Object:
    """The part of a pod's spec that puts it on a node, control planes included."""
    return {
        "nodeSelector": {"kubernetes.io/hostname": machine.name, "kubernetes.io/os": machine.os},
        "tolerations": [
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"},
            {"key": "os", "operator": "Exists"},
        ],
        "os": {"name": machine.os},
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
    }


def _pod(
    machine: MachineIntent, pod: Pod, owner: Owner, image: str, behind: tuple[str, ...]
) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod.name,
            "namespace": NAMESPACE,
            "labels": {
                **owner.labels(),
                POD: pod.name,
                **{f"{SERVICE}/{name}": "backend" for name in behind},
            },
        },
        "spec": {
            **pinned(machine),
            "hostname": pod.name,
            "containers": [_netexec(image, AGNHOST, owner, pod.name)],
        },
    }


def _host_pod(machine: MachineIntent, owner: Owner, image: str) -> Object:
    """A HostProcess pod: Windows has no other way into the node's own network."""
    name = host_pod_name(machine.name)
    options = {"hostProcess": True, "runAsUserName": "NT AUTHORITY\\SYSTEM"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {**owner.labels(), POD: name},
        },
        "spec": {
            **pinned(machine),
            "hostNetwork": True,
            "securityContext": {"windowsOptions": options},
            "containers": [_netexec(image, HOST_AGNHOST, owner, name)],
        },
    }


def _netexec(image: str, program: str, owner: Owner, pod: str) -> Object:
    """The one container; started when it answers inside its own pod, whatever the network does.

    A readiness probe of the kubelet's would take a backend away where a fault is looked for.
    """
    return {
        "name": "netexec",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [program, "netexec", f"--http-port={PORT}", f"--udp-port={PORT}"],
        "env": [
            {"name": TOKEN_VARIABLE, "value": owner.token},
            {"name": POD_VARIABLE, "value": pod},
        ],
        "ports": [
            {"name": "tcp", "containerPort": PORT, "protocol": "TCP"},
            {"name": "udp", "containerPort": PORT, "protocol": "UDP"},
        ],
        "startupProbe": {
            "exec": {"command": [program, "connect", f"localhost:{PORT}", "--timeout=5s"]},
            "periodSeconds": 1,
            "timeoutSeconds": 10,
            "failureThreshold": _START_SECONDS,
        },
    }


def _service(service: Service, owner: Owner) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service.name, "namespace": NAMESPACE, "labels": owner.labels()},
        "spec": {
            "type": "ClusterIP" if service.node_port is None else "NodePort",
            "clusterIP": service.address,
            "ipFamilyPolicy": "SingleStack",
            "selector": {TOKEN: owner.token, f"{SERVICE}/{service.name}": "backend"},
            "ports": [_port(service, protocol) for protocol in ("TCP", "UDP")],
        },
    }


def _port(service: Service, protocol: str) -> Object:
    port: Object = {
        "name": protocol.lower(),
        "protocol": protocol,
        "port": service.port,
        "targetPort": service.backends[0].port if service.backends else PORT,
    }
    if service.node_port is not None:
        port["nodePort"] = service.node_port
    return port
