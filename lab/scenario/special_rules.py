"""Rules about special Services: their backends, their ports, and what cannot go together."""

from __future__ import annotations

from collections.abc import Iterator

from lab.scenario.families import families_of, terms
from lab.scenario.findings import Key, Problem, did_you_mean, quoted
from lab.scenario.names import pod_names, probe_pods
from lab.scenario.reserved import NODE_PORTS_TAKEN, POD_PORT, SECOND_POD_PORT
from lab.scenario.scenario import MAX_BACKENDS, Port, Scenario, SpecialService
from lab.scenario.terms import Protocol


def _each(scenario: Scenario) -> Iterator[tuple[Key, SpecialService]]:
    for index, service in enumerate(scenario.services.special):
        yield ("services", "special", index), service


def backends(scenario: Scenario) -> Iterator[Problem]:
    """More backends than there are pods, or than the tries surely show; strange or double pods."""
    known = [name for group in scenario.nodes for name in pod_names(scenario, group)]
    for key, service in _each(scenario):
        yield from _number(scenario, key, service)
        for place, pod in enumerate(service.pods):
            at: Key = (*key, "pods", place)
            if pod not in known:
                example = (
                    f"write the name of one, such as {quoted(known[0])}" if known else "add pods"
                )
                what = f"the lab has no probe pod {quoted(pod)}"
                yield Problem(at, what, did_you_mean(pod, known, example))
            elif pod in service.pods[:place]:
                yield Problem(at, f"{quoted(pod)} stands here already", "name it once")


def _number(scenario: Scenario, key: Key, service: SpecialService) -> Iterator[Problem]:
    there, name = probe_pods(scenario), quoted(service.name)
    at: Key = (*key, "pods") if service.pods else (*key, "backends")
    if service.pods and service.backends != len(service.pods):
        what = f"{name} has {service.backends} backends, and {len(service.pods)} pods are named"
        yield Problem((*key, "backends"), what, 'leave "backends" out where pods are named')
    elif service.backends > MAX_BACKENDS:
        what = f"{service.backends} backends of {name} are too many to be sure of each"
        yield Problem(at, what, f"use {MAX_BACKENDS} or fewer", at_key=bool(service.pods))
    elif service.backends > there:
        what = f"{service.backends} backends of {name} are more than the lab's {there} pods"
        yield Problem(at, what, f"write {there} or fewer, or add pods", at_key=bool(service.pods))


def behaviour(scenario: Scenario) -> Iterator[Problem]:
    """Services that show nothing, and behaviours that Kubernetes does not have together."""
    for key, service in _each(scenario):
        name = quoted(service.name)
        if not any(one.special and one.special(service) for one in terms().values()):
            what = f"{name} has nothing that the usual Services do not have"
            hint = "give it affinity, ports, a traffic policy, headless or backends: 0"
            yield Problem(key, what, f"{hint}, or move it to shared", at_key=True)
        if service.headless:
            yield from _headless(key, service)
            continue
        if service.external_traffic == "local" and not service.node_port:
            what = f"{name} has no ports on nodes, which alone external_traffic is about"
            yield Problem((*key, "external_traffic"), what, 'add "node_port: true"')
        if service.health_check and service.external_traffic != "local":
            what = f"{name} is not for local backends alone, which alone health_check is about"
            yield Problem((*key, "health_check"), what, 'add "external_traffic: local"')


def _headless(key: Key, service: SpecialService) -> Iterator[Problem]:
    """A headless Service has a name and nothing else that a node could decide by."""
    given = {
        "ports": bool(service.ports),
        "node_port": service.node_port,
        "affinity": service.affinity is not None,
        "internal_traffic": service.internal_traffic == "local",
        "external_traffic": service.external_traffic == "local",
        "health_check": service.health_check,
    }
    if not service.backends:
        what = (
            f"{quoted(service.name)} is headless and has no backends: its name stands for nothing"
        )
        yield Problem((*key, "backends"), what, "give it one")
    for field, there in given.items():
        if there:
            what = f"{quoted(service.name)} is headless, which leaves no use for {field}"
            yield Problem((*key, field), what, "remove one of the two", at_key=True)


