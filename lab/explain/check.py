"""A check: one comparison of a machine's facts with its Intent.

A plug-in of checks has one or more subclasses of :class:`Check`, which :func:`checks` finds. A
check declares the kinds of differences that it finds and, for each kind, the equivalent fault, the
packets that meet it, and the commands for Windows.
"""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from ipaddress import ip_interface
from typing import ClassVar, Literal, TypedDict, Unpack

from lab._plugins import classes
from lab.facts.command_lines import IN_POD, in_powershell
from lab.facts.difference import (
    DEVIATION,
    NOT_ASKED,
    OBJECT,
    SILENT,
    Change,
    Concern,
    Difference,
)
from lab.facts.effect import NO_EFFECT, Effect, read_effect
from lab.facts.items import (
    KIND,
    LOCAL,
    PORT,
    SET,
    VNI,
    Item,
    Items,
    make_address,
    make_attribute,
)
from lab.facts.node import NodeFacts, PodFacts
from lab.facts.translations import Barrier
from lab.topology.commands import tables, with_source
from lab.topology.footprint import By, Footprint
from lab.topology.intent import Intent, MachineIntent, Pod
from lab.topology.path import Hop, Packet, Path
from lab.topology.routing import bare, covers, network_of
from lab.topology.subject import (
    AddressSubject,
    DeviceSubject,
    EntrySubject,
    FirewallSubject,
    NeighbourSubject,
    PodSubject,
    ProxySubject,
    RouteSubject,
    SettingSubject,
    Subject,
    UnitSubject,
    values_of,
)

DNS_PORT = 53
NEW_LAB = "lab down, then lab up"
"""Advice where a check knows no command."""
NO_DROPPING_RULE = "no rule that drops or rejects the lab's packets"
"""What is intended where a rule is found that does."""
HNS_NETWORKS = "Get-HnsNetwork | Format-List -Property Name, Type, ManagementIP, Subnets, Policies"
HNS_ENDPOINTS = (
    "Get-HnsEndpoint | Format-List -Property Name, IPAddress, IsRemoteEndpoint, Policies"
)
STOP_FLANNEL = (
    "Stop-ScheduledTask -TaskName hybridlab-flanneld; "
    "Stop-Process -Name flanneld -ErrorAction SilentlyContinue"
)
START_FLANNEL = "Start-ScheduledTask -TaskName hybridlab-flanneld"
RESTART_FLANNEL = f"{STOP_FLANNEL}; {START_FLANNEL}; Restart-Service -Name kube-proxy"
REMOVE_POLICIES = "Get-HnsPolicyList | Where-Object -FilterScript { $_ } | Remove-HnsPolicyList"
"""Without any, Get-HnsPolicyList gives one null."""
_CTR = "& $env:ProgramFiles\\containerd\\ctr.exe --namespace k8s.io tasks"
_END_PODS = f"{_CTR} list --quiet | ForEach-Object -Process {{ {_CTR} kill --signal SIGKILL $_ }}"
RECREATE_NETWORK = (
    f"Stop-Service -Name kube-proxy; {STOP_FLANNEL}; Get-HnsNetwork | Where-Object -Property Name "
    f"-EQ -Value {{network}} | Remove-HnsNetwork; {_END_PODS}; {START_FLANNEL}; "
    "Start-Service -Name kube-proxy"
)
"""The kubelet makes the pods again, whose endpoints went with the network."""


@dataclass(frozen=True, slots=True)
class OnWindows:
    """How a difference is shown and fixed on Windows.

    In PowerShell, ``{network}`` is the name of the pods' HNS network, and ``{name}`` that of the
    difference's subject: a device, service, firewall rule or route's destination.
    """

    shows: str
    """PowerShell."""
    mends: str = ""
    """PowerShell; empty if no command fixes it."""
    advice: str = ""
    """A sentence, where no command fixes it."""
    fault: str = ""
    """Name of the fault with the same symptoms, if there is one on Windows alone."""


def _name(subject: Subject) -> str:
    """A subject as PowerShell's commands name it."""
    match subject:
        case DeviceSubject(name=name) | UnitSubject(name=name) | FirewallSubject(rule=name):
            return name
        case RouteSubject():
            return subject.prefix
        case _:
            return ""


def _word(text: str) -> str:
    """A word of PowerShell."""
    plain = re.fullmatch(r"[\w.:/-]+", text)
    return text if plain else "'" + text.replace("'", "''") + "'"


