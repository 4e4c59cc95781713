"""What Kubernetes takes and refuses on Windows, by its version. Pure.

The flags are data of :mod:`lab.cluster.rules`; they were checked against the sources of 1.36.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from lab.cluster import rules
from lab.scenario.versions import unsupported

NEVER_STARTS: Mapping[str, str] = {
    "1.31.0": "kubernetes 126965",
    "1.31.1": "kubernetes 129957",
}
"""Kubelets that do not start on Windows: "protocol unix not supported"."""


def refusal(version: str) -> str | None:
    """Why a kubelet of that version (``"1.36.1"``) is not used on Windows; None if it is."""
    if version in NEVER_STARTS:
        return (
            f"kubelet {version} does not start on Windows: 'protocol \"unix\" not supported' "
            f"({NEVER_STARTS[version]}); use another patch version"
        )
    why = unsupported(".".join(version.split(".")[:2]))
    return f"kubelet {version} {why}" if why else None


def takes_gates(version: str) -> bool:
    """Whether kube-proxy needs, and takes, the feature gates WinDSR and WinOverlay."""
    return _given("kube-proxy", version, "--feature-gates=")


def takes_infra_image(version: str) -> bool:
    """Whether the kubelet knows ``--pod-infra-container-image``."""
    return _given("kubelet", version, "--pod-infra-container-image=")


def _given(program: str, version: str, flag: str) -> bool:
    return any(one.startswith(flag) for one in rules.flags(program, "windows", version))
