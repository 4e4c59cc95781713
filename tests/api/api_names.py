"""Helpers of the API tests."""

from collections.abc import Callable

from fake_kubelets import CALL

from lab._deadline import Deadline
from lab._errors import DeadlineError
from lab.machines.cluster.api import Api, make_namespaced_path
from lab.topology.observed import NAMESPACE

IMAGES = {
    "linux": "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
    "windows": "registry.k8s.io/e2e-test-images/agnhost:2.63.0",
}
SAME = "same"
"""The token of most tests: deleting a namespace takes at least 5 s (its controller waits)."""
SECONDS = 120.0
"""Deadline of operations that take a few seconds on an idle machine."""
_LONGEST = 64.0


def clear(api: Api) -> None:
    """Delete all pods and Services at once; the namespace stays."""
    for kind in ("pods", "services"):
        api.remove(make_namespaced_path(kind, NAMESPACE), Deadline(CALL))


def said_at_deadline(act: Callable[[Deadline], object], *words: str) -> str:
    """The message of a wait that cannot succeed, with growing deadlines until it names the cause.

    ``act`` can be repeated; the message of the longest is returned if none has all the words.
    """
    seconds = 1.0
    while True:
        try:
            act(Deadline(seconds))
        except DeadlineError as error:
            message = str(error)
            if seconds >= _LONGEST or all(word in message for word in words):
                return message
        else:
            raise AssertionError("it ended before its deadline")
        seconds *= 4