Meets = Callable[[Difference, Hop, Path], bool]
"""Whether a packet meets the difference at a hop of its path."""
Explains = Callable[[Difference, Difference], bool]
"""Whether the second difference is a consequence of the first one, which is of the kind."""
Symptom = Literal["", "learned", "counted"]
"""What daemons have not learned, or what packets were counted."""


def at_object(difference: Difference, hop: Hop, _: Path) -> bool:
    """At the object with the same name, as most kinds."""
    return hop.machine == difference.node and hop.subject == difference.subject


def on_machine(difference: Difference, hop: Hop, _: Path) -> bool:
    """Anywhere on the machine."""
    return hop.machine == difference.node


def concerned(difference: Difference, hop: Hop, _: Path) -> bool:
    """At the objects that depend on it."""
    return (hop.machine, hop.subject) in difference.concerns


def at_object_or_concerned(difference: Difference, hop: Hop, path: Path) -> bool:
    """At the object, and at those that depend on it."""
    return at_object(difference, hop, path) or concerned(difference, hop, path)


def at_services(difference: Difference, hop: Hop, _: Path) -> bool:
    """Wherever a Service is translated on the machine."""
    return hop.kind == "service" and hop.machine == difference.node


def asks_for(hop: Hop, prefix: str, machine: str) -> bool:
    """Whether another machine sends ARP requests at this hop for an address in the prefix."""
    if hop.machine == machine or hop.place != hop.machine:
        return False
    return isinstance(hop.subject, NeighbourSubject) and covers(prefix, hop.subject.address)


def at_barrier(difference: Difference, hop: Hop, path: Path) -> bool:
    """Where a firewall rule takes a packet of the path."""
    barrier = difference.barrier
    if barrier is None:
        return False
    if barrier.protocol == "arp":
        if any(asks_for(hop, prefix, difference.node) for prefix in barrier.prefixes):
            return True
        neighbour, asks = hop.subject, hop.place == hop.machine == difference.node
        return (
            asks
            and isinstance(neighbour, NeighbourSubject)
            and any(covers(network_of(text), neighbour.address) for text in barrier.networks)
        )
    if hop.place != difference.node or hop.kind == "switch":
        return False  # nor does a firewall see what a pod does, or what crosses a switch
    if barrier.device and (hop.place, hop.device) != (difference.node, barrier.device):
        return False
    packets = [hop.packet] if hop.carried else []
    if _sees(barrier.hook, path, difference.node):
        packets.append(hop.carried or hop.packet)
    return any(_takes(barrier, packet) for packet in packets)


def _sees(hook: str, path: Path, machine: str) -> bool:
    """Whether the request and its answer pass a hook of the machine; not what carries them."""
    own = machine in {hop.place for hop in (*path.request[:1], *path.request[-1:])}
    return {"": True, "forward": not own}.get(hook, own)


