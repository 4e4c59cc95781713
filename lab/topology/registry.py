"""Topologies and their registry: every :class:`Topology` that a plug-in has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lab._dataclass import dataclass
from lab._plugins import objects
from lab.plan.plan import Plan
from lab.scenario.findings import Problem, did_you_mean, quoted
from lab.scenario.scenario import Limit, Scenario
from lab.scenario.terms import Os
from lab.scenario.topics import topic_of
from lab.topology import windows_limits
from lab.topology.hypervisors import spread
from lab.topology.intent import Intent
from lab.topology.services_node import equip

NODE_PREFIX = 24
"""Default prefix length of a node's pod range."""


def no_problems(_scenario: Scenario) -> Iterable[Problem]:
    """The check of a topology without objections."""
    return ()


@dataclass(frozen=True, slots=True)
class Parameter:
    """One further key under a scenario's ``topology``."""

    schema: Mapping[str, Any]
    """JSON Schema, with a default and a description."""
    wrong: str
    """For the error of a value that does not fit: ``is not a port``."""
    hint: str
    parse: Callable[[str], object] = str
    """For a string: raises ValueError if it does not fit."""

    @property
    def of_files(self) -> bool:
        """Whether it lists files, relative to the scenario's folder."""
        return bool(self.schema.get("type") == "array")

    def fits(self, value: object) -> bool:
        """Whether a value of the scenario fits."""
        schema = self.schema
        if "enum" in schema:
            return value in schema["enum"]
        if schema["type"] == "boolean":
            return isinstance(value, bool)
        if schema["type"] == "string":
            try:
                self.parse(str(value))
            except ValueError:
                return False
            return True
        if self.of_files:
            return isinstance(value, list | tuple) and all(
                isinstance(item, str) and item for item in value
            )
        kinds = int if schema["type"] == "integer" else (int, float)
        number = isinstance(value, kinds) and not isinstance(value, bool)
        return number and schema["minimum"] <= value <= schema["maximum"]


def in_range(  # noqa: PLR0913  a number is all of these
    allowed: str,
    description: str,
    default: float,
    *,
    least: float,
    most: float,
    whole: bool = True,
    unit: str = "",
) -> Parameter:
    """A number; ``allowed``: its name with an article, ``unit``: in the plural."""
    schema = {
        "type": "integer" if whole else "number",
        "minimum": least,
        "maximum": most,
        "default": default,
        "description": description,
    }
    kind = f"{'whole ' if whole else ''}number{f' of {unit}' if unit else ''}"
    hint = f"use a {kind} from {least} to {most}, such as {default}"
    return Parameter(schema, f"is not {allowed}", hint)


def files(description: str, default: Sequence[str]) -> Parameter:
    """A list of files, as paths relative to the scenario's folder."""
    schema: dict[str, Any] = {
        "type": "array",
        "items": {"type": "string", "minLength": 1},
        "default": [*default],
        "description": description,
    }
    return Parameter(schema, "is not a list of files", "write a list of paths, such as [cni.yaml]")


def one_of(wrong: str, description: str, options: Mapping[str, str]) -> Parameter:
    """One of several words, each with its meaning; the first is the default."""
    schema = {"enum": [*options], "default": next(iter(options)), "description": description}
    listed = " or ".join(f'"{word}" ({meaning})' for word, meaning in options.items())
    return Parameter(schema, wrong, f"use {listed}")


@dataclass(frozen=True, slots=True)
class Topology:
    """One way to connect the nodes' pods.

    Parameters
    ----------
    kind
        The value of a scenario's ``topology.kind``.
    title
        One sentence for people.
    parameters
        Each further key under ``topology``.
    build
        Plan to Intent; pure.
    limits
        What is documented not to work, most specific first.
    also
        Other names for it, for the hint of an error.
    systems
        Operating systems of nodes that can take part.
    check
        Finds problems of a scenario with this topology.
    static_routes
        Whether nodes can have static routes from the scenario.
    node_prefix
        Prefix length of a node's pod range in a new scenario.
    beside
        What a new scenario has after its nodes, as YAML: more nodes, and other keys.
    """

    kind: str
    title: str
    parameters: Mapping[str, Parameter]
    build: Callable[[Plan], Intent]
    limits: tuple[Limit, ...]
    also: tuple[str, ...] = ()
    systems: frozenset[Os] = frozenset({"linux", "windows"})
    check: Callable[[Scenario], Iterable[Problem]] = no_problems
    static_routes: bool = False
    node_prefix: int = NODE_PREFIX
    beside: str = ""


