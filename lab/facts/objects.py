"""A cluster's objects of the Kubernetes API that decide where packets go: read, and compared. Pure.

What the lab and its network add-on made is compared with what the API server says now. Left out by
rule: what controllers write (status, endpoints of their own, generations), objects that users add
to run something, and pods, which come and go; of these only what is not ready is told.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.facts.difference import OBJECT, Change, Difference
from lab.facts.questions import ADMIN, HEAD, TAIL, answers
from lab.facts.ruleset import changed_lines
from lab.shells.shell import Script
from lab.topology.subject import ApiSubject, MachineSubject, PodSubject, ServiceSubject, Subject

"""The place that stands for the cluster's objects; no machine or pod has this name. Its name in
messages."""
EVERY_SERVICE, EVERY_POD = ServiceSubject(), PodSubject("")
"""What an object concerns that configures kube-proxy, or the network of all pods."""

_KUBECTL = f"kubectl --kubeconfig={ADMIN}"
_CALICO = ("ippools", "felixconfigurations", "bgpconfigurations", "bgppeers", "bgpfilters",
           "globalnetworkpolicies", "networkpolicies", "hostendpoints")  # fmt: skip
_KUBERNETES = ("namespaces", "nodes", "services", "endpointslices", "configmaps", "daemonsets",
               "deployments", "pods", "networkpolicies.networking.k8s.io")  # fmt: skip
_CRD = "crd.projectcalico.org"
_ASK = "ask {what} {kubectl} --request-timeout=10s get {kinds} --all-namespaces -o json"
OBJECTS_COMMAND = (
    *("sh", "-c"),
    Script("\n".join((
        HEAD,
        _ASK.format(what="kubernetes", kubectl=_KUBECTL, kinds=",".join(_KUBERNETES)),
        _ASK.format(
            what="calico", kubectl=_KUBECTL, kinds=",".join(f"{kind}.{_CRD}" for kind in _CALICO)
        ),
        TAIL,
    )), "lab/facts/objects.py"),
)  # fmt: skip
"""Asked on a control plane; Calico's kinds have no answer where it is not installed."""

Object = Mapping[str, Any]
_Key = tuple[str, str, str]
_SPACES = re.compile(r"kube-system|kube-flannel|calico-\S+|tigera-\S+|hybridlab-probe")
"""Namespaces with what the lab and its add-on made."""
_OWN_CHANGE = re.compile(r"kube-root-ca\.crt|extension-apiserver-authentication|\S*tracking")
_COMPARED = frozenset({"Service", "ConfigMap", "DaemonSet", "Deployment", "Node"})
_POLICIES = frozenset({"NetworkPolicy", "GlobalNetworkPolicy", "HostEndpoint"})
_CONTROLLER = "endpointslice-controller.k8s.io"
_ANNOTATIONS = re.compile(
    r"flannel\.alpha\.coreos\.com/.*|projectcalico\.org/(?:ASNumber|IPv4Address)"
)
_CONDITION = re.compile(r"node\.kubernetes\.io/")
"""Taints that follow from a node's conditions."""
_SHOWN = 3
READY = "ready"
"""The attribute of what is not ready, although it is specified as it was."""


@dataclass(frozen=True, slots=True)
class Objects:
    """What the API server answered."""

    by_key: Mapping[_Key, Object]
    """By kind, namespace and name."""

    @property
    def cluster(self) -> str:
        """The cluster's own id; empty if the API server did not answer."""
        return str(self.by_key.get(("Namespace", "", "kube-system"), {}).get("uid", ""))

    def of(self, kind: str, namespace: str | None = None) -> Iterator[tuple[str, Object]]:
        """Name and object of every one of a kind."""
        for (own_kind, space, name), resource in self.by_key.items():
            if own_kind == kind and namespace in {None, space}:
                yield name, resource


def read_objects(stdout: str) -> Objects:
    """Parse the command's output."""
    resources: dict[_Key, Object] = {}
    for answer in answers(stdout, "").values():
        for item in json.loads(answer.text or "{}").get("items", ()):
            meta = item["metadata"]
            key = (item["kind"], meta.get("namespace", ""), meta["name"])
            resources[key] = {**item, "uid": meta.get("uid", "")}
    return Objects(resources)


def compare_objects(made: Objects, now: Objects) -> tuple[Difference, ...]:
    """Every difference: what is specified otherwise before what is not ready.

    None if either is of no cluster, or both are of different ones.
    """
    if not made.cluster or made.cluster != now.cluster:
        return ()
    every = {**made.by_key, **now.by_key}
    # what runs on a node writes its annotations
    differs = (_compare(key, made, now) for key in sorted(every, key=lambda key: key[0] == "Node"))
    return (*(difference for difference in differs if difference), *_not_ready(made, now))


