"""What the matrix needs from the API: a namespace, a pod per probe pod, and the Services. Pure.

Names are the Intent's, so that cells and reports are the same on every provider. Each Service
has a selector of its own, and so exactly the backends that the Intent gives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lab.scenario.reserved import SECOND_POD_PORT
from lab.scenario.terms import Os, Protocol, ServicePort
from lab.topology import proxying
from lab.topology.intent import HeadlessService, Intent, MachineIntent, ProxiedService
from lab.topology.observed import LAB, NAMESPACE, POD, POD_VARIABLE, SERVICE, TOKEN, TOKEN_VARIABLE

Object = dict[str, Any]

PORT = 8080
"""Port of netexec for HTTP and UDP; every backend of an Intent listens on it."""
AGNHOST = "/agnhost"
"""Path of the program in the image, on both systems (its Dockerfile and Dockerfile_windows)."""
HOST_AGNHOST = "%CONTAINER_SANDBOX_MOUNT_POINT%/agnhost"
"""The same in a HostProcess container, which sees the node's own disk."""
_START_SECONDS = 300
"""Seconds until netexec must answer inside its own pod; an emulated node is slow."""


POD_SPEC: Mapping[str, object] = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "terminationGracePeriodSeconds": 0,
}
"""What every pod of a lab asks for."""


@dataclass(frozen=True, slots=True)
class ObjectOwner:
    """Who owns the objects."""

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


def manifests(
    intent: Intent, owner: ObjectOwner, images: Mapping[Os, str], *, host_pods: bool = True
) -> Manifests:
    """The objects that an Intent asks for.

    ``intent``: bound or not: the addresses of Services are used, those of pods are not. ``owner``:
    the lab, and the token that all its objects carry. ``images``: full name of the agnhost image
    for each operating system that the Intent has pods of. ``host_pods``: whether Windows nodes get
    pods that send and answer for them.
    """
    behind = backends(intent)
    twice = proxying.asked_on(proxying.probed_services(intent), SECOND_POD_PORT)
    subdomains = {
        backend.pod: service.name for service in intent.headless for backend in service.backends
    }
    pods = []
    for machine in intent.machines:
        for pod in (pod for pod in machine.pods if pod.role == "probe"):
            image = images[machine.os]
            containers = [netexec(image, AGNHOST, owner, pod.name)]
            if pod.name in twice:
                containers.append(_second(image, pod.name))
            spec: Object = {"hostname": pod.name, "containers": containers}
            if pod.name in subdomains:
                spec["subdomain"] = subdomains[pod.name]
            own = [name for name, ends in behind.items() if pod.name in ends]
            pods.append(_pod(machine, pod.name, owner, spec, own))
    # HostProcess pods: Windows has no other way into the node's own network
    options = {"hostProcess": True, "runAsUserName": "NT AUTHORITY\\SYSTEM"}
    for machine in intent.machines:
        if host_pods and machine.kubelet and machine.os == "windows":
            name = host_pod_name(machine.name)
            spec = {
                "hostNetwork": True,
                "securityContext": {"windowsOptions": options},
                "containers": [netexec(images["windows"], HOST_AGNHOST, owner, name)],
            }
            pods.append(_pod(machine, name, owner, spec))
    return Manifests(
        namespace=namespace(owner),
        pods=tuple(pods),
        services=(
            *(_service(service, owner) for service in proxying.probed_services(intent)),
            *(_headless(service, owner) for service in intent.headless),
        ),
    )


def namespace(owner: ObjectOwner) -> Object:
    """The namespace; its pods may use the node's disk because workload checks do."""
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {**owner.labels(), **labels}},
    }


def backends(intent: Intent) -> dict[str, frozenset[str]]:
    """Names of the pods behind each Service that the lab creates, headless ones included."""
    backends_by_service = {
        service.name: service.backends for service in proxying.probed_services(intent)
    }
    backends_by_service |= {service.name: service.backends for service in intent.headless}
    return {name: frozenset(end.pod for end in ends) for name, ends in backends_by_service.items()}


def host_pod_name(node: str) -> str:
    """Name of the pod that sends and answers for a Windows node."""
    return f"host-{node}"


def pin_to_node(machine: MachineIntent) -> Object:
    """The part of a pod's spec that pins it to a lab's node, control planes included."""
    return {
        "nodeSelector": {"kubernetes.io/hostname": machine.name, "kubernetes.io/os": machine.os},
        "tolerations": [
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"},
            {"key": "os", "operator": "Exists"},
        ],
        "os": {"name": machine.os},
        **POD_SPEC,
    }


