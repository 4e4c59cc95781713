"""A Windows node, seen: one PowerShell step over WinRM, its answer read into facts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lab._deadline import Deadline
from lab.cluster.observers import hns
from lab.cluster.observers.facts import Counter, Link, NodeFacts, SeenNeighbour, Unit
from lab.cluster.observers.passage import Barrier
from lab.guests.windows_shell import WindowsShell
from lab.guests.windows_steps import run_step
from lab.topology.intent import Neighbour, Route

Object = Mapping[str, Any]

_ANYWHERE = "0.0.0.0"  # noqa: S104  what Windows calls the next hop of a route on the link
_DEFAULT = "0.0.0.0/0"
_EVERYWHERE = {"224.0.0.0/4", "255.255.255.255/32", "127.0.0.0/8"}
_VIRTUAL = "vEthernet ("
_BLOCK, _ALLOW = "block", "allow"
_RUNS = "Running"


def observe(
    shell: WindowsShell,
    script: bytes,
    module: bytes,
    settings: Mapping[str, Any],
    deadline: Deadline,
) -> NodeFacts:
    """Look at a node; one step.

    Parameters
    ----------
    shell
        The node.
    script, module
        ``observe.ps1`` and what it imports, as :mod:`lab.imaging.windows.steps` has them.
    settings
        Of the step ``Observe``.
    deadline
        For all of it.

    Raises
    ------
    StepError, DeadlineError, BrokenError
        When it cannot be asked.

    """
    return facts(run_step(shell, script, module, "observe", settings, deadline).facts)


def facts(said: Object) -> NodeFacts:
    """What the step says. Pure; what cannot be read stands in ``absent``."""
    read = _Reading(said)
    networks, endpoints = read.all("networks"), read.all("endpoints")
    links = tuple(_links(read))
    mtus = {_inner(link.name): link.mtu for link in links}
    remote_routes, remote_neighbours, entries = hns.remotes(networks)
    own = [text.partition("/")[0] for link in links for text in link.addresses]
    return NodeFacts(
        os="windows",
        version=str(said.get("version", "")),
        links=(*links, *_networks(networks)),
        bridges=hns.bridges(networks, mtus),
        tunnels=hns.tunnels(networks),
        routes=(*_routes(read.all("routes"), read.all("interfaces")), *remote_routes),
        neighbours=(*_neighbours(read.all("neighbours")), *remote_neighbours),
        forwarding=entries,
        forwards=_forwards(read.all("interfaces")),
        translations=hns.translations(read.all("policies"), endpoints, own),
        barriers=tuple(_barriers(read.all("rules"))),
        let_in=tuple(_let_in(read.all("rules"))) if read.knows("rules") else None,
        listening=tuple(sorted(set(_listening(read.all("listening"))))),
        pods=hns.pods(endpoints) if read.knows("endpoints") else None,
        units=tuple(_units(read)),
        counters=tuple(_counters(read.all("statistics"))),
        absent=tuple(read.absent.items()),
    )


class _Reading:
    """The step's lists of JSON texts, and what could not be had of them."""

    def __init__(self, said: Object) -> None:
        self._said = said
        told = said.get("absent")
        self.absent = {str(k): str(v) for k, v in told.items()} if isinstance(told, dict) else {}
        # where Linux' facts have another name for the same
        for ours, theirs in (("nftables", "policies"), ("route", "routes")):
            if theirs in self.absent:
                self.absent[ours] = self.absent[theirs]

    def knows(self, name: str) -> bool:
        """Whether that question was answered."""
        return name in self._said and name not in self.absent

    def all(self, name: str) -> list[Any]:
        """The objects of a list."""
        found = self._said.get(name) or []
        texts = [found] if isinstance(found, str) else found
        try:
            return [json.loads(text) for text in texts]
        except (TypeError, ValueError) as error:
            self.absent[name] = f"its answer cannot be read: {error}"
            return []


def _links(read: _Reading) -> Iterator[Link]:
    """The adapters, each with its addresses and MTU; a card keeps its name behind its switch.

    HNS takes a card's addresses away and gives them to ``vEthernet (NAME)``, which has its MAC.
    """
    adapters = {str(one["name"]): one for one in read.all("adapters")}
    addresses: dict[str, list[str]] = {}
    for one in read.all("addresses"):
        addresses.setdefault(str(one["name"]), []).append(f"{one['address']}/{one['length']}")
    states = {str(one["name"]): one for one in read.all("interfaces")}
    for name, adapter in adapters.items():
        behind = f"{_VIRTUAL}{name})"
        shown = behind if behind in adapters else name
        if name.startswith(_VIRTUAL) and _inner(name) in adapters:
            continue
        status = str(adapter.get("status", "")).lower()
        yield Link(
            name=name,
            kind="hns" if name.startswith(_VIRTUAL) else "",
            mac=hns.mac(adapters[shown].get("mac")),
            addresses=tuple(addresses.get(shown, ())),
            mtu=int(states.get(shown, {}).get("mtu") or 0),
            up=status not in {"disabled", "not present"},
            carrier=status == "up",
        )


