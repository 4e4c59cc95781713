"""Node objects, and a fake of the scheduler and of the kubelets for their pods."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from ipaddress import ip_network
from itertools import islice

from lab._deadline import Deadline
from lab.machines.cluster.api import Api, GoneError, LostError, Object, RefusedError
from lab.topology.intent import Intent, MachineIntent
from lab.topology.observed import VTEP_ANNOTATION

CALL = 60.0
"""Deadline in seconds of operations that are immediate on an idle machine."""
_WATCH_SECONDS = 1.0
_AGAIN_SECONDS = 0.05
_UNUSED_PORT = 1
_PODS = "/api/v1/pods"


def make_nodes(api: Api, intent: Intent) -> None:
    """Create the Node objects of an Intent, including Windows nodes."""
    for machine in intent.machines:
        if machine.kubelet and machine.kubelet.pod_cidr:
            api.ask("POST", "/api/v1/nodes", Deadline(CALL), _node(machine))
            _be_ready(api, machine)


def _node(machine: MachineIntent) -> Object:
    assert machine.kubelet
    taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": machine.name,
            "labels": {"kubernetes.io/hostname": machine.name, "kubernetes.io/os": machine.os},
            "annotations": {
                VTEP_ANNOTATION: json.dumps({"VNI": 4096, "VtepMAC": tunnel_mac(machine.name)})
            },
        },
        "spec": {
            "podCIDR": machine.kubelet.pod_cidr,
            "podCIDRs": [machine.kubelet.pod_cidr],
            **({"taints": [taint]} if machine.kubelet.role == "control-plane" else {}),
        },
    }


def tunnel_mac(node: str) -> str:
    """A MAC as flannel writes it, in upper case."""
    return f"8E:00:00:00:{len(node):02X}:{ord(node[-1]):02X}"


def _be_ready(api: Api, machine: MachineIntent) -> None:
    path = f"/api/v1/nodes/{machine.name}"
    found = api.ask("GET", path, Deadline(CALL))
    address = machine.interfaces[0].addresses[0].partition("/")[0]
    found["status"] = {
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": "127.0.0.1"},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": _UNUSED_PORT}},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        "nodeInfo": {
            "kubeletVersion": "v1.36.3",
            "osImage": "Windows Server 2022" if machine.os == "windows" else "Debian 12",
            "kernelVersion": "10.0.20348.2762" if machine.os == "windows" else "6.1.0",
            "containerRuntimeVersion": "containerd://2.3.7",
            "operatingSystem": machine.os,
            "architecture": "amd64",
            "bootID": "",
            "kubeProxyVersion": "",
            "machineID": "",
            "systemUUID": "",
        },
        "capacity": {"pods": "110", "cpu": "2", "memory": "2Gi"},
        "allocatable": {"pods": "110", "cpu": "2", "memory": "2Gi"},
    }
    api.ask("PUT", f"{path}/status", Deadline(CALL), found)


class FakeKubelets:
    """One thread that schedules every pod by its selector, and reports it as running."""

    def __init__(self, api: Api, intent: Intent) -> None:
        self._api = api
        self._cidrs = {
            machine.name: ip_network(machine.kubelet.pod_cidr)
            for machine in intent.machines
            if machine.kubelet and machine.kubelet.pod_cidr
        }
        self._end = threading.Event()
        self.idle = threading.Event()
        """Set by a test: pods are not touched meanwhile."""
        self.trouble = ""
        """Set by a test: the waiting reason of every container, instead of running."""
        self.misplaced: dict[str, str] = {}
        """Set by a test: pods that are placed on another node than requested."""
        self.closed: set[str] = set()
        """Set by a test: nodes to which no pod is scheduled."""
        self._thread = threading.Thread(target=self._run)
        self._failure: BaseException | None = None
        self.behave()

    def behave(self) -> None:
        """Reset to the initial state: no trouble, addresses from the first one on."""
        self.trouble = ""
        self.misplaced.clear()
        self.closed.clear()
        self._hosts: dict[str, Iterator[object]] = {
            name: islice(cidr.hosts(), 40, None) for name, cidr in self._cidrs.items()
        }
        self.idle.clear()

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        """Raise the thread's exception."""
        if self._failure:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                with suppress(LostError, RefusedError, GoneError):
                    self._follow()
                self._end.wait(_AGAIN_SECONDS)
        except BaseException as error:  # noqa: BLE001  raised at the end
            self._failure = error

    def _follow(self) -> None:
        """Handle every existing pod, and for a while those that are created or change."""
        listed = self._api.listing(_PODS, Deadline(CALL))
        for pod in listed.objects.values():
            self._look_after(pod)
        with closing(self._api.watch(_PODS, listed.version, Deadline(_WATCH_SECONDS))) as watch:
            for kind, pod in watch:
                if kind in {"ADDED", "MODIFIED"}:
                    self._look_after(pod)

    def _look_after(self, pod: Object) -> None:
        while self.idle.is_set() and not self._end.is_set():
            self._end.wait(_AGAIN_SECONDS)
        with suppress(RefusedError):  # changed or deleted meanwhile
            if not pod["spec"].get("nodeName"):
                self._schedule(pod)
            elif pod["status"].get("phase") == "Pending":
                self._report(pod)

    def _schedule(self, pod: Object) -> None:
        metadata = pod["metadata"]
        asked = pod["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname")
        node = self.misplaced.get(metadata["name"], asked)
        if node in self.closed:
            unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            if not pod["status"].get("conditions"):
                status = {"phase": "Pending", "conditions": [unscheduled]}
                changed = {**pod, "status": status}
                self._api.ask("PUT", f"{_path(pod)}/status", Deadline(CALL), changed)
        elif node in self._hosts:
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
            self._api.ask("POST", f"{_path(pod)}/binding", Deadline(CALL), binding)

    def _report(self, pod: Object) -> None:
        if pod["metadata"]["name"].startswith("workload-"):
            self._end_all(pod)
            return
        name = pod["spec"]["containers"][0]["name"]
        node = pod["spec"]["nodeName"]
        container = {"name": name, "image": "", "imageID": "", "restartCount": 0}
        ready = not self.trouble
        if ready:
            container |= {"ready": True, "state": {"running": {}}}
            address = str(next(self._hosts[node]))
        else:
            waits = {"reason": self.trouble, "message": "as the test says"}
            container |= {"ready": False, "state": {"waiting": waits}}
            address = ""
        status = {
            "phase": "Running" if ready else "Pending",
            "conditions": [
                {"type": "PodScheduled", "status": "True"},
                {"type": "Ready", "status": "True" if ready else "False"},
            ],
            "containerStatuses": [container],
            **({"podIP": address, "podIPs": [{"ip": address}]} if address else {}),
        }
        if pod["status"].get("containerStatuses") and not ready:
            return
        self._api.ask("PUT", f"{_path(pod)}/status", Deadline(CALL), {**pod, "status": status})

    def _end_all(self, pod: Object) -> None:
        """The status of a pod whose containers have all completed."""
        done = {"exitCode": 0, "reason": "Completed"}
        facts = {"image": "", "imageID": "", "restartCount": 0, "ready": False}
        statuses = [
            {"name": container["name"], "state": {"terminated": done}, **facts}
            for container in pod["spec"]["containers"]
        ]
        status = {"phase": "Succeeded", "containerStatuses": statuses}
        self._api.ask("PUT", f"{_path(pod)}/status", Deadline(CALL), {**pod, "status": status})


def _path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
