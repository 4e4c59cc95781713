"""Why a node does not get Ready: its conditions, its logs, and what is known of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.cluster.observers.facts import NodeFacts
from lab.cluster.signatures import SignatureMatch, match

_LAST = 5
"""Log lines that are shown where none is known."""
_WRONG = (" level=error", " level=fatal", "level=error", "level=fatal")
_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
_RUNS = ("active", "running")

Condition = Mapping[str, Any]
"""One of a Node's ``status.conditions``, as the API has it."""


@dataclass(frozen=True, slots=True)
class NodeDiagnosis:
    """Of a node that is not Ready."""

    node: str
    condition: str
    """The last condition seen, in words."""
    known: tuple[SignatureMatch, ...]
    """What of the signature table its logs have; the first one is the likeliest cause."""
    down: tuple[str, ...]
    """Programs that do not run, with their states."""
    lines: tuple[str, ...]
    """The log lines that say it."""

    @property
    def hint(self) -> str:
        """What to try; empty where nothing is known."""
        return self.known[0].hint if self.known else ""

    @property
    def cause(self) -> str:
        """The likeliest cause; empty where nothing is known."""
        return self.known[0].cause if self.known else ""

    def __str__(self) -> str:
        parts = [f"node '{self.node}': {self.condition}"]
        if self.down:
            parts.append("not running: " + ", ".join(self.down))
        if self.known:
            parts.append(self.cause)
        said = "\n".join(f"  {line}" for line in self.lines)
        return "; ".join(parts) + (f"\n{said}" if said else "")


def diagnose(  # noqa: PLR0913, PLR0917  all that is known of a node
    node: str,
    conditions: Sequence[Condition],
    kubelet: Sequence[str],
    containerd: Sequence[str],
    facts: NodeFacts | None = None,
    others: Sequence[str] = (),
) -> NodeDiagnosis:
    """What is known of a node that never gets Ready.

    Parameters
    ----------
    node
        Its name.
    conditions
        Its Node's ``status.conditions``; none at all where there is no such Node.
    kubelet, containerd
        The last lines of their logs, the oldest first.
    facts
        What was seen on it, if it could be asked.
    others
        Lines of whatever else was at work: kubeadm, flanneld, kube-proxy, the node's events.

    """
    lines = (*kubelet, *containerd, *others, *_unit_lines(facts))
    known = match((*lines, _message(_ready(conditions))))
    shown = tuple(one.line for one in known[:_LAST]) or _last(kubelet) or _last(lines)
    return NodeDiagnosis(node, _condition(conditions), known, tuple(_down(facts)), shown)


def _ready(conditions: Iterable[Condition]) -> Condition | None:
    return next((one for one in conditions if one.get("type") == "Ready"), None)


def _message(condition: Condition | None) -> str:
    return str(condition.get("message", "")) if condition else ""


def _condition(conditions: Sequence[Condition]) -> str:
    """In words: what is wrong, or that nobody has said."""
    if not conditions:
        return "it has not registered: there is no Node of that name, or it has no conditions"
    wrong = [
        _words(one)
        for one in conditions
        if one.get("type") in _PRESSURES and one.get("status") == "True"
    ]
    ready = _ready(conditions)
    if ready is None:
        return "; ".join(("it has no condition Ready", *wrong))
    if ready.get("status") == "True":
        return "; ".join((f"Ready since {ready.get('lastTransitionTime', 'some time')}", *wrong))
    return "; ".join((_words(ready), *wrong))


def _words(condition: Condition) -> str:
    name, status = condition.get("type"), condition.get("status")
    reason, message = condition.get("reason", ""), _message(condition)
    told = ", ".join(str(part) for part in (reason, message) if part)
    return f"{name} is {status}" + (f" ({told})" if told else "")


def _unit_lines(facts: NodeFacts | None) -> Iterable[str]:
    return [line for unit in (facts.units if facts else ()) for line in unit.log]


def _down(facts: NodeFacts | None) -> Iterable[str]:
    for unit in facts.units if facts else ():
        if not unit.state.lower().startswith(_RUNS):
            yield f"{unit.name} ({unit.state})"


def _last(lines: Sequence[str]) -> tuple[str, ...]:
    """The last complaints of a log; the last lines where it does not complain."""
    told = [line.strip() for line in lines if line.strip()]
    complaints = [line for line in told if _complains(line)]
    return tuple((complaints or told)[-_LAST:])


def _complains(line: str) -> bool:
    """Whether a line is an error of klog (``E1121 20:35:16 ...``) or of logrus."""
    words = line.split(": ", 1)[-1] if " kubelet[" in line or " containerd[" in line else line
    klog = words[:1] in {"E", "F"} and words[1:5].isdecimal()
    return klog or any(word in line for word in _WRONG)
