"""The complete state of one network namespace, compared with the one that was made. Pure.

The same questions are asked now and where the namespace is as the lab makes it: in a second copy of
the lab, or in the lab itself once it is up. So both sides have the same form. What others create
and remove there is left out (:class:`Churn`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lab._errors import BrokenError
from lab.facts.churn import STILL, Churn
from lab.facts.difference import (
    DEVIATION,
    Difference,
    make_not_asked,
    make_unread,
    name_in_state,
)
from lab.facts.effect import NO_EFFECT, Effect, read_effect
from lab.facts.items import CARRIER, KIND, NOT_SET, OPEN, THERE, Item, Items
from lab.facts.questions import answers
from lab.facts.readers import read_items, read_links
from lab.facts.ruleset import Ruleset, changed_lines, compare_rulesets, read_ruleset
from lab.topology.routing import bare
from lab.topology.subject import (
    AddressSubject,
    DeviceSubject,
    RouteSubject,
    Subject,
    device_of,
    values_of,
)


@dataclass(frozen=True, slots=True)
class State:
    """The parsed state of one namespace."""

    items: Items
    ruleset: Ruleset
    space: tuple[str, ...] = ()
    """The computer's boot, the namespace, and the other end of ``eth0`` if it has one."""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Queries without an answer, and why."""
    lacking: frozenset[str] = frozenset()
    """Those of them for which the machine has no program, or no part of the kernel."""


def read_state(stdout: str, stderr: str = "") -> State:
    """Parse the output of :data:`~lab.facts.questions.STATE_COMMAND`.

    Raises CutOffError if the script did not run to its end.
    """
    by_query = answers(stdout, stderr)
    texts = {name: answer.text for name, answer in by_query.items()}
    # a new namespace can have the number of one that is gone; a new link cannot
    ends = (
        str(link["link_index"])
        for link in read_links(texts)
        if link["ifname"] == "eth0" and "link_index" in link
    )
    return State(
        read_items(texts),
        read_ruleset(texts.get("ruleset", "")),
        (*texts.get("space", "").split(), *ends),
        {
            name: answer.trouble
            for name, answer in by_query.items()
            if answer.trouble and not name.startswith("filter ")
        },
        frozenset(name for name, answer in by_query.items() if not answer.installed),
    )


_ONE_SIDED = frozenset({"setting", "learned", "process"})
"""Sections that are only compared if both sides have the object: a device's settings go with it."""


def is_same_space(made: State, now: State) -> bool:
    """Whether both are of one namespace; what is created anew with the same name is another one."""
    return bool(now.space) and made.space[: len(now.space)] == now.space


def compare_states(made: State, now: State, churn: Churn = STILL) -> tuple[Difference, ...]:
    """Every difference, causes before consequences: a link before its routes.

    Last what neither side could be asked, as the machine lacks the same thing, of the kind
    ``NOT_ASKED``; and of the kind ``SILENT`` what a side has no answer to, even if the other has
    none either: two states of which nothing is known are not equal. The rest is compared. Raises
    BrokenError without the devices, their addresses and the namespace, on which the rest depends.
    """
    both_lack = {name: made.silent[name] for name in made.lacking & now.lacking}
    unread: dict[str, Difference] = {}
    for state, when in ((now, "now"), (made, "as the lab made it")):
        for name, trouble in state.silent.items():
            if both_lack.get(name) == trouble:
                continue
            if _query(name) in _NEEDED:
                raise BrokenError(f"comparing the whole state: reading '{name}' {when}", trouble)
            installed = name not in state.lacking
            difference = make_unread(name, f"{trouble} ({when})", installed=installed)
            unread.setdefault(name, difference)
    unknown = {section for name in unread for section in _SECTIONS[_query(name)]}
    made, now = _without(made, unknown), _without(now, unknown)
    every = [*_same_addresses(_compare_items(made.items, now.items, churn))]
    every = [*_with_renamed(every, _renamed(made.items, now.items))]
    every = [*_without_lost(_without_connected(every, (made.items, now.items)), now.items)]
    every = [*_with_neighbours(every)]
    every += compare_rulesets(made.ruleset, now.ruleset, churn.rules)
    return (
        *(
            difference
            for difference in sorted(every, key=lambda difference: _ORDER.index(difference.section))
            if not any(passing.covers(difference) for passing in churn.objects)
        ),
        *(make_not_asked(name, why) for name, why in both_lack.items() if name not in unread),
        *unread.values(),
    )


_NEEDED = frozenset({"space", "address"})
"""Queries without whose answers nothing can be compared."""
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "route": ("route",),
    "cache": ("cache",),
    "rules": ("rule",),
    "nexthops": ("nexthop",),
    "neighbour": ("neighbour", "learned"),
    "proxy": ("neighbour",),
    "forwarding": ("forwarding",),
    "vlans": ("vlan",),
    "ruleset": ("nftables",),
    "iptables-legacy": ("iptables",),
    "ipsets": ("ipset",),
    "xfrm-policies": ("xfrm",),
    "xfrm-states": ("xfrm",),
    "xfrm-default": ("xfrm",),
    "queues": ("queue", "filter"),
    "class": ("queue",),
    "settings": ("setting",),
    "file": ("file",),
    "processes": ("process",),
    "sockets": ("socket",),
}
"""The parts of a state that are not compared without the answer to a query."""