def _compare(key: _Key, made: Objects, now: Objects) -> Difference | None:
    kind, space, name = key
    was, is_now = made.by_key.get(key), now.by_key.get(key)
    of_add_on = "projectcalico" in str((was or is_now or {}).get("apiVersion"))
    if kind == "EndpointSlice":
        labels = (was or is_now or {})["metadata"].get("labels") or {}
        if labels.get("endpointslice.kubernetes.io/managed-by") == _CONTROLLER:
            return None
    elif (kind not in _COMPARED | _POLICIES and not of_add_on) or (
        kind in _COMPARED
        and (
            was is None
            or (space and not _SPACES.fullmatch(space))
            or (kind == "ConfigMap" and _OWN_CHANGE.fullmatch(name))
        )
    ):
        return None
    elif kind == "Node" and (is_now is None or (was or {}).get("uid") != is_now["uid"]):
        return None  # it joined anew, with a tunnel of its own
    change: Any = "new" if was is None else "gone" if is_now is None else "changed"
    before, after = _compared(was), _compared(is_now)
    if before.get("spec/replicas") and after.get("spec/replicas"):
        del before["spec/replicas"], after["spec/replicas"]  # scaled, but not to nothing
    if change == "changed" and before == after:
        return None
    intended, observed = "there", "there is none"
    if change == "new":
        intended, observed = "none", f"there is one: {_words({}, after)[1]}"
    elif change == "changed":
        intended, observed = _words(before, after)
    at = f" --namespace={space}" if space else ""
    plural = f"{kind.lower()}.{_CRD}" if of_add_on else kind.lower()
    return _differs(
        key,
        (intended, observed),
        f"{_KUBECTL}{at} get {plural} {name} -o yaml",
        _mends(f"{_KUBECTL}{at}", plural, key, was, before, after, made),
        change=change,
        concerns=_concerns(key, was or is_now or {}, made, now),
    )


def _differs(  # noqa: PLR0913  a difference is all of these
    key: _Key,
    words: tuple[str, str],
    shows: str,
    mends: str,
    *,
    change: Change = "changed",
    attribute: str = "",
    concerns: Iterable[Subject] = (),
) -> Difference:
    kind, space, name = key
    subject = ApiSubject(kind, space, name)
    return Difference(
        *(OBJECT, "", "", str(subject), *words, shows, mends, ""),
        subject=subject,
        attribute=attribute,
        change=change,
        values=(*_new_values(*words), name),
        section="object",
        concerns=tuple(("", concern) for concern in concerns),
    )


_WORD = re.compile(r"[\w.:-]{3,}")
_VALUE = re.compile(r"\d|^(?:[A-Fa-f]{2}:){5}[A-Fa-f]{2}$")
"""What is found again elsewhere: numbers, addresses, and MACs, which may be of letters alone."""


def _new_values(before: str, after: str) -> Iterator[str]:
    """The values of fields that were not there before."""
    new = {*_WORD.findall(after)} - {*_WORD.findall(before)}
    yield from (word for word in sorted(new) if _VALUE.search(word))


def _compared(resource: Object | None) -> dict[str, Any]:
    """The fields that are compared, by JSON pointer without a leading slash."""
    if resource is None:
        return {}
    fields = {f"spec/{key}": value for key, value in (resource.get("spec") or {}).items()}
    fields |= {f"data/{key}": value for key, value in (resource.get("data") or {}).items()}
    if "spec/template" in fields:  # of a restart
        template = json.loads(json.dumps(fields["spec/template"]))
        template.get("metadata", {}).pop("annotations", None)
        fields["spec/template"] = template
    if resource["kind"] == "Node":
        notes = resource["metadata"].get("annotations") or {}
        fields |= {
            f"metadata/annotations/{key.replace('/', '~1')}": value
            for key, value in notes.items()
            if _ANNOTATIONS.fullmatch(key)
        }
        taints = [
            taint for taint in fields.pop("spec/taints", ()) if not _CONDITION.match(taint["key"])
        ]
        fields |= {"spec/taints": taints} if taints else {}
    if resource["kind"] == "EndpointSlice":
        ends = [end.get("addresses") for end in resource.get("endpoints") or ()]
        fields |= {"endpoints": ends, "ports": resource.get("ports")}
    return fields


def _words(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, str]:
    """What should be there and what is, of the fields that differ."""
    flat = [
        {
            name: value
            for field, content in side.items()
            for name, value in _flat(content, field.replace("/", ".").replace("~1", "/"))
        }
        for side in (before, after)
    ]
    keys = [key for key in {**flat[0], **flat[1]} if flat[0].get(key) != flat[1].get(key)]
    keys = [*dict.fromkeys(_whole(key, flat) for key in keys)]
    listed: list[list[str]] = [[], []]
    for key in keys:
        old, new = (_said(key, side) for side in flat)
        if "\n" in old or "\n" in new:
            old, new = changed_lines(old, new)
        listed[0].append(f"{key} {old}")
        listed[1].append(f"{key} {new}")
    more = [f"{len(keys) - _SHOWN} more"] if len(keys) > _SHOWN else []
    intended, observed = (", ".join([*side[:_SHOWN], *more]) for side in listed)
    return intended, observed


