"""Nodes as objects, and what scheduler and kubelets would say of the pods on them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_network

from lab._deadline import Deadline
from lab.cluster.api import Api, LostError, Object, RefusedError
from lab.cluster.observed import VTEP_ANNOTATION
from lab.topology.intent import Intent, MachineIntent

CALL = 5.0


def make_nodes(api: Api, intent: Intent) -> None:
    """The nodes of an Intent; Windows ones too, as far as the API goes."""
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
    """As flannel would say it, in upper case."""
    return f"8E:00:00:00:{len(node):02X}:{ord(node[-1]):02X}"


def _be_ready(api: Api, machine: MachineIntent) -> None:
    path = f"/api/v1/nodes/{machine.name}"
    found = api.ask("GET", path, Deadline(CALL))
    address = machine.interfaces[0].addresses[0].partition("/")[0]
    found["status"] = {
        "addresses": [{"type": "InternalIP", "address": address}],
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
    """One thread that schedules every pod by its selector, and says that it runs."""

    def __init__(self, api: Api, intent: Intent) -> None:
        self._api = api
        self._hosts: dict[str, Iterator[object]] = {
            machine.name: iter(list(ip_network(machine.kubelet.pod_cidr).hosts())[40:])
            for machine in intent.machines
            if machine.kubelet and machine.kubelet.pod_cidr
        }
        self._end = threading.Event()
        self.idle = threading.Event()
        """Set by a test: pods are left alone meanwhile."""
        self.trouble = ""
        """Set by a test: what every pod's container waits for instead of running."""
        self.misplaced: dict[str, str] = {}
        """Set by a test: pods that end up on another node than asked."""
        self._thread = threading.Thread(target=self._run)
        self._failure: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        self._thread.join()
        if self._failure:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                with suppress(LostError, RefusedError):
                    self._look()
                self._end.wait(0.05)
        except BaseException as error:  # noqa: BLE001  raised at the end
            self._failure = error

    def _look(self) -> None:
        if self.idle.is_set():
            return
        for pod in self._api.listing("/api/v1/pods", Deadline(CALL)).objects.values():
            if not pod["spec"].get("nodeName"):
                self._schedule(pod)
            elif pod["status"].get("phase") == "Pending":
                self._report(pod)

    def _schedule(self, pod: Object) -> None:
        metadata = pod["metadata"]
        asked = pod["spec"].get("nodeSelector", {}).get("kubernetes.io/hostname")
        node = self.misplaced.get(metadata["name"], asked)
        if node in self._hosts:
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
        """What a pod looks like whose containers have all done their work."""
        done = {"exitCode": 0, "reason": "Completed"}
        facts = {"image": "", "imageID": "", "restartCount": 0, "ready": False}
        statuses = [
            {"name": one["name"], "state": {"terminated": done}, **facts}
            for one in pod["spec"]["containers"]
        ]
        status = {"phase": "Succeeded", "containerStatuses": statuses}
        self._api.ask("PUT", f"{_path(pod)}/status", Deadline(CALL), {**pod, "status": status})


def _path(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
