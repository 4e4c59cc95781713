"""What is wrong in an existing cluster, as the API alone shows it. Pure.

Compared are objects with each other: Services with EndpointSlices with pods, nodes with their
conditions, DaemonSets and the DNS with their pods; and policies that select the probe pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.facts.difference import OBJECT, Change, Concern, Difference, make_unread
from lab.facts.objects import READY
from lab.machines.attached.recognise import is_network_daemon
from lab.machines.attached.record import AttachedRecord
from lab.machines.cluster.obstacles import condition, selects
from lab.topology.intent import Intent
from lab.topology.observed import LAB, POD, read_pod
from lab.topology.proxying import probed_services
from lab.topology.subject import ApiSubject, MachineSubject, PodSubject, ServiceSubject, Subject

Object = Mapping[str, Any]

_TROUBLES = frozenset({
    *("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"),
    *("KernelDeadlock", "ReadonlyFilesystem", "FrequentKubeletRestart"),
    *("FrequentContainerdRestart", "FrequentUnregisterNetDevice"),
})  # fmt: skip
"""Conditions of nodes that mean trouble when they are True: the kubelet's and those of the Node
Problem Detector. Others may mean that all is well, such as ``EtcdIsVoter``."""


@dataclass(frozen=True, slots=True)
class ApiState:
    """The objects that are compared; None where the user may not read them."""

    nodes: Sequence[Object] | None = None
    pods: Sequence[Object] | None = None
    """Those of every namespace, or else of the lab's own."""
    services: Sequence[Object] | None = None
    """Those of the lab's namespace, as the next ones."""
    slices: Sequence[Object] | None = None
    dns_slices: Sequence[Object] | None = None
    """Those of the namespace of the DNS."""
    policies: Sequence[Object] | None = None
    refusals: tuple[tuple[str, str], ...] = ()
    """What may not be read, and what the API server says."""


def find_differences(
    record: AttachedRecord, intent: Intent, state: ApiState
) -> tuple[Difference, ...]:
    """Everything that is wrong, by kind."""
    finder = _Finder(record)
    return (
        *finder.of_services(intent, state),
        *finder.of_dns(state),
        *finder.of_policies(state),
        *finder.of_daemons(state),
        *finder.of_nodes(intent, state),
        *(make_unread(*refusal) for refusal in state.refusals),
    )