def _whole(key: str, sides: Sequence[Mapping[str, Any]]) -> str:
    """The element of a list that a field is of, if one side lacks all of it; else the field."""
    element = f"{key.rpartition('].')[0]}]"
    lacking = any(not any(field.startswith(element) for field in side) for side in sides)
    return element if "]." in key and lacking else key


def _said(key: str, side: Mapping[str, Any]) -> str:
    present = key.endswith("]") and any(field.startswith(key) for field in side)
    return str(side.get(key, "there" if present else "not set"))


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}")
    elif isinstance(value, list) and any(isinstance(element, Mapping) for element in value):
        for number, inner in enumerate(value):
            name = inner.get("name", number) if isinstance(inner, Mapping) else number
            yield from _flat(inner, f"{path}[{name}]")
    else:
        yield path, value


def _mends(  # noqa: PLR0913, PLR0917  what a command is made of
    kubectl: str,
    plural: str,
    key: _Key,
    was: Object | None,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    made: Objects,
) -> str:
    kind, space, name = key
    if was is None:
        return f"{kubectl} delete {plural} {name}"
    if not after:
        meta = {field: was["metadata"][field] for field in ("name", "namespace", "labels")
                if field in was["metadata"]}  # fmt: skip
        kept = {
            field: was[field] for field in ("apiVersion", "kind", "spec", "data") if field in was
        }
        text = json.dumps({**kept, "metadata": meta}, separators=(",", ":"))
        return f"printf %s {shlex.quote(text)} | {_KUBECTL} create -f -"
    if kind == "EndpointSlice":
        return f"{kubectl} delete {plural} {name}"
    patch = [
        {"op": "remove", "path": f"/{field}"}
        if field not in before
        else {"op": "add", "path": f"/{field}", "value": before[field]}
        for field in {**before, **after}
        if before.get(field) != after.get(field)
    ]
    text = json.dumps(patch, separators=(",", ":"))
    line = f"{kubectl} patch {plural} {name} --type=json -p {shlex.quote(text)}"
    users = " ".join(_mounted_by(made, space, name)) if kind == "ConfigMap" else ""
    return f"{line} && {kubectl} rollout restart {users}" if users else line


def _mounted_by(objects: Objects, space: str, config: str) -> Iterator[str]:
    for (kind, namespace, name), workload in objects.by_key.items():
        if kind in {"DaemonSet", "Deployment"} and namespace == space:
            volumes = workload["spec"]["template"]["spec"].get("volumes") or ()
            if config in {(volume.get("configMap") or {}).get("name") for volume in volumes}:
                yield f"{kind.lower()}/{name}"


def _concerns(key: _Key, resource: Object, made: Objects, now: Objects) -> Iterator[Subject]:
    """What an object has to do with: a Service, a pod, a node; or every one of them."""
    kind, space, name = key
    spec, labels = resource.get("spec") or {}, resource["metadata"].get("labels") or {}
    if kind == "Service":
        yield ServiceSubject(name)
    elif kind == "EndpointSlice":
        yield ServiceSubject(labels.get("kubernetes.io/service-name", ""))
    elif kind in {"DaemonSet", "Deployment"}:
        yield from _of_workload(key, spec["template"], made)
    elif kind == "ConfigMap":
        for user in _mounted_by(made, space, name):
            of = "DaemonSet" if user.startswith("daemonset/") else "Deployment"
            other = (of, space, user.partition("/")[2])
            yield from _of_workload(other, made.by_key[other]["spec"]["template"], made)
    elif kind == "NetworkPolicy":
        wanted = ((spec.get("podSelector") or {}).get("matchLabels") or {}).items()
        for pod, manifest in now.of("Pod", space):
            if wanted <= (manifest["metadata"].get("labels") or {}).items():
                yield PodSubject(pod)
    else:
        node = {
            "Node": name,
            "HostEndpoint": spec.get("node"),
            "FelixConfiguration": name.removeprefix("node.") if name != "default" else None,
        }.get(kind)
        yield MachineSubject(node) if node else EVERY_POD


def _of_workload(key: _Key, template: Object, made: Objects) -> Iterator[Subject]:
    kind, space, name = key
    labels = template["metadata"].get("labels") or {}
    for service, manifest in made.of("Service", space):
        selector = manifest["spec"].get("selector")
        if selector and selector.items() <= labels.items():
            yield ServiceSubject(service)
    if kind == "DaemonSet" and template["spec"].get("hostNetwork"):
        yield EVERY_SERVICE if name == "kube-proxy" else EVERY_POD


