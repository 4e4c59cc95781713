"""A node's Felix is killed and kept from restarting: Calico changes nothing there."""

from __future__ import annotations

from lab.explain.faults import parts
from lab.explain.faults.fault import Fault, FaultChange, change
from lab.topology.intent import Intent

_SERVICE = "/etc/service/enabled/felix"
_ASKED = "nsenter --target $(pgrep -o -f '[r]unsvdir -P /etc/service/enabled') --mount sv"
_SECONDS = 20


def _change(_: Intent, node: str, __: str) -> FaultChange:
    """The container's runit restarts Felix unless the service is stopped."""
    runs = "pgrep -f '[c]alico-node -felix' > /dev/null"
    back = f"for second in $(seq {_SECONDS}); do ! {runs} || break; sleep 1; done; {runs}"
    return change(
        node,
        [f"{_ASKED} force-stop {_SERVICE}"],
        [f"{runs} || {{ {_ASKED} up {_SERVICE}; {back}; }}"],
    )


FAULT = Fault(
    name="felix-killed",
    title="Felix of a node was killed and does not start again: changes do not reach the node",
    needs=parts.NEEDS_CALICO,
    sites=parts.calico_nodes,
    change=_change,
    also=("felix-down", "calico-node-down"),
)
