"""From what was seen of machines to why a path does not carry what it should. Pure.

Differences are ordered by where a packet meets them first; the first is the answer. What only
follows from another one is left out or comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lab._errors import LabError
from lab.cluster.footprint import By, footprint
from lab.explain.checks import calico, logical, node_software, sessions
from lab.explain.checks.duplicates import between
from lab.explain.difference import Difference, found
from lab.explain.differences import differences, named, settled
from lab.facts.node import NodeFacts
from lab.facts.translations import Barrier
from lab.matrix.finding import Finding
from lab.topology.intent import Intent, MachineIntent
from lab.topology.path import Flow, Hop, Packet, Path
from lab.topology.routing import covers, network_of
from lab.topology.walk import walk

_DNS_PORT = 53
_Touches = Callable[[Difference, Hop, Path], bool]


def first_hop(difference: Difference, path: Path) -> int | None:
    """The first hop that a difference concerns, counted from 0; None where it concerns none."""
    touches = _touches(difference)
    for number, hop in enumerate(path.hops):
        if touches(difference, hop, path):
            return number
    return None


def _touches(difference: Difference) -> _Touches:
    if difference.barrier is not None:
        return _barred
    return _BY_KIND.get(difference.kind, _same)


def _same(difference: Difference, hop: Hop, _: Path) -> bool:
    """Most differences have the name of the very thing that the packet meets."""
    return hop.machine == difference.node and hop.object == difference.object


def _barred(difference: Difference, hop: Hop, _: Path) -> bool:
    barrier = difference.barrier
    if barrier is not None and barrier.protocol == "arp":
        others = any(_asks(hop, prefix, difference.node) for prefix in barrier.prefixes)
        return others or (hop.machine == difference.node and _asked_in(hop, barrier.networks))
    if barrier is None or hop.machine != difference.node or hop.kind == "switch":
        return False  # what crosses a hypervisor's switch is none of its own packets
    if barrier.device and (hop.place, hop.device) != (difference.node, barrier.device):
        return False
    return any(_fits(barrier, packet) for packet in (hop.packet, hop.carried) if packet)


def _fits(barrier: Barrier, packet: Packet) -> bool:
    if barrier.protocol not in {"", packet.protocol}:
        return False
    if barrier.ports:  # of the answering side, which an answer comes from
        first, last = barrier.ports
        if packet.answer or not first <= packet.port <= last:
            return False
    ends = (packet.source, packet.target)
    return not barrier.prefixes or any(
        covers(prefix, end) for prefix in barrier.prefixes for end in ends
    )


def _way_out(difference: Difference, hop: Hop, path: Path) -> bool:
    return hop.kind == "way-out" and _same(difference, hop, path)


def _resolver(difference: Difference, hop: Hop, path: Path) -> bool:
    asks = path.flow.port == _DNS_PORT and hop.place == path.flow.source
    return asks and _same(difference, hop, path)


def _not_listening(difference: Difference, hop: Hop, path: Path) -> bool:
    return hop.place == path.there[-1].place and _same(difference, hop, path)


def _hairpin(difference: Difference, hop: Hop, path: Path) -> bool:
    comes_back = path.there[0].place == path.there[-1].place
    return comes_back and _same(difference, hop, path)


def _bridge_filter(difference: Difference, hop: Hop, _: Path) -> bool:
    return hop.machine == difference.node and hop.kind == "untranslated"


def _proxy(difference: Difference, hop: Hop, _: Path) -> bool:
    """Those who ask for the address on the segment are the other machines."""
    return _asks(hop, difference.object.removeprefix("address "), difference.node)


def _gateway(difference: Difference, hop: Hop, _: Path) -> bool:
    """Those behind it ask for the address on the segment."""
    return _asks(hop, difference.object.removeprefix("gateway ").partition("/")[0], difference.node)


def _asks(hop: Hop, prefix: str, machine: str) -> bool:
    """Whether another machine asks there for the MAC of an address of the prefix."""
    if hop.kind != "neighbour" or hop.machine == machine or hop.place != hop.machine:
        return False
    return covers(prefix, hop.object.split()[1])


def _asked_in(hop: Hop, networks: tuple[str, ...]) -> bool:
    """Whether the MAC of an address in one of the networks is asked for there."""
    if hop.kind != "neighbour" or hop.place != hop.machine:
        return False
    return any(covers(network_of(one), hop.object.split()[1]) for one in networks)


def _service(difference: Difference, hop: Hop, path: Path) -> bool:
    """The very entrance that is asked, in its protocol."""
    if hop.kind != "service" or hop.machine != difference.node:
        return False
    flow = path.flow
    entrance = f"{hop.object}, {flow.target}:{flow.port}, "
    by_port = f"{hop.object}, NodePort {flow.port}, "
    return difference.object.startswith((entrance, by_port)) and flow.protocol in (
        difference.object.rpartition(", ")[2].split(" and ")
    )


def _card(difference: Difference, hop: Hop, path: Path) -> bool:
    """Also a Service that the node itself asks: without its card it has no route to the address."""
    asks = hop.kind == "service" and path.there[0].place == hop.place == difference.node
    return asks or _same(difference, hop, path)


def _services(difference: Difference, hop: Hop, _: Path) -> bool:
    return hop.kind == "service" and hop.machine == difference.node


def _masquerade(difference: Difference, hop: Hop, _: Path) -> bool:
    ours = hop.kind == "masquerade" and hop.machine == difference.node
    return ours and difference.object.startswith(hop.object)


def _spared(difference: Difference, hop: Hop, _: Path) -> bool:
    """``packets of 10.244.1.0/24 to 10.244.0.0/16``: on a bridge, too, they meet masquerade."""
    if hop.kind not in {"route", "bridge"} or hop.machine != difference.node or hop.packet.answer:
        return False
    source, target = difference.object.removeprefix("packets of ").split(" to ")
    packet = hop.carried or hop.packet
    return covers(source, packet.source) and covers(target, packet.target)


def _stray(difference: Difference, hop: Hop, _: Path) -> bool:
    if hop.kind != "route" or hop.machine != difference.node:
        return False
    return covers(difference.object.removeprefix("route to "), hop.packet.target)


def _on_machine(difference: Difference, hop: Hop, _: Path) -> bool:
    return hop.machine == difference.node


def _asks_dns(_: Difference, hop: Hop, path: Path) -> bool:
    """Whoever asks for a name finds nobody: before all that only follows from it."""
    return path.flow.port == _DNS_PORT and hop is path.hops[0]


def _of_block(difference: Difference, hop: Hop, path: Path) -> bool:
    """What the cluster is asked for of a node's block comes before all that follows from it."""
    return hop is path.hops[0] and difference.node in path.machines