def _not_ready(made: Objects, now: Objects) -> Iterator[Difference]:
    """Nodes, pods of workloads and backends that are not ready, and were."""
    for name, node in now.of("Node"):
        condition = _condition(node, "Ready")
        was = _condition(made.by_key.get(("Node", "", name), {}), "Ready")
        if was.get("status") == "True" != condition.get("status"):
            why = f"{condition.get('reason', '')}: {condition.get('message', '')}"
            yield _differs(
                ("Node", "", name),
                ("Ready", f"not Ready: {why}"),
                f"{_KUBECTL} describe node {name}",
                "see what its kubelet says: journalctl -u kubelet",
                attribute=READY,
                concerns=(MachineSubject(name), EVERY_SERVICE),
            )
    for (kind, space, name), workload in now.by_key.items():
        if kind in {"DaemonSet", "Deployment"} and _SPACES.fullmatch(space):
            wanted, ready = _replicas(kind, workload)
            if ready >= wanted:
                continue
            whose = name if kind == "DaemonSet" else f"{name}-"
            why = "; ".join(_troubles(now, space, whose)) or "its pods are missing"
            yield _differs(
                (kind, space, name),
                (f"{wanted} pods ready", f"{ready} of {wanted} ready: {why}"),
                f"{_KUBECTL} --namespace={space} describe pods",
                "undo its last change (kubectl rollout undo), or fix what its pods say",
                attribute=READY,
                concerns=_of_workload((kind, space, name), workload["spec"]["template"], made),
            )
    yield from _without_backends(made, now)


def _replicas(kind: str, workload: Object) -> tuple[int, int]:
    status = workload.get("status") or {}
    if kind == "DaemonSet":
        return status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    return workload["spec"].get("replicas", 1), status.get("readyReplicas", 0)


def _troubles(now: Objects, space: str, whose: str) -> Iterator[str]:
    """Why pods are not ready, as scheduler and kubelet say."""
    for name, manifest in now.of("Pod", space):
        owners = manifest["metadata"].get("ownerReferences") or ()
        ready = _condition(manifest, "Ready").get("status") == "True"
        if ready or not any(str(owner["name"]).startswith(whose) for owner in owners):
            continue
        status = manifest.get("status") or {}
        told = [_condition(manifest, "PodScheduled")]
        for each in status.get("containerStatuses") or ():
            told += [*(each.get("state") or {}).values(), *(each.get("lastState") or {}).values()]
        reasons = [
            f"{each['reason']} {each.get('message', '')}".strip()
            for each in told
            if "reason" in each
        ]
        node = manifest.get("spec", {}).get("nodeName", "no node")
        yield f"pod {name} on {node}: {', '.join(reasons) or status.get('phase')}"


def _without_backends(made: Objects, now: Objects) -> Iterator[Difference]:
    was, are = _backends(made), _backends(now)
    for (space, name), number in was.items():
        service = now.by_key.get(("Service", space, name))
        if service is None or len(are.get((space, name), ())) >= len(number):
            continue
        selector = (service["spec"].get("selector") or {}).items()
        behind = [
            (pod, manifest)
            for pod, manifest in now.of("Pod", space)
            if selector <= (manifest["metadata"].get("labels") or {}).items()
        ]
        why = "" if behind else ": no pod has the labels of its selector"
        lost = [
            pod for pod, manifest in behind if _condition(manifest, "Ready").get("status") != "True"
        ]
        why = f": {', '.join(f'pod {pod}' for pod in lost)} not ready" if lost else why
        observed = f"{len(are.get((space, name), ()))} ready backends{why}"
        yield _differs(
            ("Service", space, name),
            (f"{len(number)} ready backends", observed),
            f"{_KUBECTL} --namespace={space} describe service {name}",
            "see why its pods are not ready, or have other labels than its selector",
            attribute=READY,
            concerns=(ServiceSubject(name),),
        )


def _backends(objects: Objects) -> Mapping[tuple[str, str], Sequence[str]]:
    backends: dict[tuple[str, str], list[str]] = {}
    for (kind, space, _), endpoint_slice in objects.by_key.items():
        if kind == "EndpointSlice" and _SPACES.fullmatch(space):
            labels = endpoint_slice["metadata"].get("labels") or {}
            service = space, labels.get("kubernetes.io/service-name", "")
            backends.setdefault(service, []).extend(
                address
                for end in endpoint_slice.get("endpoints") or ()
                if (end.get("conditions") or {}).get("ready") is not False
                for address in end.get("addresses") or ()
            )
    return backends


def _condition(resource: Object, name: str) -> Mapping[str, str]:
    every: Iterable[Mapping[str, str]] = (resource.get("status") or {}).get("conditions") or ()
    return next((each for each in every if each["type"] == name), {})
