"""What Kubernetes takes and refuses on Windows, by its version. Pure.

Checked against the sources of Kubernetes 1.36.3; what differs below is from upstream's issues:
``--pod-infra-container-image`` is no flag from 1.34 on (sig-windows-tools 397); WinDSR and
WinOverlay are GA and locked from 1.34 on, to be removed later (kubernetes 141988).
"""

from __future__ import annotations

from collections.abc import Mapping

FIRST = (1, 33)
LAST = (1, 36)
"""The current minor and the three before it."""
GATES_BELOW = (1, 34)
"""Feature gates of kube-proxy are given only to older ones."""
INFRA_IMAGE_BELOW = (1, 34)
NEVER_STARTS: Mapping[str, str] = {
    "1.31.0": "kubernetes 126965",
    "1.31.1": "kubernetes 129957",
}
"""Kubelets that do not start on Windows: "protocol unix not supported"."""


def parts(version: str) -> tuple[int, int, int]:
    """``"1.36.3"`` as numbers; a minor alone has the patch 0. ValueError if it is none."""
    numbers = [int(one) for one in version.removeprefix("v").split(".")]
    if len(numbers) not in {2, 3}:
        raise ValueError(version)
    major, minor, patch = (*numbers, 0)[:3]
    return major, minor, patch


def minor(version: str) -> tuple[int, int]:
    """Major and minor."""
    major, number, _ = parts(version)
    return major, number


def refusal(version: str) -> str | None:
    """Why a kubelet of that version is not used on Windows; None if it is."""
    if version in NEVER_STARTS:
        return (
            f"kubelet {version} does not start on Windows: 'protocol \"unix\" not supported' "
            f"({NEVER_STARTS[version]}); use another patch version"
        )
    if not FIRST <= minor(version) <= LAST:
        first, last = (".".join(map(str, one)) for one in (FIRST, LAST))
        return f"kubelet {version} is not among those that are known on Windows: {first} to {last}"
    return None


def takes_gates(version: str) -> bool:
    """Whether kube-proxy needs, and takes, the feature gates WinDSR and WinOverlay."""
    return minor(version) < GATES_BELOW


def takes_infra_image(version: str) -> bool:
    """Whether the kubelet knows ``--pod-infra-container-image``."""
    return minor(version) < INFRA_IMAGE_BELOW