def _takes(barrier: Barrier, packet: Packet) -> bool:
    if barrier.protocol not in {"", packet.protocol}:
        return False
    if barrier.ports:  # the server's port, which is the source port of an answer
        first, last = barrier.ports
        if packet.answer or not first <= packet.port <= last:
            return False
    ends = (packet.source, packet.target)
    return not barrier.prefixes or any(
        covers(prefix, end) for prefix in barrier.prefixes for end in ends
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """One way in which a machine can differ from its Intent."""

    name: str
    """Name in reports: ``"wrong-vni"``."""
    fault: str = ""
    """Name of the fault with the same symptoms, if it differs from the kind's name."""
    windows: OnWindows | None = None
    """None if the Linux commands apply, or it does not occur on Windows."""
    meets: Meets = at_object
    """Which packets meet it. A firewall rule affects the packets that match it."""
    follows: bool = False
    """Whether it is usually a consequence of something else, or not on a packet's path."""
    symptom: Symptom = ""
    """Whether it is only a symptom of something else, perhaps on a machine off the path."""
    explains: Explains | None = None
    """Which other differences are left out where there is one of this kind; None for no other."""
    awaited: bool = False
    """Whether daemons make it right some time after a lab is up."""
    everywhere: bool = False
    """Whether it configures all nodes, so that packets may be lost anywhere."""
    prevents_sending: bool = False
    """Whether the machine cannot send at all, so that even its own refusals do not leave it."""
    of_containers: bool = False
    """Whether, on a cluster, it follows when a pod's container ends or its node is not ready."""
    partial: bool = False
    """Whether it affects only some packets."""


OWN_KINDS = (
    Kind("packets-dropped", symptom="counted"),
    Kind("lost-between", symptom="counted"),
    Kind("lost-here"),
    Kind("intent-ends"),
    Kind(SILENT),
    Kind(NOT_ASKED),
    Kind(DEVIATION),
    Kind(OBJECT),
)
"""Kinds that no check declares: those of captured or counted packets, and of whole states."""


_ATTRIBUTES = {"address": "mac", VNI: "vni", PORT: "port", LOCAL: "local", KIND: ""}
"""Short names of attributes in differences."""
_QUERIES: Mapping[type[Subject], str] = {
    DeviceSubject: "address",
    AddressSubject: "address",
    RouteSubject: "route",
    NeighbourSubject: "neighbour",
    ProxySubject: "proxy",
    EntrySubject: "forwarding",
    SettingSubject: "settings",
}
"""The queries of :mod:`lab.facts.questions` that return such items."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One item that a machine or pod must have, in the notation of its facts."""

    kind: str
    """The kind of the difference where it has another value."""
    subject: Subject
    """The object, as hops of a path refer to it."""
    item: Item
    missing: str | None = ""
    """The kind if there is none; empty for ``kind``, None if it may be missing."""
    silent: str = ""
    """The kind if a neighbour does not answer; empty if it need not."""
    shows: str = ""
    """The command that shows it; empty for the item's own."""
    mends: str = ""
    """The command that corrects it; empty for the item's own."""
    words: str = "{}"
    """Format of both values in messages."""
    intended: str = ""
    """Text for the wanted value, if ``words`` does not fit it."""
    none: str = ""
    """Text for a missing value; empty for the default."""
    windows: OnWindows | None = None
    """What shows and fixes it on Windows; None for the kind's."""


def wanted_up(kind: str, subject: Subject, device: str, lost: Iterable[str]) -> Wanted:
    """A device that must be up; ``lost``: the commands for what it loses when it is set down."""
    item = make_attribute(device, "up", SET)
    return Wanted(kind, subject, item, mends=" && ".join((item.make, *lost)))


def wanted_address(look: Look, kind: str, subject: Subject, address: str, device: str) -> Wanted:
    """An address of a machine's device, with the commands for what is lost without it."""
    item, every = make_address(address, device), look.observed.items
    lost = () if every.addresses(device) else tables(look.intended, device)
    by_source = with_source(look.intended, bare(address))
    return Wanted(kind, subject, item, mends=" && ".join((item.make, *lost, *by_source)))


def _is_judged(item: Item, actual: Item | None, items: Items, os: str) -> bool:
    """Whether an item is known, and does not depend on a device that is missing or down.

    Nor on an address that is missing: a route of Linux has next hops only on a device with one; an
    HNS network has none.
    """
    if isinstance(route := item.subject, RouteSubject) and actual is None:
        if route.via and os == "linux" and not items.addresses(route.device):
            return False
        if route.source and route.source not in items.held():
            return False
    if isinstance(item.subject, DeviceSubject) and item.attribute not in {KIND, "master"}:
        return actual is not None or item.exists
    if isinstance(item.subject, DeviceSubject | AddressSubject):
        return item.attribute == KIND or f"link {item.device}" in items
    return (
        not item.device
        or items.works(item.device)
        or (actual is not None and item.section == "route")
    )


def _is_same(item: Item, actual: Item) -> bool:
    """Whether an item is as wanted; the source address of a route only if one is wanted."""
    if isinstance(actual.subject, NeighbourSubject) and actual.subject.state in _SILENT:
        return False
    return (
        actual.words == item.words
        or (item.section == "route" and actual.words.startswith(f"{item.words} from "))
        or isinstance(item.subject, ProxySubject)
        or (isinstance(actual.subject, NeighbourSubject) and actual.subject.state == "NOARP")
    )


_SILENT = frozenset({"FAILED", "INCOMPLETE", "UNREACHABLE"})


class More(TypedDict, total=False):
    """What only some differences have; see :class:`lab.facts.difference.Difference`."""

    name: str
    """The subject's name, if its own is not enough."""
    place: str
    """Where the commands are run: the pod, or another machine than the node."""
    attribute: str
    change: Change
    values: tuple[str, ...]
    """What is seen, as the machine itself writes it, beside what the subject has."""
    effect: Effect
    barrier: Barrier
    others: tuple[tuple[str, Subject], ...]
    concerns: tuple[Concern, ...]
    windows: OnWindows | None
    """What shows and fixes it on Windows; None for the kind's."""


@dataclass(frozen=True, slots=True)
class Look:
    """One machine's Intent and facts, for the checks."""

    intended: MachineIntent
    observed: NodeFacts
    by: By
    footprint: Footprint
    """What the network add-on creates in addition, which is accepted."""

    def differs(  # noqa: PLR0913, PLR0917  a difference is all of these
        self,
        kind: str,
        subject: Subject,
        intended: str,
        observed: str,
        shows: str,
        mends: str,
        **more: Unpack[More],
    ) -> Difference:
        """A difference of this machine."""
        of_windows = more.pop("windows", None) or kinds()[kind].windows
        node = self.intended.name
        if self.observed.os != "windows" or of_windows is None:
            return differs(kind, node, subject, intended, observed, shows, mends, **more)
        shows = in_powershell(self._named(of_windows.shows, subject))
        mends = self._named(of_windows.mends, subject)
        mends = in_powershell(mends) if mends else of_windows.advice
        made = differs(kind, node, subject, intended, observed, shows, mends, **more)
        return replace(made, fault=of_windows.fault or made.fault)

    def _named(self, script: str, subject: Subject) -> str:
        network = self.intended.tunnel or self.intended.bridge
        name = network.name if network else ""
        return script.replace("{network}", _word(name)).replace("{name}", _word(_name(subject)))

    @property
    def lacks_pod_network(self) -> bool:
        """Whether HNS has lost the pods' network, and with it their endpoints and load balancers.

        Only the network is then reported. A bridge is known by its prefix: its network has another
        name, and its own gateway.
        """
        tunnel, bridge = self.intended.tunnel, self.intended.bridge
        if self.observed.os != "windows" or not self.observed.knows("networks"):
            return False
        if tunnel is not None:
            return self.observed.items.attribute(tunnel.name, KIND) != "vxlan"
        wanted = {network_of(text) for text in bridge.addresses} if bridge else set()
        networks = (link for link in self.observed.links if link.kind == "bridge")
        return not wanted <= {network_of(text) for link in networks for text in link.addresses}

    def pod_facts(self, pod: Pod) -> PodFacts | None:
        """A pod's facts, by its name or its address; None if the machine has no such pod."""
        pods = self.observed.pods or ()
        named = next((candidate for candidate in pods if candidate.name == pod.name), None)
        if named:
            return named
        address = bare(pod.address)
        return next(
            (candidate for candidate in pods if address in map(bare, candidate.addresses())), None
        )

    @property
    def lost_ends(self) -> frozenset[str]:
        """The addresses of pods whose endpoints HNS has lost, and its load balancers with them."""
        if self.observed.os != "windows" or self.observed.pods is None:
            return frozenset()
        return frozenset(
            bare(pod.address) for pod in self.intended.pods if self.pod_facts(pod) is None
        )

    @property
    def every_pod(self) -> tuple[Concern, ...]:
        """The machine's pods, for a difference that concerns them all."""
        node = self.intended.name
        return tuple((node, PodSubject(pod.name)) for pod in self.intended.pods)

    def works(self, device: str) -> bool:
        """Whether a device exists, is up and has a carrier; otherwise only that is reported."""
        return self.observed.items.works(device)

    def compare(self, wanted: Iterable[Wanted]) -> Iterator[Difference]:
        """The differences of the wanted items of this machine."""
        return self._compare(wanted, self.observed.items)

    def compare_pod(
        self, wanted: Iterable[Wanted], pod: PodFacts, name: str
    ) -> Iterator[Difference]:
        """The differences of the wanted items of a pod; ``name``: as the Intent calls it."""
        return self._compare(wanted, pod.items, name)

    def _compare(
        self, wanted: Iterable[Wanted], items: Items, pod: str = ""
    ) -> Iterator[Difference]:
        for each in wanted:
            if self.observed.knows(_QUERIES[type(each.item.subject)]):
                yield from self._compare_item(each, items, pod)

    def _compare_item(self, wanted: Wanted, items: Items, pod: str) -> Iterator[Difference]:
        item, subject = wanted.item, wanted.item.subject
        actual = items.find(item)
        kind: str | None = wanted.kind
        if actual is None:
            kind = wanted.kind if wanted.missing == "" else wanted.missing
            observed = wanted.none or "there is none"
            if isinstance(subject, AddressSubject):
                observed = wanted.none or " ".join(items.addresses(item.device)) or "no address"
            elif isinstance(subject, DeviceSubject):
                observed = wanted.none or f"no such device (there: {', '.join(items.devices())})"
        else:
            observed = wanted.words.format(actual.words)
            if isinstance(actual.subject, NeighbourSubject) and actual.short in {"", item.short}:
                kind = wanted.silent if actual.subject.state in _SILENT else None
                observed = f"no answer ({actual.subject.state})"
        if (
            not kind
            or not _is_judged(item, actual, items, self.observed.os)
            or (actual and _is_same(item, actual))
        ):
            return
        inside = IN_POD if pod else ""
        attribute = "address" if isinstance(subject, AddressSubject) else item.attribute
        if isinstance(subject, DeviceSubject):
            attribute = _ATTRIBUTES.get(attribute, attribute)
        values = items.addresses(item.device) if attribute == "address" else ()
        yield self.differs(
            kind,
            wanted.subject,
            wanted.intended or wanted.words.format(item.words),
            observed,
            inside + (wanted.shows or item.shows),
            inside + (wanted.mends or item.make),
            place=pod,
            attribute=attribute,
            change="changed" if actual else "gone",
            values=values or ((actual.words, actual.value) if actual else ()),
            windows=wanted.windows,
        )

    def ranges(self) -> tuple[str, ...]:
        """The lab's prefixes known to the machine: nodes', pods', Services'."""
        return tuple(dict.fromkeys(self._ranges()))

    def _ranges(self) -> Iterator[str]:
        machine = self.intended
        for interface in machine.interfaces:
            yield from (str(ip_interface(text).network) for text in interface.held)
        yield from (route.destination for route in machine.routes if route.destination != "default")
        if machine.translation:
            yield from machine.translation.not_masqueraded
            yield from (f"{service.address}/32" for service in machine.translation.services)
            if machine.translation.local_cidr:
                yield machine.translation.local_cidr


@dataclass(frozen=True, slots=True)
class LabLook:
    """A whole lab's Intent and the facts about its machines, for the checks."""

    intent: Intent
    observed: Mapping[str, NodeFacts]
    by: By = "lab"


class Check(ABC):
    """One comparison; a subclass overrides ``wants``, ``on_machine`` or ``in_lab``."""

    order: ClassVar[int]
    """Position among the checks, in the order in which a packet meets them."""
    question: ClassVar[str] = ""
    """The query of :mod:`lab.facts.questions` that it needs; a machine that did not answer it is
    not judged. Empty if the check decides itself.
    """
    kinds: ClassVar[tuple[Kind, ...]]

    def wants(self, look: Look) -> Iterator[Wanted]:  # noqa: ARG002  overridden
        """What one machine must have."""
        return iter(())

    def on_machine(self, look: Look) -> Iterator[Difference]:
        """Differences of one machine."""
        return look.compare(self.wants(look))

    def in_lab(self, look: LabLook) -> Iterator[Difference]:  # noqa: ARG002  overridden
        """Differences between machines, or of one according to another's facts."""
        return iter(())


@cache
def checks() -> tuple[Check, ...]:
    """Every check, in order."""
    made = (check() for check in classes("checks", Check))
    return tuple(sorted(made, key=lambda check: check.order))


@cache
def kinds() -> Mapping[str, Kind]:
    """Every kind by name; several checks may declare the same one."""
    of_checks = (kind for check in checks() for kind in check.kinds)
    return {kind.name: kind for kind in (*OWN_KINDS, *of_checks)}


def kind_of(difference: Difference) -> Kind:
    """The record of a difference's kind; a plain one for a kind that nobody declares."""
    return kinds().get(difference.kind) or Kind(difference.kind)


def differs(  # noqa: PLR0913, PLR0917  a difference is all of these
    kind: str,
    node: str,
    subject: Subject,
    intended: str,
    observed: str,
    shows: str,
    mends: str,
    **more: Unpack[More],
) -> Difference:
    """A difference, with its fault and the place of its commands."""
    barrier = more.get("barrier")
    return Difference(
        *(kind, kinds()[kind].fault, node, more.get("name") or str(subject), intended, observed),
        *(shows, mends, more.get("place") or node),
        subject=subject,
        attribute=more.get("attribute", ""),
        change=more.get("change", "changed"),
        effect=read_effect(barrier.rule) if barrier else more.get("effect", NO_EFFECT),
        values=(*values_of(subject), *more.get("values", ())),
        barrier=barrier,
        others=more.get("others", ()),
        concerns=more.get("concerns", ()),
        no_command=mends == NEW_LAB,
    )


def first_hop(difference: Difference, path: Path) -> int | None:
    """The first hop that a difference concerns, counted from 0, or None."""
    meets = at_barrier if difference.barrier else kind_of(difference).meets
    return next((at for at, hop in enumerate(path.hops) if meets(difference, hop, path)), None)
