"""One machine, observed through a shell on it, and its pods through shells in those."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from lab._deadline import Deadline
from lab._errors import LabError
from lab.facts.linux import Runs, observe, observe_pod
from lab.facts.node import NodeFacts, PodFacts

_EACH_SECONDS = 40.0
"""For one machine or pod; a shell alone takes seconds where the processor is emulated."""


def observe_machine(
    name: str,
    pods: Collection[str],
    shell: Callable[[str], Runs],
    deadline: Deadline,
    *,
    namespace: bool = False,
) -> NodeFacts | LabError:
    """What is seen of a machine; why it cannot be asked, where it cannot.

    ``name``: the machine's. ``pods``: which of its pods to look into; a pod that cannot be asked is
    left out. ``shell``: finds what runs commands on the machine, or in a pod. ``deadline``: for all
    of it. ``namespace``: whether the machine is a network namespace, and no computer.
    """
    try:
        facts = observe(shell(name), _share(deadline), namespace=namespace)
    except LabError as error:
        return error
    if not pods:
        return facts
    return replace(
        facts, pods=tuple(one for pod in pods if (one := _observe_pod(pod, shell, deadline)))
    )


def _observe_pod(pod: str, shell: Callable[[str], Runs], deadline: Deadline) -> PodFacts | None:
    try:
        return observe_pod(pod, shell(pod), _share(deadline))
    except LabError:
        return None


def _share(deadline: Deadline) -> Deadline:
    return Deadline(min(_EACH_SECONDS, deadline.left()))