def _by_device(difference: Difference, hop: Hop, _: Path) -> bool:
    device = difference.object.rpartition(" ")[2]
    return (hop.place, hop.device) == (difference.node, device)


def _tunnel_local(difference: Difference, hop: Hop, path: Path) -> bool:
    """``chassis worker1``: all that goes into its tunnels, and to it."""
    if not difference.object.startswith("chassis "):
        return _same(difference, hop, path)
    ends = {hop.machine, hop.object.removeprefix("tunnel to ")}
    return hop.kind == "tunnel" and difference.node in ends


def _balanced(difference: Difference, hop: Hop, path: Path) -> bool:
    """``Service to-a, 10.96.0.20:80, tcp``: wherever a packet enters the logical network."""
    service, entrance, protocol = difference.object.split(", ")
    asked = f"{hop.packet.target}:{hop.packet.port}" == entrance
    everywhere = difference.node == difference.place
    here = everywhere or hop.machine == difference.node
    named = hop.kind == "service" and hop.object == service
    return named and asked and here and protocol == path.flow.protocol


def _unplugged(difference: Difference, hop: Hop, path: Path) -> bool:
    """``port vxlan-nodes of the tunnel``, or of a machine."""
    if difference.object.endswith(" of the tunnel"):
        return hop.machine == difference.node and hop.kind == "tunnel"
    return _same(difference, hop, path)


def _duplicate(difference: Difference, hop: Hop, _: Path) -> bool:
    """Where the one is that should not have it, or one that should."""
    device = difference.object.rpartition(" of ")[2]
    return any(_is_at(hop, *one) for one in ((difference.node, device), *difference.others))


def _is_at(hop: Hop, machine: str, device: str) -> bool:
    if device.startswith("pod "):
        return hop.place == device.removeprefix("pod ")
    return (hop.place, hop.device) == (machine, device)


