"""Why pods of a cluster cannot run: by typed fields of the API's objects, never by messages. Pure.

Some obstacles are certain: a pod that meets one does not run until somebody removes it. Others may
pass by themselves, and count only once a pod has waited for some time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lab.facts.questions import ADMIN
from lab.topology.intent import Obstacle

Object = Mapping[str, Any]
Objects = Mapping[str, Object]

_ASK = "ask who has made it, or use a namespace that it leaves out: '--namespace NAME'"
_CONDITION = "node.kubernetes.io/"
"""Prefix of the taints that follow from a node's conditions, and from a cordon."""
_BARRING = frozenset({"NoSchedule", "NoExecute"})
_SCHEDULER = "kube-scheduler"
_FULL = frozenset({"pods", "count/pods"})
_OF_PODS = ("requests.", "limits.", "cpu", "memory")
"""Beginnings of the resources that every new pod must then ask for."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Makes the command lines of messages. ``own``: whether the cluster is the lab's.

    In a cluster of others nobody is advised to change what they have set.
    """

    line: Callable[[str], str]
    own: bool = True

    def __call__(self, words: str) -> str:
        """A command line with these arguments of kubectl."""
        return self.line(words)

    def mend(self, words: str, otherwise: str) -> str:
        """A command line that changes the cluster if it is the lab's, else the other advice."""
        return self(words) if self.own else otherwise


on_control_plane = Kubectl(lambda words: f"kubectl {words} --kubeconfig={ADMIN}")
"""For a control plane of a lab's own cluster."""


def condition(resource: Object, kind: str) -> Object:
    """An object's condition of this type; empty if it has none."""
    conditions = (resource.get("status") or {}).get("conditions") or ()
    return next((candidate for candidate in conditions if candidate["type"] == kind), {})


def is_unscheduled(pod: Object) -> bool:
    """Whether the scheduler has looked at a pod and found no node for it."""
    scheduled = condition(pod, "PodScheduled")
    return scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"


def waits_for_scheduler(pod: Object) -> bool:
    """Whether no scheduler has looked at a pod."""
    return not (pod.get("spec") or {}).get("nodeName") and not condition(pod, "PodScheduled")


def closed_node(
    name: str, node: Object | None, tolerations: Iterable[Object], kubectl: Kubectl
) -> Obstacle | None:
    """What somebody has set on a node so that it takes no pods with these tolerations."""
    if node is None:
        return None
    spec = node.get("spec") or {}
    shows = kubectl(f"describe node {name}")
    if spec.get("unschedulable"):
        cordoned = "cordoned, and takes no new pods"
        mends = kubectl.mend(f"uncordon {name}", "wait until it is uncordoned, or see '--nodes'")
        return Obstacle(f"Node {name}", cordoned, shows, mends)
    tolerated = tuple(tolerations)
    for taint in barring_taints(node):
        if not any(_tolerates(toleration, taint) for toleration in tolerated):
            words = taint_words(taint)
            mends = kubectl.mend(f"taint nodes {name} {words}-", f"add '--tolerate {words}'")
            return Obstacle(f"Node {name}", f"has the taint {words}", shows, mends)
    return None


def barring_taints(node: Object) -> Iterator[Object]:
    """The taints that keep pods away, without those that follow from conditions or a cordon."""
    for taint in (node.get("spec") or {}).get("taints") or ():
        if taint["effect"] in _BARRING and not taint["key"].startswith(_CONDITION):
            yield taint


