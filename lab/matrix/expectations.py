"""What each cell is expected to do: the first limit that speaks of it, else it must work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType

from lab.matrix.cell import Cell, Expectation
from lab.scenario.scenario import Limit, Match
from lab.scenario.terms import Family, Refusal

MODEL = 'Kubernetes documentation, "The Kubernetes network model"'
SERVICES = 'Kubernetes documentation, "Service"'
DNS = 'Kubernetes documentation, "DNS for Services and Pods"'
PROXY = 'Kubernetes documentation, "Virtual IPs and Service Proxies"'
INTERNAL = 'Kubernetes documentation, "Service Internal Traffic Policy"'
SOURCE_IP = 'Kubernetes documentation, "Using Source IP"'


def _works(rule: str, reason: str, source: str) -> Expectation:
    return Expectation(works=True, rule=rule, reason=reason, source=source, refusal=None)


def _promised(rule: str, reason: str, refusal: Refusal, source: str) -> Expectation:
    return Expectation(
        works=False, rule=rule, reason=reason, source=source, refusal=refusal, promised=True
    )


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
        "node-names": _works(
            "NODE-NAMES",
            "the services node answers the nodes' names; pods ask the cluster's DNS, which passes "
            "on what is not the cluster's",
            "Kubernetes documentation, Customizing DNS Service; Kubeinit's services node",
        ),
        "api": _works(
            "API-BALANCED",
            "the services node passes connections to the API address on to every API server that "
            "says it is ready",
            "kubeadm documentation, Options for Software Load Balancing; Kubeinit's services node",
        ),
        "dns": _works("K8S-DNS", "a pod finds a Service by its short, partial and full name", DNS),
        "affinity": _works(
            "K8S-AFFINITY",
            "with session affinity a client is led to the same backend again and again",
            PROXY,
        ),
        "nodeport-local": _works(
            "K8S-NODEPORT-LOCAL",
            "with externalTrafficPolicy Local a node passes its node port on to its own backends "
            "alone and keeps the source address; the node itself and its pods reach all backends",
            SOURCE_IP,
        ),
        "cluster-ip-local": _works(
            "K8S-CLUSTER-IP-LOCAL",
            "with internalTrafficPolicy Local a Service address leads to backends on the asking "
            "node alone",
            INTERNAL,
        ),
        "ports": _works(
            "K8S-PORTS", "each port of a Service leads to the pods' port that it names", SERVICES
        ),
        "no-endpoints": _works(
            "K8S-ENDPOINTS", "a Service leads to its endpoints while it has any", PROXY
        ),
        "headless": _works(
            "K8S-HEADLESS",
            "the name of a headless Service stands for the addresses of its ready pods, and each "
            "pod has a name in it",
            DNS,
        ),
        "health-check": _works(
            "K8S-HEALTH-CHECK",
            "on its health check port each node says how many ready backends it has itself",
            SOURCE_IP,
        ),
    }
)
"""What holds where no limit does, by family."""

REFUSALS: Mapping[tuple[Family, Refusal], Expectation] = MappingProxyType(
    {
        ("nodeport-local", "timeout"): _promised(
            "K8S-NODEPORT-NO-LOCAL",
            "with externalTrafficPolicy Local a node without a backend of its own drops what "
            "comes from elsewhere",
            "timeout",
            SOURCE_IP,
        ),
        ("cluster-ip-local", "timeout"): _promised(
            "K8S-CLUSTER-IP-NO-LOCAL",
            "with internalTrafficPolicy Local a node without a backend of its own drops packets "
            "to the Service address",
            "timeout",
            INTERNAL,
        ),
        ("ports", "refused"): _promised(
            "K8S-NO-SUCH-PORT",
            "kube-proxy refuses what is sent to a Service address on a port or protocol that the "
            "Service does not have (mode nftables)",
            "refused",
            PROXY,
        ),
        ("no-endpoints", "refused"): _promised(
            "K8S-NO-ENDPOINTS",
            "kube-proxy refuses what is sent to a Service without endpoints",
            "refused",
            PROXY,
        ),
    }
)
"""What Kubernetes itself has fail, by family and by how: no limit, but as it should be."""


def expect(cell: Cell, limits: Sequence[Limit]) -> Expectation:
    """Take the first limit that speaks of the cell; without one, what Kubernetes promises."""
    for limit in limits:
        if speaks_of(limit.when, cell):
            return Expectation.of_limit(limit)
    return RULES[cell.family] if cell.refusal is None else REFUSALS[cell.family, cell.refusal]


def speaks_of(match: Match, cell: Cell) -> bool:
    """Whether every facet that the match names holds of the cell.

    ``source`` is held against the source's name and its node's; ``target`` against the
    target's name, its node's, and the names of the backends behind it.
    """
    return (
        (match.families is None or cell.family in match.families)
        and (match.source_kind is None or match.source_kind == cell.source.kind)
        and (match.source_os is None or match.source_os == cell.source.os)
        and (match.target_kind is None or match.target_kind == cell.target.kind)
        and (match.target_os is None or match.target_os == cell.target.os)
        and (match.relation is None or match.relation == cell.relation)
        and (match.protocol is None or match.protocol == cell.protocol)
        and (match.size is None or match.size == cell.size)
        and (match.name_form is None or match.name_form == cell.name_form)
        and (match.refusal is None or match.refusal == cell.refusal)
        and (match.entry is None or match.entry == _entry(cell))
        and (match.entry_os is None or match.entry_os == cell.entry_os)
        and (match.entry_node is None or _named(match.entry_node, (cell.entry,)))
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