def _duplicate_cidr(difference: Difference, hop: Hop, path: Path) -> bool:
    """``pod CIDR 10.244.1.1/24 of cni0``: what the machine keeps, or draws, that is another's."""
    if _concerned(difference, hop, path):
        return True
    network = network_of(difference.object.split()[2])
    ours = hop.machine == difference.node and hop.kind in {"route", "forwarding"}
    packets = (hop.packet, hop.carried)
    return ours and any(covers(network, packet.target) for packet in packets if packet)


def _concerned(difference: Difference, hop: Hop, _: Path) -> bool:
    return (hop.machine, hop.object) in difference.concerns


_BY_KIND: Mapping[str, _Touches] = {
    "link-down": _card,
    "pod-gateway": _way_out,
    "pod-resolver": _resolver,
    "pod-not-listening": _not_listening,
    "hairpin-off": _hairpin,
    "bridge-filter-off": _bridge_filter,
    "proxy-missing": _proxy,
    "gateway-missing": _gateway,
    "service-missing": _service,
    "stale-backend": _service,
    "backend-missing": _service,
    "wrong-policy": _service,
    "wrong-affinity": _service,
    "wrong-refusal": _service,
    "service-rules-missing": _services,
    "masquerade-missing": _masquerade,
    "masquerade-exception-missing": _spared,
    "stray-route": _stray,
    "slowed": _by_device,
    **dict.fromkeys(
        (
            *("program-down", "runtime-down", "proxy-stopped", "flanneld-down", "felix-down"),
            "wrong-subnet",
            *("cni-config-missing", "certificate-expired", "disk-full"),
        ),
        _on_machine,
    ),
    "dns-scaled-down": _asks_dns,
    **dict.fromkeys(("wrong-pool", "wrong-encapsulation", "wrong-as"), _of_block),
    "tunnel-local": _tunnel_local,
    "balancers-missing": _services,
    "balancer-missing": _balanced,
    "balancer-stale": _balanced,
    "unplugged": _unplugged,
    "tunnel-port-dropped": lambda one, hop, _: hop.machine == one.node and hop.kind == "tunnel",
    "duplicate-address": _duplicate,
    "duplicate-mac": _duplicate,
    "duplicate-pod-cidr": _duplicate_cidr,
    "session-down": _concerned,
    "session-waiting": _concerned,
}
"""How the others are met. A firewall's rule is met by the packets that it names."""


LEARNED = frozenset({"learned-route-missing", "wrong-learned-route", "session-waiting"})
"""Kinds that are signs of something else, perhaps on a machine beside the path."""
_NOT_READY = frozenset({"runtime-down", "cni-config-missing", "certificate-expired"})
"""Kinds that have the cluster call a node NotReady, and take its pods out of every Service."""
_FOLLOWS = (
    LEARNED
    | _NOT_READY
    | {"neighbour-silent", "program-down", "tunnel-end-missing"}
    | {"proxy-stopped", "flanneld-down", "felix-down", "wrong-subnet", "disk-full"}
)
"""Kinds that are most often signs of something else, or no part of a packet's way."""
_OF_ENDPOINTS = frozenset({"service-missing", "stale-backend", "backend-missing", "wrong-refusal"})
"""Kinds that are seen where kube-proxy has other endpoints than there should be."""
_SAME_ADDRESS = frozenset({"wrong-route", "wrong-learned-route", "route-missing", "stray-route"})


@dataclass(frozen=True, slots=True)
class Explained:
    """One question's path, and what is wrong on it."""

    path: Path
    findings: tuple[Finding, ...]
    """The first one met is the answer; none where nothing was seen."""