def taint_words(taint: Object) -> str:
    """A taint as kubectl writes it: ``dedicated=gpu:NoSchedule``."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in {None, "", taint["effect"]}:
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in {None, "", taint["key"]}
    same_value = (toleration.get("value") or "") == (taint.get("value") or "")
    return toleration.get("key") == taint["key"] and same_value


def remarks(nodes: Objects) -> Iterator[tuple[str, str]]:
    """Each node's name with what keeps new pods away from it.

    The taint of control planes is kubeadm's own and is left out.
    """
    for name, node in sorted(nodes.items()):
        if (node.get("spec") or {}).get("unschedulable"):
            yield name, "cordoned"
        for taint in barring_taints(node):
            if taint["key"] != "node-role.kubernetes.io/control-plane":
                yield name, f"taint {taint_words(taint)}"


def stopped_scheduler(leases: Objects, kubectl: Kubectl) -> Obstacle | None:
    """The scheduler, if its lease has run out by the time that other leases were renewed.

    ``leases``: those of ``kube-system``; API servers and the controller manager renew theirs every
    few seconds, so that no clock of this machine is needed.
    """
    lease = (leases.get(_SCHEDULER) or {}).get("spec") or {}
    renewed = _time(lease.get("renewTime"))
    newest = max(
        (time for lease in leases.values() if (time := _time(lease["spec"].get("renewTime")))),
        default=None,
    )
    if renewed is None or newest is None:
        return None
    silent = (newest - renewed).total_seconds()
    if silent <= float(lease.get("leaseDurationSeconds") or 0):
        return None
    return no_scheduler(kubectl)


def no_scheduler(kubectl: Kubectl) -> Obstacle:
    """A scheduler that looks at no pods."""
    return Obstacle(
        _SCHEDULER,
        "does not run: it looks at no new pods",
        kubectl(f"--namespace=kube-system get pods --selector=component={_SCHEDULER}"),
        f"start it again on a control plane: /etc/kubernetes/manifests/{_SCHEDULER}.yaml, or its "
        "unit",
    )


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None


def refusing_quota(quotas: Objects, namespace: str, kubectl: Kubectl) -> Obstacle | None:
    """The ResourceQuota of the namespace that lets no further pod in; a full one first."""
    partial = None
    for name, quota in sorted(quotas.items()):
        status = quota.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        at = f"--namespace={namespace}"
        made = (
            kubectl(f"{at} describe resourcequota {name}"),
            kubectl.mend(f"{at} delete resourcequota {name}", _ASK),
        )
        title = f"ResourceQuota {name} in namespace {namespace}"
        for resource in _FULL & hard.keys():
            if _number(used.get(resource)) >= _number(hard[resource]):
                return Obstacle(
                    title, f"{resource}: {used.get(resource)} of {hard[resource]}", *made
                )
        limited = sorted(resource for resource in hard if resource.startswith(_OF_PODS))
        if limited and partial is None:
            partial = Obstacle(title, f"limits {', '.join(limited)}", *made)
    return partial


def _number(text: object) -> float:
    try:
        return float(str(text))
    except ValueError:
        return 0.0


def matching_webhooks(
    configurations: Iterable[tuple[str, Object]],
    resource: str,
    labels: Mapping[str, str],
    namespace_labels: Mapping[str, str],
) -> Iterator[tuple[str, str, Object]]:
    """Webhooks that must agree to a new object: kind and name of the configuration, and webhook.

    ``configurations``: kind and object. ``resource``: of the core group, such as ``pods``.
    Conditions in CEL are taken to hold.
    """
    for kind, configuration in configurations:
        for webhook in configuration.get("webhooks") or ():
            if (
                webhook.get("failurePolicy", "Fail") == "Fail"
                and any(_is_about(rule, resource) for rule in webhook.get("rules") or ())
                and selects(webhook.get("namespaceSelector"), namespace_labels)
                and selects(webhook.get("objectSelector"), labels)
            ):
                yield kind, configuration["metadata"]["name"], webhook


def _is_about(rule: Object, resource: str) -> bool:
    return (
        bool({"", "*"} & {*rule.get("apiGroups", ())})
        and bool({"CREATE", "*"} & {*rule.get("operations", ())})
        and bool({resource, "*", "*/*"} & {*rule.get("resources", ())})
    )


def selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector selects an object with these labels; an empty one selects all."""
    wanted = (selector or {}).get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    for expression in (selector or {}).get("matchExpressions") or ():
        key, values = expression["key"], expression.get("values") or ()
        holds = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not holds.get(expression["operator"], True):
            return False
    return True


def service_of(webhook: Object) -> tuple[str, str] | None:
    """Namespace and name of the Service that a webhook is asked through; None for a URL."""
    service = (webhook.get("clientConfig") or {}).get("service")
    return (service["namespace"], service["name"]) if service else None


def failing_webhook(
    matching: Iterable[tuple[str, str, Object]],
    backends: Mapping[tuple[str, str], int],
    kubectl: Kubectl,
) -> Obstacle | None:
    """The webhook that lets nothing in; first one whose Service has no ready backend.

    ``backends``: the number of ready ones of each webhook's Service.
    """
    webhooks = list(matching)
    webhooks.sort(key=lambda entry: backends.get(service_of(entry[2]) or ("", ""), 1) > 0)
    if not webhooks:
        return None
    kind, name, webhook = webhooks[0]
    service = service_of(webhook)
    place = f"its Service is {'/'.join(service)}" if service else "it is outside the cluster"
    bare = ", which has no ready backend" if service and not backends.get(service) else ""
    return Obstacle(
        f"{kind} {name}",
        f"webhook {webhook['name']} fails; {place}{bare}",
        kubectl(f"get {kind.lower()} {name} -o yaml"),
        kubectl.mend(f"delete {kind.lower()} {name}", _ASK),
    )


def make_foreign(kind: str, name: str, namespace: str, kubectl: Kubectl) -> Obstacle:
    """An object of the wanted name that the lab has not made."""
    at = f"--namespace={namespace} " if kind != "Namespace" else ""
    return Obstacle(
        f"{kind} {name}",
        "it exists and is not the lab's",
        kubectl(f"{at}get {kind.lower()} {name} --show-labels"),
        "give the lab another name, or use another namespace",
    )


def make_refusal(reason: str, namespace: str, kubectl: Kubectl) -> Obstacle:
    """An API server that refuses pods for another reason."""
    return Obstacle(
        f"Namespace {namespace}",
        f"the API server refuses its pods: {reason}",
        kubectl(f"get namespace {namespace} -o yaml"),
        "see what the answer names: a policy or a webhook",
    )


def make_waiting_pod(
    pod: str, node: str, reasons: Iterable[str], namespace: str, kubectl: Kubectl
) -> Obstacle:
    """A pod that does not start; ``reasons``: those of its conditions, containers and events."""
    why = ", ".join(dict.fromkeys(reasons)) or "no reason given"
    return Obstacle(
        f"Node {node}",
        f"a pod does not start there: {why}",
        kubectl(f"--namespace={namespace} describe pod {pod}"),
        "see what its kubelet says: journalctl -u kubelet",
    )


def reasons(pod: Object, node: Object | None, events: Iterable[Object]) -> Iterator[str]:
    """Why a pod is not running: reasons of its node, its conditions, containers and events."""
    ready = condition(node or {}, "Ready")
    if ready and ready.get("status") != "True":
        yield str(ready.get("reason") or "NotReady")
    for met in (pod.get("status") or {}).get("conditions") or ():
        if met.get("status") == "False" and met.get("reason") not in {None, "ContainersNotReady"}:
            yield str(met["reason"])
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        for state in (container.get("state") or {}).values():
            if state.get("reason") not in {None, "ContainerCreating"}:
                yield str(state["reason"])
    for event in events:
        if event.get("type") == "Warning" and event.get("reason"):
            yield str(event["reason"])