def one_subdomain(scenario: Scenario) -> Iterator[Problem]:
    """Pods behind two headless Services: a pod has its name in one subdomain only."""
    taken: dict[str, str] = {}
    several = [service for _, service in _each(scenario) if service.headless]
    for key, service in _each(scenario):
        if not service.headless:
            continue
        if not service.pods and len(several) > 1:
            what = f"{quoted(service.name)} is not the only headless Service"
            yield Problem((*key, "headless"), what, 'name the pods behind each, with "pods"')
        for place, pod in enumerate(service.pods):
            other = taken.setdefault(pod, service.name)
            if other != service.name:
                what = f"{quoted(pod)} stands behind the headless Service {quoted(other)} already"
                yield Problem((*key, "pods", place), what, "a pod has one subdomain: name another")


def ports(scenario: Scenario) -> Iterator[Problem]:
    """Ports of one Service that cannot be told apart, or that no pod answers on."""
    for key, service in _each(scenario):
        names: set[str] = set()
        numbers: set[tuple[int, Protocol]] = set()
        for index, port in enumerate(service.ports):
            at: Key = (*key, "ports", index)
            if len(service.ports) > 1 and not port.name:
                what = f"{quoted(service.name)} has several ports, and this one has no name"
                yield Problem(at, what, 'give it one, such as "name: web"', at_key=True)
            elif port.name in names:
                what = f"{quoted(service.name)} has a port {quoted(port.name)} already"
                yield Problem((*at, "name"), what, "give it another name")
            names.add(port.name)
            twice = [one for one in port.protocols if (port.port, one) in numbers]
            if twice:
                what = f"{quoted(service.name)} has {twice[0].upper()} port {port.port} already"
                yield Problem((*at, "port"), what, "use another number, or another protocol")
            numbers.update((port.port, one) for one in port.protocols)
            yield from _target(at, port)


def _target(at: Key, port: Port) -> Iterator[Problem]:
    hint = f"use {POD_PORT}, or {SECOND_POD_PORT} over TCP"
    if port.target_port not in {POD_PORT, SECOND_POD_PORT}:
        what = f"no probe pod answers on port {port.target_port}"
        yield Problem((*at, "target_port"), what, hint)
    elif port.target_port == SECOND_POD_PORT and port.protocols != ("tcp",):
        what = f"probe pods answer on port {SECOND_POD_PORT} over TCP alone"
        yield Problem((*at, "target_port"), what, f'add "protocols: [tcp]", or use {POD_PORT}')


def node_ports(scenario: Scenario) -> Iterator[Problem]:
    """Node ports outside the range, taken by another Service, or by the node itself."""
    first, last = scenario.services.node_ports
    taken: dict[tuple[int, Protocol], str] = {}
    for key, service in _each(scenario):
        for index, port in enumerate(service.ports):
            number, at = port.node_port, (*key, "ports", index, "node_port")
            if number is None:
                continue
            if not service.node_port:
                what = f"{quoted(service.name)} has no ports on nodes"
                yield Problem(at, what, 'add "node_port: true" to the Service')
            if not first <= number <= last:
                what = f"node port {number} is outside the range {first}-{last}"
                yield Problem(at, what, "use one within it, or widen services.node_ports")
            elif number in NODE_PORTS_TAKEN:
                what = f"port {number} of every node is for {NODE_PORTS_TAKEN[number]}"
                yield Problem(at, what, "use another")
            others = [taken[number, one] for one in port.protocols if (number, one) in taken]
            if others:
                what = f"node port {number} is taken by the Service {quoted(others[0])}"
                yield Problem(at, what, "use another, or leave it out: the plan gives one")
            taken.update(dict.fromkeys(((number, one) for one in port.protocols), service.name))


def asked_families(scenario: Scenario) -> Iterator[Problem]:
    """Families that are asked for by name, and that no Service has cells of."""
    shown = families_of(scenario.services.special)
    for index, family in enumerate(scenario.matrix.families or ()):
        needed = terms()[family].needs
        if needed and family not in shown:
            what = f"no special Service has cells of the family {quoted(family)}"
            yield Problem(
                ("matrix", "families", index), what, f"add one with {needed}, or leave it out"
            )
