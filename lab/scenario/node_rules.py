"""Rules about nodes: names, roles, versions, images and how many there may be."""

from __future__ import annotations

from collections.abc import Iterator

from lab.scenario.findings import Key, Problem, did_you_mean, quoted
from lab.scenario.names import node_names, pod_names, probe_pods
from lab.scenario.reserved import NAMES
from lab.scenario.scenario import NodeGroup, Scenario
from lab.scenario.schema import MAX_NODES
from lab.scenario.versions import (
    MAX_SKEW,
    REFUSED_IMAGES,
    SUPPORTED,
    WINDOWS_IMAGES,
    minor,
    unsupported,
)

NETBIOS = 15
"""Characters of a Windows computer name (NetBIOS)."""

MAX_NODE_NAME = 63 - len("to-") - len("-p250")
"""The Service of a node's pod, to-NODE-pN, must be a DNS label as well."""


def too_many_nodes(scenario: Scenario) -> Iterator[Problem]:
    """More nodes than a lab can have."""
    nodes = sum(group.count for group in scenario.nodes)
    if nodes > MAX_NODES:
        what = f"the lab has {nodes} nodes, and {MAX_NODES} is the most"
        yield Problem(("nodes",), what, "lower the counts")


def control_plane(scenario: Scenario) -> Iterator[Problem]:
    """A cluster needs a control plane, and only Linux can be one."""
    if not any(group.role == "control-plane" for group in scenario.nodes):
        what = "no node is a control plane, and a cluster needs one"
        yield Problem(("nodes",), what, 'give one Linux node "role: control-plane"', at_key=True)
    for index, group in enumerate(scenario.nodes):
        if group.role == "control-plane" and group.os == "windows":
            what = f"{quoted(group.name)} is Windows, which cannot be a control plane"
            cure = 'write "role: worker" here, and make a Linux node the control plane'
            yield Problem(("nodes", index, "role"), what, cure)


def without_kubelet(scenario: Scenario) -> Iterator[Problem]:
    """Only a control plane does without a kubelet, and without one there are no pods."""
    for index, group in enumerate(scenario.nodes):
        if group.kubelet:
            continue
        name = quoted(group.name)
        if group.role == "worker":
            what = f"{name} is a worker without a kubelet, which does nothing"
            cure = 'delete "kubelet: false", or write "role: control-plane"'
            yield Problem(("nodes", index, "kubelet"), what, cure)
        if group.pods:
            what = f"{name} has pods and no kubelet to run them"
            cure = 'delete "pods", or "kubelet: false"'
            yield Problem(("nodes", index, "pods"), what, cure, at_key=True)
        if group.pod_cidr:
            what = f"{name} has a pod range and no kubelet, so no pods"
            cure = 'delete "pod_cidr", or "kubelet: false"'
            yield Problem(("nodes", index, "pod_cidr"), what, cure, at_key=True)


def somewhere_to_run(scenario: Scenario) -> Iterator[Problem]:
    """A matrix needs pods, and the cluster's DNS a Linux node to run on."""
    if not probe_pods(scenario):
        what = "no node has a pod, so there would be nothing to test"
        yield Problem(("nodes",), what, 'raise "pods_per_node" or a node\'s "pods"', at_key=True)
    if not any(group.kubelet and group.os == "linux" for group in scenario.nodes):
        what = "no Linux node runs a kubelet, so the cluster's DNS has nowhere to run"
        yield Problem(("nodes",), what, "add a Linux worker", at_key=True)


def lengths(scenario: Scenario) -> Iterator[Problem]:
    """Names too long for NetBIOS, or for the names made from them."""
    for index, group in enumerate(scenario.nodes):
        longest = node_names(group)[-1]
        limit = NETBIOS if group.os == "windows" else MAX_NODE_NAME
        if len(longest) <= limit:
            continue
        whose = (
            f"a Windows computer name (NetBIOS) at most {limit}"
            if group.os == "windows"
            else f"a Linux node's at most {limit}, as its pods' Services to-NODE-pN are DNS labels"
        )
        what = f"{quoted(longest)} has {len(longest)} characters, and {whose}"
        digits = len(longest) - len(group.name)
        shorter = group.name[: limit - digits].rstrip("-")
        yield Problem(_name(index), what, f"shorten it, such as {quoted(shorter)}")


