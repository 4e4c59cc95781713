"""Observe a machine through a shell on it, and its pods through shells in them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from lab._deadline import Deadline
from lab._errors import LabError
from lab.facts.linux import CommandRunner, observe, observe_pod
from lab.facts.node import NodeFacts, PodFacts, Unread

_EACH_SECONDS = 40.0
"""For one machine or pod; starting a shell alone takes seconds on an emulated processor."""


def observe_machine(
    name: str,
    pods: Collection[str],
    shell: Callable[[str], CommandRunner],
    deadline: Deadline,
    *,
    namespace: bool = False,
) -> NodeFacts | LabError:
    """Observe a machine; returns the error if it cannot be observed.

    ``name``: the machine. ``pods``: its pods to observe; one that fails is unread. ``shell``:
    returns the command runner for the machine or a pod. ``deadline``: for everything.
    ``namespace``: True if the machine is a network namespace instead of a computer.
    """
    try:
        facts = observe(shell(name), _share(deadline), namespace=namespace)
    except LabError as error:
        return error
    if not pods:
        return facts
    pods_read = [_observe_pod(pod, shell, deadline) for pod in pods]
    return replace(
        facts,
        pods=tuple(pod_read for pod_read in pods_read if isinstance(pod_read, PodFacts)),
        unread=(
            *facts.unread,
            *(pod_read for pod_read in pods_read if isinstance(pod_read, Unread)),
        ),
    )


def _observe_pod(
    pod: str, shell: Callable[[str], CommandRunner], deadline: Deadline
) -> PodFacts | Unread:
    try:
        return observe_pod(pod, shell(pod), _share(deadline))
    except LabError as error:
        return Unread("state", error.cause, pod)


def _share(deadline: Deadline) -> Deadline:
    return Deadline(min(_EACH_SECONDS, deadline.left()))