@cache
def topologies() -> Mapping[str, Topology]:
    """Every topology by kind, in alphabetical order."""
    by_kind = {topology.kind: topology for topology in objects("topologies", Topology)}
    return dict(sorted(by_kind.items()))


def parameter(plan: Plan, key: str) -> Any:
    """The value of a parameter of the plan's topology: the scenario's, or the default."""
    declared = topologies()[plan.topology].parameters[key]
    return plan.parameters.get(key, declared.schema["default"])


def locate(scenario: Scenario, folder: Path) -> Scenario:
    """The scenario with the paths of its topology's files, which are relative to ``folder``."""
    topology = topologies()[scenario.topology.kind]
    given: Mapping[str, Any] = scenario.topology.parameters
    paths = {
        key: tuple(str(folder / path) for path in given.get(key, known.schema["default"]))
        for key, known in topology.parameters.items()
        if known.of_files
    }
    return scenario.replace(topology=scenario.topology.replace(**paths)) if paths else scenario


def intent(plan: Plan) -> Intent:
    """The network of each machine, including hypervisors and services node if there are any."""
    return spread(plan, equip(plan, topologies()[plan.topology].build(plan)))


def limits(plan: Plan) -> tuple[Limit, ...]:
    """What is expected not to work: the scenario's own exceptions, the topology's, kube-proxy's."""
    return (
        *plan.exceptions,
        *topologies()[plan.topology].limits,
        *windows_limits.of_proxy(plan),
    )


def schemas() -> dict[str, dict[str, object]]:
    """JSON Schema of the ``topology`` block by kind."""
    return {
        kind: {
            "title": topology.title,
            "type": "object",
            "additionalProperties": False,
            "required": ["kind"],
            "properties": {
                "kind": {"const": kind},
                **{key: known.schema for key, known in topology.parameters.items()},
            },
        }
        for kind, topology in topologies().items()
    }


def check(scenario: Scenario) -> Iterator[Problem]:
    """Find problems in a scenario's topology block, and nodes that the topology cannot have."""
    kind = scenario.topology.kind
    topology = topologies().get(kind)
    if topology is None:
        known = ", ".join(topologies())
        meant = [
            topology.kind for topology in topologies().values() if kind.lower() in topology.also
        ]
        yield Problem(
            ("topology", "kind"),
            f"{quoted(kind)} is not a topology kind",
            did_you_mean(meant[0] if meant else kind, topologies(), f"use one of: {known}"),
        )
        return
    yield from _check_parameters(scenario, topology)
    for index, group in enumerate(scenario.nodes):
        if group.os not in topology.systems:
            yield Problem(
                ("nodes", index, "os"),
                f'node "{group.name}" cannot take part: '
                f'topology "{kind}" does not exist on {group.os.capitalize()}',
                f"leave the node out, or use a topology that {group.os.capitalize()} can do",
            )
        if group.routes and not topology.static_routes:
            able = " or ".join(
                topology.kind for topology in topologies().values() if topology.static_routes
            )
            yield Problem(
                ("nodes", index, "routes"),
                f'nodes of topology "{kind}" have no static routes of their own',
                f"leave them out, or use {able}",
                at_key=True,
            )
    yield from topology.check(scenario)


def _check_parameters(scenario: Scenario, topology: Topology) -> Iterator[Problem]:
    known = topology.parameters
    for key, value in scenario.topology.parameters.items():
        if key in known:
            if not known[key].fits(value):
                message = f"{quoted(value)} {known[key].wrong}"
                topic = topic_of(str(value))
                hint = f"{known[key].hint}; {topic.answer}" if topic else known[key].hint
                yield Problem(("topology", key), message, hint)
        else:
            allowed = ", ".join(known) or "none"
            yield Problem(
                ("topology", key),
                f'topology "{topology.kind}" has no parameter {quoted(key)}',
                did_you_mean(key, known, f"its parameters are: {allowed}", str(value)),
                at_key=True,
            )
