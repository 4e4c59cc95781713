"""The resolver files of pods, and of machines that have one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lab.providers.netns.isolation import RESOLV_DIRECTORY
from lab.topology.intent import MachineIntent, Pod, Resolver

Asking = Pod | MachineIntent


def text(resolver: Resolver) -> str:
    """What stands in the file. Pure."""
    lines = [f"nameserver {resolver.server}"]
    if resolver.search:
        lines.append(f"search {' '.join(resolver.search)}")
    lines.append(f"options ndots:{resolver.ndots}")
    return "".join(f"{line}\n" for line in lines)


def write_all(asking: Iterable[Asking]) -> None:
    """Inside the holder: a file for every one that has a resolver, by its name."""
    for one in asking:
        if one.resolver:
            path = Path(RESOLV_DIRECTORY, one.name)
            path.write_text(text(one.resolver), encoding="ascii")
