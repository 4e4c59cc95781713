"""Supported versions: Kubernetes minors, and Windows Server on workers."""

from __future__ import annotations

SUPPORTED: tuple[str, ...] = ("1.33", "1.34", "1.35", "1.36")
"""The current Kubernetes minor and the three before it, oldest first."""

MAX_SKEW = 3
"""Minors that a kubelet may be older than the API server (Kubernetes version skew policy)."""

_TOO_OLD: tuple[tuple[int, str], ...] = (
    (24, "it needs dockershim, and the lab uses containerd"),
    (33, "Kubernetes itself no longer maintains it"),
)
"""Reasons why old minors are unsupported, each with the first minor that it does not apply to."""

WINDOWS_IMAGES: tuple[str, ...] = ("windows-server-2019", "windows-server-2022")
"""Windows images that can join a cluster; the last is the default."""

REFUSED_IMAGES: dict[str, str] = {
    "windows-server-2025": (
        "cannot join a cluster yet: the bundle holds no probe image that matches its build"
    ),
}
"""Images that can be built but not joined, and why."""


def minor(version: str) -> int:
    """36 for ``"1.36"``."""
    return int(version.partition(".")[2])


def unsupported(version: str) -> str | None:
    """Why a version is not supported, a clause that follows its name; None if it is."""
    if version in SUPPORTED:
        return None
    if not version.startswith("1.") or minor(version) > minor(SUPPORTED[-1]):
        return f"is not supported: the newest supported minor is {SUPPORTED[-1]}"
    for before, why in _TOO_OLD:
        if minor(version) < before:
            return f"is too old: {why}"
    return f"is written differently: {SUPPORTED[minor(version) - minor(SUPPORTED[0])]}"