class Explainer:
    """Judges any number of questions by one look at the machines.

    Parameters
    ----------
    intent
        The lab's, bound to what is known at run time only.
    observed
        What was seen of some machines, or why they could not be asked. Nothing is said of others.

    """

    def __init__(self, intent: Intent, observed: Mapping[str, NodeFacts | LabError]) -> None:
        self._by: By = "lab" if intent.kubernetes is None else "kubernetes"
        self._seen = {name: one for name, one in observed.items() if not isinstance(one, LabError)}
        self._silent = {name: one for name, one in observed.items() if isinstance(one, LabError)}
        self._intent = intent
        if self._by == "kubernetes":
            self._intent, self._seen = settled(intent, self._seen), named(intent, self._seen)
        self._beside = footprint(intent.topology, self._by)
        self._of: dict[str, tuple[Difference, ...]] = {}
        self._between = (
            *sessions.differences(self._intent, self._seen, by=self._by),
            *between(self._intent, self._seen),
            *logical.differences(self._intent, self._seen),
            *node_software.differences(self._intent, self._seen),
            *calico.differences(self._intent, self._seen),
        )

    def explain(self, flow: Flow, *, works: bool = True) -> Explained:
        """The path of the question with the most that is wrong first; the first of several.

        Where it is not to work (``works``) a path that the Intent itself ends is as it should be.
        """
        paths = walk(self._intent, flow)
        explained = [Explained(path, self._findings(path, works=works)) for path in paths]
        return next((one for one in explained if one.findings), explained[0])

    def everything(self) -> tuple[Finding, ...]:
        """What is wrong on every machine, and the machines that did not answer."""
        return (*(self._silence(name, -1) for name in self._silent), *self.elsewhere())

    def elsewhere(self) -> tuple[Finding, ...]:
        """Everything that is wrong on the machines that were seen, wherever packets go."""
        every = [one for name in self._seen for one in self._own(name)]
        return tuple(found(one, -1) for one in _causes([*every, *self._between]))

    def _findings(self, path: Path, *, works: bool) -> tuple[Finding, ...]:
        met = sorted(self._met(path), key=lambda one: (_follows(one[1]), one[0]))
        causes = _causes([difference for _, difference in met])
        said = [found(one, hop) for hop, one in met if one in causes]
        for name in path.machines:
            if name in self._silent:
                hop = next(at for at, one in enumerate(path.hops) if one.machine == name)
                said.append(self._silence(name, hop))
        if path.end and works:
            said.append(_end(path))
        return tuple(said)

    def _met(self, path: Path) -> Iterator[tuple[int, Difference]]:
        every = [one for name in path.machines for one in self._own(name)]
        for difference in (*every, *self._between):
            hop = first_hop(difference, path)
            if hop is not None:
                yield hop, difference

    def _own(self, name: str) -> tuple[Difference, ...]:
        facts = self._seen.get(name)
        if facts is None:
            return ()
        if name not in self._of:
            machine = self._intent.machine(name)
            looked_at = self._looked_at(machine, facts)
            self._of[name] = differences(looked_at, facts, by=self._by, beside=self._beside)
        return self._of[name]

    def _looked_at(self, machine: MachineIntent, facts: NodeFacts) -> MachineIntent:
        """The machine with those of the lab's own pods alone that were looked into."""
        if self._by == "kubernetes" or facts.pods is None:
            return machine
        seen = {one.name for one in facts.pods}
        return replace(machine, pods=tuple(one for one in machine.pods if one.name in seen))

    def _silence(self, name: str, hop: int) -> Finding:
        error = self._silent[name]
        return Finding(
            "machine-silent",
            "",
            name,
            "the machine itself",
            "an answer when it is asked how it is",
            f"{error.doing}: {error.happened}",
            "lab status",
            error.hint or "lab up",
            name,
            hop,
        )


def _end(path: Path) -> Finding:
    """Where the Intent itself leads nowhere."""
    last = path.hops[-1]
    return Finding(
        "intent-ends",
        "",
        last.machine,
        last.object,
        "a way on",
        path.end,
        "lab show",
        "see the scenario: this is what it asks for",
        last.place,
        len(path.hops) - 1,
    )


def _follows(difference: Difference) -> bool:
    """Whether it is most often what comes of something else: of the other end, that is down."""
    no_carrier = difference.kind == "link-down" and difference.observed.startswith("no carrier")
    return no_carrier or difference.kind in _FOLLOWS


def _causes(every: Sequence[Difference]) -> list[Difference]:
    """Without what follows from another of them."""
    macs = {(one.node, _device(one)) for one in every if one.kind == "duplicate-mac"}
    cidrs = {one.node for one in every if one.kind == "duplicate-pod-cidr"}
    pods = {(one.node, _device(one)) for one in every if one.kind == "duplicate-address"}
    stopped = {one.node for one in every if one.kind == "proxy-stopped"}
    not_ready = any(one.kind in _NOT_READY for one in every)
    return [
        one
        for one in every
        if not (one.kind == "link-mac" and (one.node, one.object.split()[-1]) in macs)
        and not (one.kind in _SAME_ADDRESS and one.node in cidrs)
        and not (one.kind == "pod-address" and (one.node, one.object) in pods)
        and not (one.kind in _OF_ENDPOINTS and (not_ready or one.node in stopped))
    ]


def _device(difference: Difference) -> str:
    return difference.object.rpartition(" of ")[2]
