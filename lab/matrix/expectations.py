"""What each cell is expected to do: the first limit that speaks of it, else it must work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType

from lab.matrix.cell import Cell, Expectation
from lab.scenario.scenario import Family, Limit, Match

MODEL = 'Kubernetes documentation, "The Kubernetes network model"'
SERVICES = 'Kubernetes documentation, "Service"'
DNS = 'Kubernetes documentation, "DNS for Services and Pods"'
PROXY = 'Kubernetes documentation, "Virtual IPs and Service Proxies"'
SOURCE_IP = 'Kubernetes documentation, "Using Source IP"'


def _works(rule: str, reason: str, source: str) -> Expectation:
    return Expectation(works=True, rule=rule, reason=reason, source=source, refusal=None)


RULES: Mapping[Family, Expectation] = MappingProxyType(
    {
        "pod-pod": _works("K8S-POD-POD", "every pod reaches every other pod without NAT", MODEL),
        "pod-service": _works(
            "K8S-POD-SERVICE",
            "a Service address leads every pod to the Service's ready endpoints",
            SERVICES,
        ),
        "hairpin": _works(
            "K8S-HAIRPIN", "a pod reaches itself through the Service it stands behind", PROXY
        ),
        "node-service": _works(
            "K8S-NODE-SERVICE", "kube-proxy serves Service addresses on its node too", PROXY
        ),
        "nodeport": _works(
            "K8S-NODEPORT",
            "every node that runs kube-proxy passes its node ports on to the Service's endpoints, "
            "wherever they are, with its own address as the source (policy Cluster)",
            SOURCE_IP,
        ),
        "node-pod": _works(
            "K8S-NODE-POD", "the agents on a node reach pods; every node reaches every pod", MODEL
        ),
        "pod-node": _works("K8S-POD-NODE", "every pod reaches every node", MODEL),
        "pod-external": _works(
            "K8S-POD-EXTERNAL",
            "pods reach addresses outside the cluster, with their node's address where it "
            "masquerades",
            SOURCE_IP,
        ),
        "dns": _works("K8S-DNS", "a pod finds a Service by its short, partial and full name", DNS),
    }
)
"""What holds where no limit does, by family."""


def expect(cell: Cell, limits: Sequence[Limit]) -> Expectation:
    """Take the first limit that speaks of the cell; without one, the cell works."""
    for limit in limits:
        if speaks_of(limit.when, cell):
            return Expectation.of_limit(limit)
    return RULES[cell.family]


def speaks_of(match: Match, cell: Cell) -> bool:
    """Whether every facet that the match names holds of the cell.

    ``source`` is held against the source's name and its node's; ``target`` against the
    target's name, its node's, and the names of the backends behind it.
    """
    return (
        (match.families is None or cell.family in match.families)
        and (match.source_kind is None or match.source_kind == cell.source.kind)
        and (match.source_os is None or match.source_os == cell.source.os)
        and (match.target_os is None or match.target_os == cell.target.os)
        and (match.relation is None or match.relation == cell.relation)
        and (match.protocol is None or match.protocol == cell.protocol)
        and (match.size is None or match.size == cell.size)
        and (match.name_form is None or match.name_form == cell.name_form)
        and (match.entry is None or match.entry == _entry(cell))
        and (match.source is None or _named(match.source, (cell.source.name, cell.source.node)))
        and (
            match.target is None
            or _named(match.target, (cell.target.name, cell.target.node, *cell.backends))
        )
    )


def _entry(cell: Cell) -> str | None:
    if cell.entry is None:
        return None
    return "own" if cell.entry == cell.source.node else "other"


def _named(pattern: str, names: Iterable[str | None]) -> bool:
    return any(name is not None and fnmatchcase(name, pattern) for name in names)