def _query(name: str) -> str:
    """The query of which an answer's name may be for one object: ``"class eth0"``."""
    return name.partition(" ")[0]


def _without(state: State, sections: Collection[str]) -> State:
    if not sections:
        return state
    items = Items.of(item for item in state.items.values() if item.section not in sections)
    return replace(
        state, items=items, ruleset=read_ruleset("") if "nftables" in sections else state.ruleset
    )


def _renamed(made: Mapping[str, Item], now: Mapping[str, Item]) -> Mapping[str, str]:
    """New names of devices of the same kind and MAC, by the old ones."""
    gone, new = _devices(made) - _devices(now), _devices(now) - _devices(made)
    by_identity = {_identity(now, name): name for name in new}
    return {
        name: by_identity[kind] for name in gone if (kind := _identity(made, name)) in by_identity
    }


def _identity(items: Mapping[str, Item], device: str) -> tuple[str, ...]:
    keys = (f"link {device} {KIND}", f"link {device} address")
    return tuple(items[key].value if key in items else "" for key in keys)


def _with_renamed(every: Iterable[Difference], renamed: Mapping[str, str]) -> Iterator[Difference]:
    """A device with another name is the only difference of it: it must not be deleted."""
    names = {*renamed, *renamed.values()}
    for difference in every:
        device = device_of(difference.subject)
        if _is_device(difference) and device in renamed:
            mends = f"ip link set dev {renamed[device]} name {device} up"
            observed = f"it is called {renamed[device]}"
            yield replace(difference, observed=observed, shows="ip link", mends=mends)
        elif device not in names:
            yield difference


def _is_device(difference: Difference) -> bool:
    return isinstance(difference.subject, DeviceSubject) and not difference.attribute


def _same_addresses(differences: Iterable[Difference]) -> Iterator[Difference]:
    """An address with another netmask is one difference, and what is wrong has to go."""
    every = list(differences)
    new = [
        (difference, subject)
        for difference in every
        if isinstance(subject := difference.subject, AddressSubject) and difference.change == "new"
    ]
    for difference in every:
        subject = difference.subject
        if not isinstance(subject, AddressSubject):
            yield difference
        elif difference.change != "new":
            same = [pair for pair in new if _without_length(pair[1]) == _without_length(subject)]
            if same:
                new = [pair for pair in new if pair not in same]
                yield replace(
                    difference,
                    object=name_in_state(subject, NETMASK),
                    attribute=NETMASK,
                    intended=subject.address,
                    observed=", ".join(other.address for _, other in same),
                    mends="; ".join((difference.mends, *(other.mends for other, _ in same))),
                )
            else:
                yield difference
    yield from (difference for difference, _ in new)


NETMASK = "netmask"
"""The attribute of an address that has another prefix length."""


def _without_length(subject: AddressSubject) -> tuple[str, str]:
    return subject.address.partition("/")[0], subject.device


def _without_connected(
    every: Sequence[Difference], sides: Sequence[Mapping[str, Item]]
) -> Sequence[Difference]:
    """Without the kernel's own routes of devices whose addresses differ: they follow from these."""
    readdressed = {
        difference.subject.device
        for difference in every
        if isinstance(difference.subject, AddressSubject)
    }

    def follows(difference: Difference) -> bool:
        if device_of(difference.subject) not in readdressed:
            return False
        items = (side.get(f"route {difference.object}") for side in sides)
        routes = (item.subject for item in items if item)
        return any(
            isinstance(subject, RouteSubject) and subject.maker == "kernel" for subject in routes
        )

    return [difference for difference in every if not follows(difference)]


def _without_lost(every: Sequence[Difference], now: Items) -> Iterator[Difference]:
    """Without what went with a device or an address: the command for that adds it again."""
    gone = [
        difference
        for difference in every
        if difference.change == "gone" and difference.section in {"route", "neighbour"}
    ]
    # a next hop can be used only after the route to itself
    gone.sort(key=lambda difference: _is_indirect(difference.subject))
    lost = {
        cause: [other for other in gone if _takes_away(cause, other, now)]
        for cause in every
        if isinstance(cause.subject, DeviceSubject | AddressSubject)
    }
    followers = {other for others in lost.values() for other in others}
    for difference in every:
        again = [other.mends for other in lost.get(difference, ()) if not _returns(other.subject)]
        if difference not in followers:
            yield replace(difference, mends="; ".join((difference.mends, *again)))


def _is_indirect(subject: Subject) -> bool:
    return isinstance(subject, RouteSubject) and bool(subject.via)


def _returns(subject: Subject) -> bool:
    """Whether the kernel or a daemon adds it again, with the device or the address."""
    return isinstance(subject, RouteSubject) and subject.maker not in {"", "boot", "static"}


