"""How many labs a night has up at once."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from lab.inventory.inventory import Hypervisor, Inventory

LAB_MIB = 16_384
"""What a lab is taken to need where nobody has counted: two Linux nodes at 2 GiB, one Windows
node at 6 GiB, router and client, and half as much again for the hypervisor's own."""
_CORES_A_LAB = 2
"""On namespaces: the prober and what answers it. With less, probes time out for want of time."""
_MIB = 1 << 20


def parallelism(
    inventory: Inventory | None,
    lab_mib: int = LAB_MIB,
    cores: int | None = None,
    own_mib: int | None = None,
) -> int:
    """How many labs fit at once; at least one.

    Parameters
    ----------
    inventory
        The hypervisors, whose memory is the limit; None for namespaces on this machine.
    lab_mib
        MiB that the largest lab needs.
    cores, own_mib
        Of this machine; None for what it has.

    """
    if inventory is None:
        return max(1, (cores or os.cpu_count() or 1) // _CORES_A_LAB)
    own = own_mib or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB
    there = sum(_memory(one, own, lab_mib) for one in inventory.hypervisors)
    return max(1, there // lab_mib)


def _memory(hypervisor: Hypervisor, own_mib: int, lab_mib: int) -> int:
    """MiB it may give; room for one lab where that is not written and cannot be seen from here."""
    if hypervisor.memory_mib is not None:
        return hypervisor.memory_mib
    return own_mib * 7 // 8 if urlsplit(hypervisor.uri).hostname is None else lab_mib
