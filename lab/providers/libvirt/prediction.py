"""What a lab of virtual machines is predicted to take. Pure."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence

from lab.inventory.inventory import Hypervisor
from lab.topology.cost import Cost
from lab.topology.intent import Intent

BOOT_SECONDS = 12.0
"""From start to SSH, one guest a thread, under TCG on 2 cores; KVM takes a third of it."""
NETWORK_SECONDS = 6.0
"""Making the network inside one guest for the first time, measured the same way."""
BUILD_SECONDS = 60.0
"""A Debian image from packages, measured the same way; an installer takes many times that."""
WINDOWS_BUILD_SECONDS = 4 * 3600.0
"""Windows Server from its medium. Not measured: no Windows ran where this was written."""
WINDOWS_BOOT_SECONDS = 900.0
"""From a generalised image to a shell. Not measured either."""
NODE_SECONDS = 200.0
"""Container runtime and images of a cluster's Linux node, measured as the boot was."""
CLUSTER_SECONDS = 440.0
"""From kubeadm init to the last probe pod with two nodes, measured the same way."""
COPY_SECONDS = 3.0
"""An image of 350 MiB to one hypervisor, through libvirt."""


def predict(intent: Intent, hypervisors: Sequence[Hypervisor], built: Mapping[str, bool]) -> Cost:
    """Predict, from nothing; seconds are without KVM, good to about a factor of three.

    Parameters
    ----------
    intent
        The lab.
    hypervisors
        Where its machines may be; all are taken to share them evenly.
    built
        By name of image, whether it need not be built any more.

    """
    machines = intent.machines
    at_once = sum(one.parallel_boots or os.cpu_count() or 1 for one in hypervisors)
    windows = {machine.hardware.image for machine in machines if machine.os == "windows"}
    rounds = math.ceil(len(machines) / max(1, at_once))
    seconds = (
        sum(
            WINDOWS_BUILD_SECONDS if name in windows else BUILD_SECONDS
            for name, done in built.items()
            if not done
        )
        + (WINDOWS_BOOT_SECONDS if windows else 0.0)
        + COPY_SECONDS * len(built) * len(hypervisors)
        + rounds * (BOOT_SECONDS + NETWORK_SECONDS)
        + _cluster_seconds(intent, at_once)
    )
    counts = {
        "machine": len(machines),
        "virtual CPU": sum(machine.hardware.vcpus for machine in machines),
        "unbuilt image": sum(not done for done in built.values()),
        "hypervisor": len(hypervisors),
    }
    return Cost(
        seconds=seconds,
        memory_mib=sum(machine.hardware.memory_mib for machine in machines),
        disk_gib=sum(machine.hardware.disk_gib for machine in machines),
        counts=counts,
    )


def _cluster_seconds(intent: Intent, at_once: int) -> float:
    """What Kubernetes takes on Linux machines; Windows nodes are counted with their boot."""
    if intent.kubernetes is None:
        return 0.0
    nodes = sum(
        machine.kubelet is not None and machine.os == "linux" for machine in intent.machines
    )
    return CLUSTER_SECONDS + math.ceil(nodes / max(1, at_once)) * NODE_SECONDS
