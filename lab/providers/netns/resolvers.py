"""The pods' resolver files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lab.providers.netns.isolation import RESOLV_DIRECTORY
from lab.topology.intent import Pod, Resolver


def text(resolver: Resolver) -> str:
    """What stands in the file. Pure."""
    lines = [f"nameserver {resolver.server}"]
    if resolver.search:
        lines.append(f"search {' '.join(resolver.search)}")
    lines.append(f"options ndots:{resolver.ndots}")
    return "".join(f"{line}\n" for line in lines)


def write_all(pods: Iterable[Pod]) -> None:
    """Inside the holder: a file for every pod, by its name."""
    for pod in pods:
        path = Path(RESOLV_DIRECTORY, pod.name)
        path.write_text(text(pod.resolver), encoding="ascii")
