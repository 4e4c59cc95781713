"""Rules about Services, NodePorts and what is asked of the matrix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase, translate
from itertools import chain

from lab.scenario.findings import Key, Problem, quoted
from lab.scenario.names import node_names, pod_names, probe_pods, service_name
from lab.scenario.reserved import NODE_PORTS_TAKEN, SERVICES
from lab.scenario.scenario import MAX_BACKENDS, Match, Scenario
from lab.scenario.values import MAX_PORT

TRIES = 64
"""Connections made to a shared Service, each of whose backends must answer one."""

CLIENT = "client"


def shared_backends(scenario: Scenario) -> Iterator[Problem]:
    """Shared Services with more backends than pods, or than the tries surely show."""
    pods = probe_pods(scenario)
    for index, service in enumerate(scenario.services.shared):
        key: Key = ("services", "shared", index, "backends")
        name = quoted(service.name)
        if service.backends > MAX_BACKENDS:
            what = (
                f"{service.backends} backends of {name} are too many: {TRIES} tries miss one with "
                f"a chance of {_missed(service.backends)}"
            )
            hint = f"write {MAX_BACKENDS} or fewer, with a chance of {_missed(MAX_BACKENDS)}"
            yield Problem(key, what, hint)
        elif service.backends > pods:
            what = f"{service.backends} backends of {name} are more than the lab's {pods} pods"
            yield Problem(key, what, f"write {pods} or fewer, or add pods")


def names(scenario: Scenario) -> Iterator[Problem]:
    """Shared and special Services named like another thing in the lab."""
    taken = {name: f"is in every lab {what}" for name, what in SERVICES.items()}
    nodes = {name for group in scenario.nodes for name in node_names(group)}
    for kind, index, name in _named(scenario):
        why = taken.get(name)
        if why is None and name.startswith("to-"):
            why = 'begins with "to-", as the Services of single pods do'
        if why is None and (name in nodes or name == CLIENT):
            why = "is a machine's name already"
        if why:
            key: Key = ("services", kind, index, "name")
            yield Problem(key, f"{quoted(name)} {why}", "give the Service another name")
        taken.setdefault(name, f"is a {kind} Service already")


def _named(scenario: Scenario) -> Iterator[tuple[str, int, str]]:
    """Which list, which place in it, and the name."""
    for index, shared in enumerate(scenario.services.shared):
        yield "shared", index, shared.name
    for index, special in enumerate(scenario.services.special):
        yield "special", index, special.name


def node_port_range(scenario: Scenario) -> Iterator[Problem]:
    """A NodePort range with fewer ports than Services."""
    first, last = scenario.services.node_ports
    need = probe_pods(scenario) + len(scenario.services.shared) + _special_ports(scenario)
    room = sum(1 for port in range(first, last + 1) if port not in NODE_PORTS_TAKEN)
    if room < need:
        what = f"the range {first}-{last} has {room} ports, and the lab's Services need {need}"
        hint = "make the lab smaller: no range has as many"
        if need <= MAX_PORT:
            hint = f"widen it, such as {quoted(_ports(first, need))}"
        yield Problem(("services", "node_ports"), what, hint)


def _special_ports(scenario: Scenario) -> int:
    """Ports on nodes of special Services, health checks included."""
    special = scenario.services.special
    asked = sum(len(one.ports) or 1 for one in special if one.node_port)
    return asked + sum(one.health_check for one in special)


def exceptions(scenario: Scenario) -> Iterator[Problem]:
    """Exceptions that would match every cell, or that name nothing in the lab."""
    for index, limit in enumerate(scenario.exceptions):
        if limit.when == Match():
            what = "this exception matches every cell"
            hint = 'name at least one facet in it, such as "source: win*"'
            yield Problem(("exceptions", index, "when"), what, hint, at_key=True)
        for facet, pattern in (("source", limit.when.source), ("target", limit.when.target)):
            if pattern is None or _matches(scenario, pattern, target=facet == "target"):
                continue
            what = f"no {facet} in this lab has a name like {quoted(pattern)}"
            forms = "node, pod (NODE-pN)"
            forms += ", Service (to-POD), NodePort (NODE:to-POD)" if facet == "target" else ""
            first = next(chain.from_iterable(node_names(group) for group in scenario.nodes))
            hint = f'write the name or pattern of a {forms} or "client", such as "{first}*"'
            yield Problem(("exceptions", index, "when", facet), what, hint)


def _missed(backends: int) -> str:
    """The chance that at least one backend is never picked, as a bound with its arithmetic."""
    rest = backends - 1
    chance = backends * (rest / backends) ** TRIES
    return f"{backends}*({rest}/{backends})^{TRIES} = {chance:.0e}".replace("e-0", "e-")


def _ports(first: int, need: int) -> str:
    """A range of ``need`` NodePorts, from the same first port where they fit above it."""
    start = min(first, MAX_PORT + 1 - need)
    return f"{start}-{start + need - 1}"


def _matches(scenario: Scenario, pattern: str, *, target: bool) -> bool:
    """Whether a shell pattern matches the name of anything that can stand there."""
    if fnmatchcase(CLIENT, pattern) or _in(_machines(scenario), pattern):
        return True
    if not target:
        return False
    if _in(_services(scenario), pattern):
        return True
    node, colon, service = pattern.partition(":")
    if colon:
        return _in(_machines(scenario), node) and _in(_services(scenario), service)
    name, dot, rest = pattern.partition(".")
    full = f"default.svc.{scenario.kubernetes.domain}"
    suffixes = ("default", full, f"{full}.")
    return bool(dot) and _in(_services(scenario), name) and _in(iter(suffixes), rest)


def _in(names: Iterator[str], pattern: str) -> bool:
    match = re.compile(translate(pattern)).match
    return any(match(name) for name in names)


def _machines(scenario: Scenario) -> Iterator[str]:
    """Nodes and pods."""
    for group in scenario.nodes:
        yield from node_names(group)
        yield from pod_names(scenario, group)


def _services(scenario: Scenario) -> Iterator[str]:
    for group in scenario.nodes:
        yield from (service_name(pod) for pod in pod_names(scenario, group))
    yield from (name for _, _, name in _named(scenario))
    for special in scenario.services.special:
        yield from (f"{special.name}:{port.name}" for port in special.ports if port.name)
    yield from SERVICES