def names(scenario: Scenario) -> Iterator[Problem]:
    """Names that the lab uses itself, or that two nodes or pods would share."""
    taken: dict[str, str] = {}
    for index, group in enumerate(scenario.nodes):
        for name in node_names(group):
            if name in NAMES:
                what = f"{quoted(name)} is in every lab {NAMES[name]}"
                yield Problem(_name(index), what, "give the node another name")
        clash = next((name for name in _all_names(scenario, group) if name in taken), None)
        if clash:
            what = f"the name {quoted(clash)} is taken by {taken[clash]}"
            yield Problem(_name(index), what, "give one of the two another name")
        for name in node_names(group):
            taken.setdefault(name, f"a node of {quoted(group.name)} (line {group.line})")
        for name in pod_names(scenario, group):
            taken.setdefault(name, f"a pod of {quoted(group.name)} (line {group.line})")


def versions(scenario: Scenario) -> Iterator[Problem]:
    """Kubernetes minors that are not supported, and kubelets outside the skew policy."""
    cluster = scenario.kubernetes.version
    why = unsupported(cluster)
    if why:
        cure = f'write "{SUPPORTED[-1]}", or another from {SUPPORTED[0]} on'
        yield Problem(("kubernetes", "version"), f"Kubernetes {cluster} {why}", cure)
    for index, group in enumerate(scenario.nodes):
        if group.version is None:
            continue
        skew = minor(cluster) - minor(group.version)
        what = f"the kubelet {group.version} of {quoted(group.name)} is "
        cure = f'write "{cluster}", or leave it out for the cluster\'s own'
        key: Key = ("nodes", index, "version")
        policy = "Kubernetes version skew policy"
        if skew < 0:
            what += f"newer than the control plane {cluster}, which the {policy} forbids"
            yield Problem(key, what, cure)
        elif skew > MAX_SKEW:
            what += f"{skew} minors older than the control plane {cluster}, and the {policy} "
            yield Problem(key, f"{what}allows {MAX_SKEW}", cure)
        elif not why and (reason := unsupported(group.version)):
            yield Problem(key, f"Kubernetes {group.version} {reason}", cure)


def images(scenario: Scenario) -> Iterator[Problem]:
    """Windows images that do not exist, cannot join, or stand on a Linux node."""
    for index, group in enumerate(scenario.nodes):
        if group.image is None:
            continue
        key: Key = ("nodes", index, "image")
        known = f"write {quoted(WINDOWS_IMAGES[-1])}"
        if group.os == "linux":
            if group.image in {*WINDOWS_IMAGES, *REFUSED_IMAGES}:
                what = f"{quoted(group.image)} is for Windows, and {quoted(group.name)} is Linux"
                yield Problem(key, what, 'write "os: windows", or leave the image out')
        elif group.image in REFUSED_IMAGES:
            yield Problem(key, f"{quoted(group.image)} {REFUSED_IMAGES[group.image]}", known)
        elif group.image not in WINDOWS_IMAGES:
            what = f"{quoted(group.image)} is no Windows image that the lab knows"
            cure = did_you_mean(group.image, WINDOWS_IMAGES, known)
            yield Problem(key, what, cure)


def cards(scenario: Scenario) -> Iterator[Problem]:
    """MAC addresses that two cards would share."""
    taken: dict[str, str] = {}
    for index, group in enumerate(scenario.nodes):
        for number, nic in enumerate(group.nics):
            if nic.mac is None:
                continue
            if nic.mac in taken:
                what = f"the MAC address {quoted(nic.mac)} is taken by a card of {taken[nic.mac]}"
                key: Key = ("nodes", index, "nics", number, "mac")
                yield Problem(key, what, "give each card its own, or leave it to the plan")
            taken.setdefault(nic.mac, f"{quoted(group.name)} (line {group.line})")


def _name(index: int) -> Key:
    return ("nodes", index, "name")


def _all_names(scenario: Scenario, group: NodeGroup) -> Iterator[str]:
    yield from node_names(group)
    yield from pod_names(scenario, group)