@dataclass(frozen=True, slots=True)
class _Finder:
    record: AttachedRecord

    def of_services(self, intent: Intent, state: ApiState) -> Iterator[Difference]:
        """The lab's Services: those that are missing, select otherwise, or have no backends."""
        if state.services is None:
            return
        space = self.record.namespace
        services = {item["metadata"]["name"]: item for item in state.services}
        pods = {
            item["metadata"]["name"]: item
            for item in state.pods or ()
            if item["metadata"].get("namespace") == space
        }
        for service in probed_services(intent):
            key = ApiSubject("Service", space, service.name)
            concerns = (ServiceSubject(service.name),)
            at = f"--namespace={space}"
            made = services.get(service.name)
            if made is None:
                yield self._differ(
                    key, "a Service", "it does not exist", f"{at} get services", concerns, "gone"
                )
                continue
            wanted = {end.pod for end in service.backends}
            selector = (made.get("spec") or {}).get("selector") or {}
            selected = {name for name, pod in pods.items() if pod and _selects(selector, pod)} & (
                wanted | pods.keys()
            )
            shows = f"{at} describe service {service.name}"
            if wanted & pods.keys() and not wanted & selected:
                yield self._differ(
                    key,
                    f"its selector selects {', '.join(sorted(wanted))}",
                    f"its selector {_words(selector)} selects no probe pod",
                    shows,
                    concerns,
                )
                continue
            if state.slices is None:
                continue
            ready = _find_ready(state.slices, service.name, pods)
            for name in sorted(wanted & pods.keys()):
                address = read_pod(pods[name]).address
                if name in ready and address and ready[name] != address:
                    yield self._differ(
                        ApiSubject("EndpointSlice", space, service.name),
                        f"{address}, the address of pod {name}",
                        f"it has {ready[name]}",
                        f"{at} get endpointslices -o wide",
                        concerns,
                    )
            missing = sorted(wanted & pods.keys() - ready.keys())
            if missing:
                why = ", ".join(f"pod {name}: {_pod_state(pods[name])}" for name in missing)
                yield self._differ(
                    key,
                    f"ready backends {', '.join(sorted(wanted))}",
                    f"no ready backend {', '.join(missing)} ({why})",
                    shows,
                    concerns,
                    attribute=READY,
                )

    def of_dns(self, state: ApiState) -> Iterator[Difference]:
        """A DNS Service without ready backends."""
        dns = self.record.cluster.dns
        if dns is None or state.dns_slices is None:
            return
        if not any(_ready_ends(state.dns_slices, dns.service)):
            yield self._differ(
                ApiSubject("Service", dns.namespace, dns.service),
                "a ready backend",
                "it has no ready backend, so DNS queries get no answer",
                f"--namespace={dns.namespace} get pods,endpointslices -o wide",
                (ServiceSubject(dns.service),),
                attribute=READY,
            )

    def of_policies(self, state: ApiState) -> Iterator[Difference]:
        """Policies that select the lab's pods."""
        space = self.record.namespace
        own = [
            item
            for item in state.pods or ()
            if item["metadata"].get("namespace") == space
            and LAB in (item["metadata"].get("labels") or {})
        ]
        for policy in state.policies or ():
            name, spec = policy["metadata"]["name"], policy.get("spec") or {}
            chosen = [
                pod for pod in own if selects(spec.get("podSelector"), pod["metadata"]["labels"])
            ]
            if chosen:
                kinds = ", ".join(spec.get("policyTypes") or ("Ingress",))
                yield self._differ(
                    ApiSubject("NetworkPolicy", space, name),
                    "no policy selects the probe pods",
                    f"it restricts {kinds} of {len(chosen)} probe pods",
                    f"--namespace={space} describe networkpolicy {name}",
                    tuple(PodSubject(pod["metadata"]["labels"].get(POD, "")) for pod in chosen),
                    "new",
                )

    def of_daemons(self, state: ApiState) -> Iterator[Difference]:
        """Pods of kube-proxy and of the network plug-in that are not ready."""
        for pod in state.pods or ():
            owners = pod["metadata"].get("ownerReferences") or ()
            daemon = next((o["name"] for o in owners if o.get("kind") == "DaemonSet"), "")
            node = (pod.get("spec") or {}).get("nodeName")
            if not is_network_daemon(daemon) or not node:
                continue
            if condition(pod, "Ready").get("status") != "True":
                space, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
                subjects: tuple[Subject, ...] = (MachineSubject(node),)
                yield self._differ(
                    ApiSubject("Pod", space, name),
                    "Ready",
                    f"it is not ready on {node}: {_pod_state(pod)}",
                    f"--namespace={space} describe pod {name}",
                    subjects,
                    attribute=READY,
                )

    def of_nodes(self, intent: Intent, state: ApiState) -> Iterator[Difference]:
        """Nodes that are not Ready, and those with a condition that is known to mean trouble."""
        probed = {machine.name for machine in intent.machines}
        for node in state.nodes or ():
            name = node["metadata"]["name"]
            ready = condition(node, "Ready")
            troubles = [
                f"{each['type']}: {each.get('reason') or each.get('message', '')}"
                for each in (node.get("status") or {}).get("conditions") or ()
                if each["type"] in _TROUBLES and each.get("status") == "True"
            ]
            if ready.get("status") != "True":
                troubles.insert(
                    0, f"not Ready: {ready.get('reason', '')} {ready.get('message', '')}"
                )
            if troubles and name in probed:
                yield self._differ(
                    ApiSubject("Node", "", name),
                    "Ready, without trouble",
                    "; ".join(trouble.strip() for trouble in troubles),
                    f"describe node {name}",
                    (MachineSubject(name),),
                    attribute=READY,
                )

    def _differ(  # noqa: PLR0913, PLR0917  a difference is all of these
        self,
        subject: ApiSubject,
        intended: str,
        observed: str,
        shows: str,
        concerns: Iterable[Subject],
        change: Change = "changed",
        *,
        attribute: str = "",
    ) -> Difference:
        command = self.record.address.kubectl(shows)
        met: tuple[Concern, ...] = tuple(("", concern) for concern in concerns)
        return Difference(
            *(OBJECT, "", subject.name if subject.kind == "Node" else "", str(subject)),
            *(intended, observed, command, "see what it says", ""),
            subject=subject,
            attribute=attribute,
            change=change,
            concerns=met,
        )


def _selects(selector: Mapping[str, str], pod: Object) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return bool(selector) and selector.items() <= labels.items()


def _words(selector: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items())) or "(none)"


def _pod_state(pod: Object) -> str:
    state = read_pod(pod)
    return state.trouble or (state.phase if not state.ready else "Ready")


def _find_ready(
    slices: Iterable[Object], service: str, pods: Mapping[str, Object]
) -> dict[str, str]:
    """Pod and address of each ready endpoint of a Service.

    Of an endpoint that names no pod, it is the one with its address.
    """
    names = {read_pod(pod).address: name for name, pod in pods.items()}
    return {
        name: address
        for target, address in _ready_ends(slices, service)
        if (name := target or names.get(address, ""))
    }


def _ready_ends(slices: Iterable[Object], service: str) -> Iterator[tuple[str, str]]:
    """Pod, or nothing if it names none, and address of each ready endpoint of a Service."""
    for item in slices:
        labels = item["metadata"].get("labels") or {}
        if labels.get("kubernetes.io/service-name") != service:
            continue
        for end in item.get("endpoints") or ():
            if (end.get("conditions") or {}).get("ready") is not False:
                target = (end.get("targetRef") or {}).get("name", "")
                yield target, next(iter(end.get("addresses") or ()), "")
