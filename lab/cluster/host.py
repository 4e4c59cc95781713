"""What the nodes' programs may expect of the machine they run on. Pure data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostTraits:
    """In what a Linux node differs from a computer of its own; the defaults are a virtual machine.

    All nodes of a cluster are alike in this.
    """

    shared_kernel: bool = False
    """Whether the kernel is the host's: its modules, its swap and those settings that every
    network namespace shares are left as they are."""
    cgroup_v1: bool = False
    """Whether the kubelet finds control groups of version 1, which it refuses unless told."""
    can_lower_oom_score: bool = True
    """Whether a process may make itself less likely to be killed when memory runs out
    (``CAP_SYS_RESOURCE``)."""


VIRTUAL_MACHINE = HostTraits()
