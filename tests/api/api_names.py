"""What the tests of the API level have in common."""

from __future__ import annotations

from collections.abc import Callable

from lab.cluster.probe_pods import ProbePods

IMAGES = {
    "linux": "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
    "windows": "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
}
NewPods = Callable[..., ProbePods]
SAME = "same"
"""The token of most tests: a namespace takes at least 5 s to go (its controller waits)."""