def _takes_away(cause: Difference, other: Difference, now: Items) -> bool:
    """Whether ``cause``, a change of a device, makes the kernel remove a route or neighbour.

    A device that is set down or loses its last address loses all of them. Without an address, the
    kernel removes the routes that have it as their source.
    """
    lost, of_device = other.subject, device_of(other.subject) == device_of(cause.subject)
    match cause.subject:
        case DeviceSubject():
            return of_device and cause.attribute == "up" and NOT_SET in cause.values
        case AddressSubject(address=address, device=device) if cause.change == "gone":
            source = lost.source if isinstance(lost, RouteSubject) else ""
            return source == bare(address) or (of_device and not now.addresses(device))
        case _:
            return False


def _with_neighbours(every: Sequence[Difference]) -> Iterator[Difference]:
    """The differences; the command that restores a device's MAC or ARP setting adds its neighbours.

    The kernel removed them when the setting changed.
    """
    for difference in every:
        device = device_of(difference.subject)
        forgets = difference.section == "link" and difference.attribute in {"address", "noarp"}
        lost = [
            other.mends
            for other in every
            if forgets and other.section == "neighbour" and other.change != "new"
            if device_of(other.subject) == device
        ]
        yield replace(difference, mends="; ".join((difference.mends, *lost)))


_ORDER = (
    *("link", "address", "rule", "nexthop", "route", "neighbour", "forwarding", "vlan"),
    *("nftables", "iptables", "ipset", "xfrm", "queue", "filter", "setting", "file"),
    *("process", "socket", "cache"),
)


def _devices(items: Mapping[str, Item]) -> set[str]:
    return {item.device for item in items.values() if item.exists}


def _compare_items(
    made: Mapping[str, Item], now: Mapping[str, Item], churn: Churn
) -> Iterator[Difference]:
    gone, new = _devices(made) - _devices(now), _devices(now) - _devices(made)
    passing = {name for name in gone | new if churn.devices.fullmatch(name)}
    for key, item in made.items():
        actual = now.get(key) or now.get(f"learned {item.object}")
        if actual is not None and actual.attribute == "carrier" and actual.value == CARRIER:
            continue  # a copy has no daemon that makes its link work
        if actual is not None and (actual.section, actual.value) == (item.section, item.value):
            continue
        if item.section in _ONE_SIDED | {"cache"} and actual is None:
            continue
        if actual is not None and item.section == "socket" and OPEN in {item.value, actual.value}:
            continue  # whose it is is not known on one side
        if item.device in gone and not _outlasts(item):
            continue  # went with its device
        if item.section != "learned" and item.device not in passing:
            yield _differs(item, actual)
    for key, actual in now.items():
        alone = key not in made and actual.section not in _ONE_SIDED | {"socket"}
        of_new = actual.device in new and actual.section in {"link", "queue", "address"}
        if alone and actual.device not in passing and not (of_new and not _is_plain(actual)):
            observed = "there is one" if actual.section == "file" else actual.value
            yield Difference(
                DEVIATION, "", "", actual.object, _nothing(actual), observed, actual.shows,
                actual.remove, "", subject=actual.subject, attribute=actual.attribute, change="new",
                effect=_effect(None, actual), values=_values(actual), section=actual.section,
            )  # fmt: skip


def _outlasts(item: Item) -> bool:
    """Whether it is reported although its device is gone: the device itself, and routes."""
    return item.section == "route" or _is_plain(item)


def _is_plain(item: Item) -> bool:
    """Whether nothing is known of it but that it exists."""
    return item.value == THERE


def _nothing(item: Item) -> str:
    if item.section in {"process", "cache"}:
        return "running" if item.section == "process" else "none"
    return f"no such {'attribute' if item.section == 'link' and item.attribute else item.section}"


def _effect(made: Item | None, actual: Item | None) -> Effect:
    """The effect of an object whose value is what its tool prints of it."""
    item = actual or made
    if item is None or item.section in {"link", "setting", "process", "cache"}:
        return NO_EFFECT
    line = " ".join((*values_of(item.subject), actual.value if actual else ""))
    return read_effect(line, made.value if made else "")


def _values(actual: Item | None) -> tuple[str, ...]:
    return (*values_of(actual.subject), actual.value) if actual else ()


def _differs(item: Item, actual: Item | None) -> Difference:
    observed = actual.value if actual else f"there is no such {item.section}"
    mends = actual.remove if actual and item.section == "socket" else item.make
    intended, effect = item.value, _effect(item, actual)
    if actual is None and item.section == "link" and item.attribute == "master":
        observed = "it is in no bridge"
    if item.section == "file":
        intended, observed = (
            changed_lines(item.value, actual.value) if actual else ("there", observed)
        )
        effect = read_effect(observed, intended)
    return Difference(
        DEVIATION, "", "", item.object, intended, observed, item.shows, mends, "",
        subject=item.subject, attribute=item.attribute, change="changed" if actual else "gone",
        effect=effect, values=_values(actual) or values_of(item.subject), section=item.section,
    )  # fmt: skip
