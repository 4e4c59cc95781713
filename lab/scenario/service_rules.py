"""Rules about Services, NodePorts and the requested part of the matrix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase, translate
from functools import partial
from itertools import chain

from lab.scenario.families import families_of, family_terms
from lab.scenario.findings import Key, Problem, did_you_mean, quoted
from lab.scenario.reserved import NODE_PORTS_TAKEN, POD_PORT, SECOND_POD_PORT, SERVICES
from lab.scenario.scenario import (
    MAX_BACKENDS,
    Match,
    Scenario,
    node_names,
    pod_names,
    probe_pods,
    service_name,
)
from lab.scenario.special import Port, SpecialService
from lab.scenario.terms import Protocol
from lab.scenario.values import MAX_PORT

TRIES = 64
"""Connections to a shared Service, within which each of its backends must answer."""

CLIENT = "client"


def check_shared_backends(scenario: Scenario) -> Iterator[Problem]:
    """Shared Services with more backends than pods, or too many to be seen within the tries."""
    pods = probe_pods(scenario)
    for index, service in enumerate(scenario.services.shared):
        key: Key = ("services", "shared", index, "backends")
        name = quoted(service.name)
        if service.backends > MAX_BACKENDS:
            message = (
                f"{service.backends} backends of {name} are too many: {TRIES} tries miss one with "
                f"a chance of {_chance_of_miss(service.backends)}"
            )
            hint = (
                f"write {MAX_BACKENDS} or fewer, with a chance of {_chance_of_miss(MAX_BACKENDS)}"
            )
            yield Problem(key, message, hint)
        elif service.backends > pods:
            message = f"{service.backends} backends of {name} are more than the lab's {pods} pods"
            yield Problem(key, message, f"write {pods} or fewer, or add pods")


def check_names(scenario: Scenario) -> Iterator[Problem]:
    """Shared and special Services whose name is already used in the lab."""
    taken = {name: f"is in every lab {use}" for name, use in SERVICES.items()}
    nodes = {name for group in scenario.nodes for name in node_names(group)}
    for kind, index, name in _list_services(scenario):
        why = taken.get(name)
        if why is None and name.startswith("to-"):
            why = 'begins with "to-", as the Services of single pods do'
        if why is None and (name in nodes or name == CLIENT):
            why = "is a machine's name already"
        if why:
            key: Key = ("services", kind, index, "name")
            yield Problem(key, f"{quoted(name)} {why}", "give the Service another name")
        taken.setdefault(name, f"is a {kind} Service already")


def _list_services(scenario: Scenario) -> Iterator[tuple[str, int, str]]:
    """The list, the index in it, and the name of each Service."""
    for index, shared in enumerate(scenario.services.shared):
        yield "shared", index, shared.name
    for index, special in enumerate(scenario.services.special):
        yield "special", index, special.name


def check_node_port_range(scenario: Scenario) -> Iterator[Problem]:
    """A NodePort range with fewer ports than Services."""
    first, last = scenario.services.node_ports
    need = probe_pods(scenario) + len(scenario.services.shared) + _special_ports(scenario)
    room = sum(1 for port in range(first, last + 1) if port not in NODE_PORTS_TAKEN)
    if room < need:
        message = f"the range {first}-{last} has {room} ports, and the lab's Services need {need}"
        hint = "make the lab smaller: no range has as many"
        if need <= MAX_PORT:
            hint = f"widen it, such as {quoted(_ports(first, need))}"
        yield Problem(("services", "node_ports"), message, hint)


def _special_ports(scenario: Scenario) -> int:
    """Number of NodePorts of special Services, including health checks."""
    special = scenario.services.special
    number = sum(len(service.ports) or 1 for service in special if service.node_port)
    return number + sum(service.health_check for service in special)


def check_exceptions(scenario: Scenario) -> Iterator[Problem]:
    """Exceptions that would match every cell, or that name nothing in the lab."""
    for index, limit in enumerate(scenario.exceptions):
        if limit.when == Match():
            message = "this exception matches every cell"
            hint = 'name at least one facet in it, such as "source: win*"'
            yield Problem(("exceptions", index, "when"), message, hint, at_key=True)
        for facet, pattern in (("source", limit.when.source), ("target", limit.when.target)):
            if pattern is None or _matches(scenario, pattern, target=facet == "target"):
                continue
            message = f"no {facet} in this lab has a name like {quoted(pattern)}"
            forms = "node, pod (NODE-pN)"
            forms += ", Service (to-POD), NodePort (NODE:to-POD)" if facet == "target" else ""
            first = next(chain.from_iterable(node_names(group) for group in scenario.nodes))
            hint = f'write the name or pattern of a {forms} or "client", such as "{first}*"'
            yield Problem(("exceptions", index, "when", facet), message, hint)


def check_assertions(scenario: Scenario) -> Iterator[Problem]:
    """Assertions that are made nowhere, in no single kind of place, or share a name."""
    taken: set[str] = set()
    for index, assertion in enumerate(scenario.assertions):
        key: Key = ("assertions", index)
        name = quoted(assertion.name)
        if assertion.name in taken:
            message = f"{name} is the name of an assertion above"
            yield Problem((*key, "name"), message, "give one of the two another name")
        taken.add(assertion.name)
        if not assertion.command[0]:
            message = f"the command of {name} begins with an empty word"
            yield Problem((*key, "command", 0), message, "write the name of a program")
        if (assertion.node is None) == (assertion.pod is None):
            given = "neither a node nor a pod" if assertion.node is None else "a node and a pod"
            hint = 'name one of them, such as "node: worker*"'
            yield Problem(key, f"assertion {name} names {given}", hint, at_key=True)
            continue
        kind, names_of = (
            ("node", node_names)
            if assertion.node is not None
            else ("pod", partial(pod_names, scenario))
        )
        names = [*chain.from_iterable(names_of(group) for group in scenario.nodes)]
        if not any(fnmatchcase(name, assertion.place) for name in names):
            message = f"no {kind} in this lab has a name like {quoted(assertion.place)}"
            hint = did_you_mean(assertion.place, names, f"write a {kind}'s, such as {names[0]}")
            yield Problem((*key, kind), message, hint)


def _chance_of_miss(backends: int) -> str:
    """An upper bound of the probability that a backend is never chosen, with its formula."""
    rest = backends - 1
    chance = backends * (rest / backends) ** TRIES
    return f"{backends}*({rest}/{backends})^{TRIES} = {chance:.0e}".replace("e-0", "e-")


def _ports(first: int, need: int) -> str:
    """A range of ``need`` NodePorts, from the same first port if they fit above it."""
    start = min(first, MAX_PORT + 1 - need)
    return f"{start}-{start + need - 1}"


def _matches(scenario: Scenario, pattern: str, *, target: bool) -> bool:
    """Whether a shell pattern matches the name of any source or target."""
    if fnmatchcase(CLIENT, pattern) or _matches_any(_machines(scenario), pattern):
        return True
    if not target:
        return False
    if _matches_any(_services(scenario), pattern):
        return True
    node, colon, service = pattern.partition(":")
    if colon:
        return _matches_any(_machines(scenario), node) and _matches_any(
            _services(scenario), service
        )
    name, dot, rest = pattern.partition(".")
    full = f"default.svc.{scenario.kubernetes.domain}"
    suffixes = ("default", full, f"{full}.")
    return (
        bool(dot) and _matches_any(_services(scenario), name) and _matches_any(iter(suffixes), rest)
    )


def _matches_any(names: Iterator[str], pattern: str) -> bool:
    match = re.compile(translate(pattern)).match
    return any(match(name) for name in names)


def _machines(scenario: Scenario) -> Iterator[str]:
    """Names of nodes and pods."""
    for group in scenario.nodes:
        yield from node_names(group)
        yield from pod_names(scenario, group)


def _services(scenario: Scenario) -> Iterator[str]:
    for group in scenario.nodes:
        yield from (service_name(pod) for pod in pod_names(scenario, group))
    yield from (name for _, _, name in _list_services(scenario))
    for special in scenario.services.special:
        yield from (f"{special.name}:{port.name}" for port in special.ports if port.name)
    yield from SERVICES


def _list_special(scenario: Scenario) -> Iterator[tuple[Key, SpecialService]]:
    for index, service in enumerate(scenario.services.special):
        yield ("services", "special", index), service


def check_backends(scenario: Scenario) -> Iterator[Problem]:
    """Special Services with too many backends, or with unknown or duplicate pods."""
    known = [name for group in scenario.nodes for name in pod_names(scenario, group)]
    for key, service in _list_special(scenario):
        yield from _number(scenario, key, service)
        for position, pod in enumerate(service.pods):
            at: Key = (*key, "pods", position)
            if pod not in known:
                example = (
                    f"write the name of one, such as {quoted(known[0])}" if known else "add pods"
                )
                message = f"the lab has no probe pod {quoted(pod)}"
                yield Problem(at, message, did_you_mean(pod, known, example))
            elif pod in service.pods[:position]:
                yield Problem(at, f"{quoted(pod)} is listed already", "name it once")


def _number(scenario: Scenario, key: Key, service: SpecialService) -> Iterator[Problem]:
    pods, name = probe_pods(scenario), quoted(service.name)
    at: Key = (*key, "pods") if service.pods else (*key, "backends")
    if service.pods and service.backends != len(service.pods):
        message = f"{name} has {service.backends} backends, and {len(service.pods)} pods are named"
        yield Problem((*key, "backends"), message, 'leave "backends" out where pods are listed')
    elif service.backends > MAX_BACKENDS:
        message = f"{service.backends} backends of {name} are too many to test each"
        yield Problem(at, message, f"use {MAX_BACKENDS} or fewer", at_key=bool(service.pods))
    elif service.backends > pods:
        message = f"{service.backends} backends of {name} are more than the lab's {pods} pods"
        yield Problem(at, message, f"write {pods} or fewer, or add pods", at_key=bool(service.pods))


def check_behaviour(scenario: Scenario) -> Iterator[Problem]:
    """Special Services without a special property, and properties that exclude each other."""
    for key, service in _list_special(scenario):
        name = quoted(service.name)
        if not any(term.special and term.special(service) for term in family_terms().values()):
            message = f"{name} has no special property"
            hint = "give it affinity, ports, a traffic policy, headless or backends: 0"
            yield Problem(key, message, f"{hint}, or move it to shared", at_key=True)
        if service.headless:
            yield from _check_headless(key, service)
            continue
        if service.external_traffic == "local" and not service.node_port:
            message = f"{name} has no ports on nodes, but external_traffic applies only to those"
            yield Problem((*key, "external_traffic"), message, 'add "node_port: true"')
        if service.health_check and service.external_traffic != "local":
            message = f"{name} does not have external_traffic local, which health_check needs"
            yield Problem((*key, "health_check"), message, 'add "external_traffic: local"')


def _check_headless(key: Key, service: SpecialService) -> Iterator[Problem]:
    """A headless Service with properties that need a Service address, or without backends."""
    given = {
        "ports": bool(service.ports),
        "node_port": service.node_port,
        "affinity": service.affinity is not None,
        "internal_traffic": service.internal_traffic == "local",
        "external_traffic": service.external_traffic == "local",
        "health_check": service.health_check,
    }
    if not service.backends:
        message = (
            f"{quoted(service.name)} is headless and has no backends: its name resolves to nothing"
        )
        yield Problem((*key, "backends"), message, "give it one")
    for field, is_given in given.items():
        if is_given:
            message = f"{quoted(service.name)} is headless, which excludes {field}"
            yield Problem((*key, field), message, "remove one of the two", at_key=True)


def check_subdomains(scenario: Scenario) -> Iterator[Problem]:
    """Pods behind two headless Services: a pod has only one subdomain."""
    taken: dict[str, str] = {}
    several = [service for _, service in _list_special(scenario) if service.headless]
    for key, service in _list_special(scenario):
        if not service.headless:
            continue
        if not service.pods and len(several) > 1:
            message = f"{quoted(service.name)} is not the only headless Service"
            yield Problem((*key, "headless"), message, 'give the pods behind each, with "pods"')
        for position, pod in enumerate(service.pods):
            other = taken.setdefault(pod, service.name)
            if other != service.name:
                message = f"{quoted(pod)} already backs the headless Service {quoted(other)}"
                yield Problem(
                    (*key, "pods", position), message, "a pod has one subdomain: name another"
                )


def check_ports(scenario: Scenario) -> Iterator[Problem]:
    """Duplicate or unnamed ports of one Service, and target ports that no pod answers on."""
    for key, service in _list_special(scenario):
        names: set[str] = set()
        numbers: set[tuple[int, Protocol]] = set()
        for index, port in enumerate(service.ports):
            at: Key = (*key, "ports", index)
            if len(service.ports) > 1 and not port.name:
                message = f"{quoted(service.name)} has several ports, and this one has no name"
                yield Problem(at, message, 'give it one, such as "name: web"', at_key=True)
            elif port.name in names:
                message = f"{quoted(service.name)} has a port {quoted(port.name)} already"
                yield Problem((*at, "name"), message, "give it another name")
            names.add(port.name)
            twice = [protocol for protocol in port.protocols if (port.port, protocol) in numbers]
            if twice:
                message = f"{quoted(service.name)} has {twice[0].upper()} port {port.port} already"
                yield Problem((*at, "port"), message, "use another number, or another protocol")
            numbers.update((port.port, protocol) for protocol in port.protocols)
            yield from _check_target(at, port)


def _check_target(at: Key, port: Port) -> Iterator[Problem]:
    hint = f"use {POD_PORT}, or {SECOND_POD_PORT} over TCP"
    if port.target_port not in {POD_PORT, SECOND_POD_PORT}:
        message = f"no probe pod answers on port {port.target_port}"
        yield Problem((*at, "target_port"), message, hint)
    elif port.target_port == SECOND_POD_PORT and port.protocols != ("tcp",):
        message = f"probe pods answer on port {SECOND_POD_PORT} over TCP alone"
        yield Problem((*at, "target_port"), message, f'add "protocols: [tcp]", or use {POD_PORT}')


def check_node_ports(scenario: Scenario) -> Iterator[Problem]:
    """Node ports outside the range, or taken by another Service or by the node."""
    first, last = scenario.services.node_ports
    taken: dict[tuple[int, Protocol], str] = {}
    for key, service in _list_special(scenario):
        for index, port in enumerate(service.ports):
            number, at = port.node_port, (*key, "ports", index, "node_port")
            if number is None:
                continue
            if not service.node_port:
                message = f"{quoted(service.name)} has no ports on nodes"
                yield Problem(at, message, 'add "node_port: true" to the Service')
            if not first <= number <= last:
                message = f"node port {number} is outside the range {first}-{last}"
                yield Problem(at, message, "use one within it, or widen services.node_ports")
            elif number in NODE_PORTS_TAKEN:
                message = f"port {number} of every node is for {NODE_PORTS_TAKEN[number]}"
                yield Problem(at, message, "use another")
            others = [
                taken[number, protocol]
                for protocol in port.protocols
                if (number, protocol) in taken
            ]
            if others:
                message = f"node port {number} is taken by the Service {quoted(others[0])}"
                yield Problem(at, message, "use another, or leave it out: the plan chooses one")
            taken.update(
                dict.fromkeys(((number, protocol) for protocol in port.protocols), service.name)
            )


def check_asked_families(scenario: Scenario) -> Iterator[Problem]:
    """Requested families that no special Service has cells of."""
    for index, family in enumerate(scenario.matrix.families or ()):
        needed = family_terms()[family].needs
        if needed and family not in families_of(scenario.services.special):
            message = f"no special Service has cells of the family {quoted(family)}"
            yield Problem(
                ("matrix", "families", index), message, f"add one with {needed}, or leave it out"
            )