def _inner(name: str) -> str:
    return name.removeprefix(_VIRTUAL).removesuffix(")") if name.startswith(_VIRTUAL) else name


def _networks(networks: Iterable[Object]) -> Iterator[Link]:
    """HNS networks as devices, so that what hangs on them is judged."""
    for network in networks:
        yield Link(str(network.get("Name", "")), "hns", "", (), 0, up=True, carrier=True)


def _routes(entries: Iterable[Object], interfaces: Iterable[Object]) -> Iterator[Route]:
    """The best route of each destination, by its own metric and its interface's."""
    metrics = {str(one["name"]): int(one.get("metric") or 0) for one in interfaces}
    best: dict[str, tuple[int, Route]] = {}
    for one in entries:
        destination, device = str(one["destination"]), str(one["name"])
        if destination in _EVERYWHERE or destination.startswith("127."):
            continue
        via = str(one.get("via") or _ANYWHERE)
        route = Route(
            "default" if destination == _DEFAULT else destination,
            _inner(device),
            None if via == _ANYWHERE else via,
        )
        metric = int(one.get("metric") or 0) + metrics.get(device, 0)
        if destination not in best or metric < best[destination][0]:
            best[destination] = (metric, route)
    yield from (route for _, route in best.values())


def _neighbours(entries: Iterable[Object]) -> Iterator[SeenNeighbour]:
    for one in entries:
        address, owner = str(one["address"]), hns.mac(one.get("mac"))
        if address.startswith(("224.", "239.")) or address == "255.255.255.255":
            continue
        unknown = owner in {"", "00:00:00:00:00:00"}
        yield SeenNeighbour(
            Neighbour(address, "" if unknown else owner, _inner(str(one["name"]))),
            str(one.get("state", "")).upper(),
        )


def _forwards(interfaces: Iterable[Object]) -> bool | None:
    """Whether any of HNS' own interfaces forwards; None where there is none."""
    said = [
        str(one.get("forwarding", "")).lower() == "enabled"
        for one in interfaces
        if str(one.get("name", "")).startswith(_VIRTUAL)
    ]
    return any(said) if said else None


def _barriers(rules: Iterable[Object]) -> Iterator[Barrier]:
    """Firewall rules that block; rules that let in are no facts of a barrier."""
    for rule in rules:
        for protocol, first, last in _ports(rule, _BLOCK):
            yield Barrier(
                where=f"firewall rule '{rule.get('name')}'",
                rule=f"blocks inbound {protocol.upper()} {first}"
                + (f"-{last}" if last != first else ""),
                protocol=protocol,
                ports=(first, last),
            )


def _let_in(rules: Iterable[Object]) -> Iterator[tuple[str, int, int]]:
    for rule in rules:
        yield from _ports(rule, _ALLOW)


def _ports(rule: Object, action: str) -> Iterator[tuple[str, int, int]]:
    """Protocol, first and last port of a rule that is in force and does that."""
    does = str(rule.get("action", "")).lower() == action
    if not does or str(rule.get("enabled", "")).lower() != "true":
        return
    for port in rule.get("ports") or ():
        numbers = [int(one) for one in str(port).split("-") if one.isdecimal()]
        if numbers:
            yield str(rule.get("protocol", "")).lower(), numbers[0], numbers[-1]


def _listening(entries: Iterable[Object]) -> Iterator[tuple[str, int]]:
    for one in entries:
        if not str(one.get("address", "")).startswith(("127.", "::1")):
            yield str(one["protocol"]), int(one["port"])


def _units(read: _Reading) -> Iterator[Unit]:
    logs = {
        str(one["name"]): tuple(str(line) for line in one.get("lines") or ())
        for one in read.all("logs")
    }
    for one in read.all("services"):
        name, state = str(one["name"]), str(one.get("state", ""))
        start = str(one.get("start", ""))
        more = f", starts: {start}" if start and state != _RUNS else ""
        yield Unit(name, f"{state}{more}", logs.get(name, ()))


def _counters(entries: Iterable[Object]) -> Iterator[Counter]:
    for one in entries:
        name = _inner(str(one["name"]))
        for key, value in one.items():
            if key != "name" and value:
                yield Counter(f"{name} {key.replace('_', ' ')}", int(value))