def pin_by_name(node: str) -> Object:
    """The part of a pod's spec that pins it to a node, whatever the node's labels say."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def node_of(spec: Object) -> str:
    """The name of the node that a pod's spec pins it to, by either of the two ways."""
    if "affinity" not in spec:
        return str(spec["nodeSelector"]["kubernetes.io/hostname"])
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def _pod(
    machine: MachineIntent,
    name: str,
    owner: ObjectOwner,
    spec: Mapping[str, object],
    behind: Iterable[str] = (),
) -> Object:
    """A pod on its node; ``behind``: the Services that it is a backend of."""
    services = {f"{SERVICE}/{service}": "backend" for service in behind}
    labels = {**owner.labels(), POD: name, **services}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {**pin_to_node(machine), **spec},
    }


def netexec(image: str, program: str, owner: ObjectOwner, pod: str, port: int = PORT) -> Object:
    """The pod's main container; started once it answers inside its pod, whatever the network does.

    A kubelet's readiness probe would remove a backend just where a fault is being investigated.
    """
    return {
        "name": "netexec",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [program, "netexec", f"--http-port={port}", f"--udp-port={port}"],
        "env": [
            {"name": TOKEN_VARIABLE, "value": owner.token},
            {"name": POD_VARIABLE, "value": pod},
        ],
        "ports": [
            {"name": "tcp", "containerPort": port, "protocol": "TCP"},
            {"name": "udp", "containerPort": port, "protocol": "UDP"},
        ],
        "startupProbe": _answers(program, port),
    }


def _second(image: str, pod: str) -> Object:
    """A container that answers every HTTP request with the port that was asked."""
    override = f"/echo?msg={pod}:{SECOND_POD_PORT}"
    arguments = [f"--http-port={SECOND_POD_PORT}", "--udp-port=-1", f"--http-override={override}"]
    return {
        "name": "second",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [AGNHOST, "netexec", *arguments],
        "ports": [{"name": "second", "containerPort": SECOND_POD_PORT, "protocol": "TCP"}],
        "startupProbe": _answers(AGNHOST, SECOND_POD_PORT),
    }


def _answers(program: str, port: int) -> Object:
    return {
        "exec": {"command": [program, "connect", f"localhost:{port}", "--timeout=5s"]},
        "periodSeconds": 1,
        "timeoutSeconds": 10,
        "failureThreshold": _START_SECONDS,
    }


def _service(service: ProxiedService, owner: ObjectOwner) -> Object:
    node_ports = bool(service.node_ports())
    spec: Object = {
        "type": "NodePort" if node_ports else "ClusterIP",
        "clusterIP": service.address,
        "ipFamilyPolicy": "SingleStack",
        "selector": _selector(service.name, owner),
        "internalTrafficPolicy": service.inside.capitalize(),
        "ports": [_port(port, protocol) for port in service.ports for protocol in port.protocols],
    }
    if node_ports:
        spec["externalTrafficPolicy"] = service.outside.capitalize()
    if service.affinity is not None:
        spec["sessionAffinity"] = "ClientIP"
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": service.affinity}}
    if service.health_port is not None:  # only load balancers have one
        spec["type"] = "LoadBalancer"
        spec["healthCheckNodePort"] = service.health_port
    return _object(service.name, owner, spec)


def _headless(service: HeadlessService, owner: ObjectOwner) -> Object:
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "ipFamilyPolicy": "SingleStack",
        "selector": _selector(service.name, owner),
    }
    return _object(service.name, owner, spec)


def _selector(name: str, owner: ObjectOwner) -> Object:
    return {TOKEN: owner.token, f"{SERVICE}/{name}": "backend"}


def _object(name: str, owner: ObjectOwner, spec: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": owner.labels()},
        "spec": spec,
    }


def _port(port: ServicePort, protocol: Protocol) -> Object:
    """One protocol of a port; the API requires a distinct name for each when there are several."""
    several = len(port.protocols) > 1
    named = f"{port.name}-{protocol}" if several else port.name
    spec: Object = {
        "name": named if port.name else protocol,
        "protocol": protocol.upper(),
        "port": port.port,
        "targetPort": port.target_port,
    }
    if port.node_port is not None:
        spec["nodePort"] = port.node_port
    return spec
