"""What a pod may expect of its node besides the network: the checks, their objects and verdicts.

Pure. The checks are those that people try by hand on a first Windows node: Secret and ConfigMap
as environment variables, a hostPath, several emptyDirs, pod and node metrics, and nodeSelector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.machines.cluster.probe_manifests import AGNHOST, Object, ObjectOwner, pin_to_node
from lab.providers.workloads import CHECKS, Check, WorkloadResult
from lab.scenario.terms import Os
from lab.topology.intent import MachineIntent
from lab.topology.observed import NAMESPACE, POD

ENVIRONMENT, HOST_PATH, EMPTY_DIRS = "environment", "host-path", "empty-dirs"
CONTAINERS = (ENVIRONMENT, HOST_PATH, EMPTY_DIRS)
_SOURCE = "workload"
_KEY = "value"
_HOST_DIRECTORY = "/var/tmp/hybridlab-workload"  # noqa: S108  on a node of the lab
_EMPTY = ("one", "two", "three")


@dataclass(frozen=True, slots=True)
class Values:
    """Contents of the Secret and the ConfigMap, random for each run."""

    secret: str
    config: str


def sources(owner: ObjectOwner, values: Values) -> tuple[Object, Object]:
    """The Secret and the ConfigMap."""
    metadata = {"name": _SOURCE, "namespace": NAMESPACE, "labels": owner.labels()}
    head = {"apiVersion": "v1", "metadata": metadata}
    return (
        {**head, "kind": "Secret", "stringData": {_KEY: values.secret}},
        {**head, "kind": "ConfigMap", "data": {_KEY: values.config}},
    )


def pod_name(node: str) -> str:
    """Name of the node's pod that runs the checks."""
    return f"workload-{node}"


def pod(machine: MachineIntent, owner: ObjectOwner, images: Mapping[Os, str]) -> Object:
    """A pod with three containers, each of which checks one thing and ends."""
    name = pod_name(machine.name)
    # a file mode that mounttest can check, for each directory
    modes = zip(("0644", "0660", "0666"), _EMPTY, strict=True)
    written = [f"--new_file_{mode}=/{place}/file" for mode, place in modes]
    host = {"path": _HOST_DIRECTORY, "type": "DirectoryOrCreate"}
    containers = (
        {
            "name": ENVIRONMENT,
            "command": [AGNHOST, "entrypoint-tester", "s=$(SECRET)", "c=$(CONFIG)"],
            "env": [_variable("SECRET", "secretKeyRef"), _variable("CONFIG", "configMapKeyRef")],
        },
        {
            "name": HOST_PATH,
            "command": [AGNHOST, "mounttest", f"--new_file_0644=/host/{name}"],
            "volumeMounts": [{"name": "host", "mountPath": "/host"}],
        },
        {
            "name": EMPTY_DIRS,
            "command": [AGNHOST, "mounttest", *written],
            "volumeMounts": [{"name": place, "mountPath": f"/{place}"} for place in _EMPTY],
        },
    )
    kept = {"image": images[machine.os], "imagePullPolicy": "IfNotPresent"}
    volumes = [{"name": "host", "hostPath": host}]
    volumes += [{"name": place, "emptyDir": {}} for place in _EMPTY]
    labels = {**owner.labels(), POD: name}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            **pin_to_node(machine),
            "restartPolicy": "Never",
            "volumes": volumes,
            "containers": [{**container, **kept} for container in containers],
        },
    }


def _variable(name: str, kind: str) -> Object:
    return {"name": name, "valueFrom": {kind: {"name": _SOURCE, "key": _KEY}}}


def has_ended(created: Mapping[str, Any]) -> bool:
    """Whether all containers of a pod have ended."""
    statuses = (created.get("status") or {}).get("containerStatuses") or ()
    states = [status.get("state") or {} for status in statuses]
    return len(states) == len(CONTAINERS) and all("terminated" in state for state in states)


def judge(
    machine: MachineIntent,
    created: Mapping[str, Any],
    log: str,
    values: Values,
    summary: Mapping[str, Any] | str,
) -> tuple[WorkloadResult, ...]:
    """Judge every check of one node.

    ``machine``: the node. ``created``: its pod from the API, all containers ended. ``log``: output
    of the container ``environment``. ``values``: what that output should contain. ``summary``: the
    kubelet's ``/stats/summary``, or why there is none.
    """
    complaints: dict[Check, str] = {
        "secret": _environment(created, log, f"s={values.secret}", "Secret"),
        "config-map": _environment(created, log, f"c={values.config}", "ConfigMap"),
        "host-path": _exit(created, HOST_PATH),
        "empty-dirs": _exit(created, EMPTY_DIRS),
        "node-selector": _place(machine, created),
        "pod-metrics": summary if isinstance(summary, str) else _pod_metrics(summary),
        "node-metrics": summary if isinstance(summary, str) else _node_metrics(summary),
    }
    return tuple(
        WorkloadResult(
            machine.name, check, "fail" if complaints[check] else "pass", complaints[check]
        )
        for check in CHECKS
    )


def unmade(machine: MachineIntent, why: str) -> tuple[WorkloadResult, ...]:
    """A result for every check of a node on which none could run."""
    return tuple(WorkloadResult(machine.name, check, "probe-error", why) for check in CHECKS)


def _environment(created: Mapping[str, Any], log: str, word: str, source: str) -> str:
    """Judge an environment variable; the reason never contains its value."""
    failed = _exit(created, ENVIRONMENT)
    if failed:
        return failed
    words = log.replace("[", " ").replace("]", " ").split()
    return "" if word in words else f"the variable does not have the value of the {source}"


def _exit(created: Mapping[str, Any], container: str) -> str:
    for status in (created.get("status") or {}).get("containerStatuses") or ():
        if status["name"] == container:
            done = (status.get("state") or {}).get("terminated") or {}
            code, why = done.get("exitCode"), done.get("message") or done.get("reason") or ""
            if code == 0:
                return ""
            return f"container '{container}' ended with exit code {code} {why}".strip()
    return f"there is no container '{container}'"


def _place(machine: MachineIntent, created: Mapping[str, Any]) -> str:
    node = created.get("spec", {}).get("nodeName")
    selector = f"kubernetes.io/hostname={machine.name}, kubernetes.io/os={machine.os}"
    return "" if node == machine.name else f"the scheduler chose node '{node}' for {selector}"


def _pod_metrics(summary: Mapping[str, Any]) -> str:
    own = [
        metrics
        for metrics in summary.get("pods") or ()
        if (metrics.get("podRef") or {}).get("namespace") == NAMESPACE
    ]
    if not own:
        return "the kubelet has no metrics of any probe pod"
    if any(map(_is_measured, own)):
        return ""
    return "the kubelet's metrics of pods have neither CPU time nor memory"


def _node_metrics(summary: Mapping[str, Any]) -> str:
    if _is_measured(summary.get("node") or {}):
        return ""
    return "the kubelet's metrics of the node have neither CPU time nor memory"


def _is_measured(container: Mapping[str, Any]) -> bool:
    """Whether the metrics hold CPU time since the start and memory in use."""
    cpu, memory = container.get("cpu") or {}, container.get("memory") or {}
    return "usageCoreNanoSeconds" in cpu and "workingSetBytes" in memory
