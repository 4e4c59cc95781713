"""Create a machine's network on its computer, which ends with the lab.

Network cards are found by MAC and renamed as in the Intent. Two things are kept separate from the
lab. The management card may have its own default route (from DHCP): lab packets that would leave
through it are rejected, as on a machine without a route. Another default route with the Intent's
metric, 0, would alternate with the Intent's (the kernel uses the one whose gateway it heard from
last), so it gets a higher metric.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.machines.agents import files
from lab.machines.agents.files import DIRECTORY, MANAGEMENT_TABLE, Record
from lab.machines.agents.protocol import Work
from lab.providers.netns import daemons, holders, namespaces, netlink
from lab.providers.netns.compile import compile_machine
from lab.providers.netns.holders import NODE_HOLDER, HolderEntry, HolderProcess, list_holders
from lab.providers.netns.isolation import RESOLVER_FILE
from lab.providers.netns.netlink import (
    Link,
    Socket,
    list_addresses,
    list_default_routes,
    list_links,
)
from lab.providers.netns.operations import (
    AddressRemove,
    LinkDown,
    LinkRemove,
    LinkRename,
    Message,
    Names,
    NamespaceOperations,
    RouteAdd,
    RouteRemove,
    RulesetLoad,
)
from lab.providers.netns.services import replacing_table
from lab.providers.provider import LabHandle
from lab.topology.intent import Interface, MachineIntent

MANAGEMENT = "mgmt0"
"""The network card that carries the connection to the machine; never the lab's."""


def containment(ranges: Sequence[str]) -> str:
    """The nftables table that keeps lab packets off the management card; affects no others.

    Established connections may leave, so that a mistake here cannot cut the connection to the
    machine.
    """
    prefixes = f"{{ {', '.join(ranges)} }}"
    card = f'"{MANAGEMENT}"'
    refused = "reject with icmp type net-unreachable"
    return f"""table ip {MANAGEMENT_TABLE} {{
  chain forward {{
    type filter hook forward priority -120; policy accept;
    oifname {card} ip saddr {prefixes} {refused}
    oifname {card} ip daddr {prefixes} {refused}
    iifname {card} ip daddr {prefixes} drop
  }}
  chain output {{
    type filter hook output priority -120; policy accept;
    oifname {card} ct state new ip daddr {prefixes} {refused}
  }}
}}
"""


def check_apart(addresses: Sequence[str], ranges: Sequence[str]) -> None:
    """Refuse a management address (with prefix length) whose network overlaps the lab's ranges.

    Raises BrokenError: names both.
    """
    for text in addresses:
        own = IPv4Interface(text).network
        for prefix in ranges:
            if own.overlaps(IPv4Network(prefix)):
                raise BrokenError(
                    "keeping the management network separate from the lab",
                    f"'{MANAGEMENT}' has the address {text}, and the lab has {prefix}",
                    "give the management network another range in the inventory",
                )


METRIC = 1024
"""The metric that systemd-networkd gives to DHCP routes."""


def demote_foreign_defaults(channel: Socket, machine: MachineIntent) -> None:
    """Give other default routes the higher metric if the machine is to have one of its own.

    Call it while the lab has none.
    """
    if not any(route.destination == "default" for route in machine.routes):
        return
    names = {link.index: link.name for link in list_links(channel)}
    routes = list_default_routes(channel)
    operations: list[Message] = []
    for route in routes:
        device = names[route.index]
        if route.metric == 0:
            if replace(route, metric=METRIC) not in routes:
                operations.append(
                    RouteAdd("default", device, route.via, route.onlink, metric=METRIC)
                )
            operations.append(RouteRemove("default", device, route.via, route.onlink, 0))
    channel.apply(operations, Names({name: index for index, name in names.items()}))


_CARD_KINDS = frozenset({"", "veth"})
"""A card has no kind, or in a container is a veth. Excludes bridges and the like, which may have
the MAC of one of their cards."""
_MADE_KINDS = frozenset({"bridge", "vxlan", "veth"})
_PASSING = "hybridlab{}"
"""A temporary name while renaming: two cards may have each other's name."""
_FIRST_INDEX = 1000
"""Far above indexes in use, so that a machine's indexes are practically always the same."""


def find_cards(links: Sequence[Link], machine: MachineIntent) -> dict[str, Link]:
    """Each interface's card, by interface name. Pure.

    Raises BrokenError if no card has an interface's MAC; lists the cards. If another device has its
    name.
    """
    cards = [link for link in links if link.kind in _CARD_KINDS and link.mac]
    cards_by_name = {interface.name: _card(interface, cards) for interface in machine.interfaces}
    taken = {link.name for link in links} - {link.name for link in cards_by_name.values()}
    for interface in machine.interfaces:
        if interface.name in taken:
            raise BrokenError(
                f"naming the network card with MAC {interface.mac} '{interface.name}'",
                "another device already has this name",
                f"name the management card '{MANAGEMENT}' in the image",
            )
    return cards_by_name


def _card(interface: Interface, cards: Sequence[Link]) -> Link:
    own = [link for link in cards if link.mac == interface.mac and link.name != MANAGEMENT]
    if not own:
        available = ", ".join(f"'{link.name}' {link.mac}" for link in cards) or "none"
        raise BrokenError(
            f"looking for the network card '{interface.name}' with MAC {interface.mac}",
            f"the machine has no such card; it has {available}",
            f"check that the machine's definition has a card on segment '{interface.segment}'",
        )
    return next((link for link in own if link.name == interface.name), own[0])


def first_index(links: Sequence[Link]) -> int:
    """The first of the unused interface indexes. Pure."""
    return max(_FIRST_INDEX, *(link.index for link in links)) + 1


def check_connection(channel: Socket, cards: Mapping[str, Link]) -> None:
    """Refuse to touch the card that carries the SSH connection to this agent.

    Raises BrokenError: names the card.
    """
    words = os.environ.get("SSH_CONNECTION", "").split()
    if len(words) != 4:  # noqa: PLR2004  client address and port, own address and port
        return
    indexes = {link.index: name for name, link in cards.items()}
    for index, address in list_addresses(channel):
        if index in indexes and address.partition("/")[0] == words[2]:
            raise BrokenError(
                f"clearing network card '{indexes[index]}'",
                f"it carries this connection, to {words[2]}",
                f"reach the machine by its management card, '{MANAGEMENT}'",
            )


def rename_cards(channel: Socket, cards: Mapping[str, Link]) -> None:
    """Rename each card to its interface's name; the cards must be down."""
    wrong = {name: link for name, link in cards.items() if link.name != name}
    indexes = {link.name: link.index for link in wrong.values()}
    passing = {name: _PASSING.format(link.index) for name, link in wrong.items()}
    indexes |= {passing[name]: link.index for name, link in wrong.items()}
    aside = [LinkRename(link.name, passing[name]) for name, link in wrong.items()]
    back = [LinkRename(passing[name], name) for name in wrong]
    channel.apply([*aside, *back], Names(indexes))


def clear_cards(channel: Socket, macs: Iterable[str]) -> None:
    """Set the cards down, which drops their routes and neighbours, and delete their addresses."""
    wanted = frozenset(macs)
    cards = {
        link.index: link.name
        for link in list_links(channel)
        if link.mac in wanted and link.kind in _CARD_KINDS and link.name != MANAGEMENT
    }
    operations: list[Message] = [LinkDown(name) for name in cards.values()]
    # Last first: deleting a primary address would delete its secondaries.
    for index, address in reversed(list_addresses(channel)):
        if index in cards:
            operations.append(AddressRemove(cards[index], address))
    channel.apply(operations, Names({name: index for index, name in cards.items()}))


def remove_devices(channel: Socket, names: Iterable[str], deadline: Deadline) -> None:
    """Delete the bridges, tunnels and veths of these names, and wait until they are gone.

    A veth also disappears when its far end's namespace ends, at any moment.

    Raises DeadlineError with the kernel's error for each remaining device.
    """
    deadline.wait(
        "removing network devices",
        partial(_remove_once, channel, frozenset(names)),
        until=lambda refused: not refused,
    )


def _remove_once(channel: Socket, names: frozenset[str]) -> dict[str, str]:
    refused: dict[str, str] = {}
    for link in list_links(channel):
        if link.name in names and link.kind in _MADE_KINDS:
            try:
                channel.apply([LinkRemove(link.name)], Names({link.name: link.index}))
            except BrokenError as error:
                refused[link.name] = error.happened
    return refused


Phase = Callable[[str], None]

_BRIDGE_SETTINGS = Path("/proc/sys/net/bridge")
_CARRIER_SECONDS = 30.0
_HERE = "this machine"


def make_network(work: Work, deadline: Deadline, phase: Phase) -> None:
    """Create the network, replacing any remains of an earlier one.

    Raises LabError: names what could not be created.
    """
    machine = work.machine
    with _network_lock(deadline), Socket(_HERE) as channel:
        cards = find_cards(list_links(channel), machine)
        check_connection(channel, cards)
        check_apart(_management(channel), work.ranges)
        planned = files.plan_record(machine).joined(files.read_record())
        files.write_record(planned)
        files.STATUS_SCRIPT.unlink(missing_ok=True)
        phase("clearing")
        holders.end_all_holders(lambda: list_holders(NODE_HOLDER, starting=True))
        files.remove_old_archives()
        _clear(channel, planned, deadline)
        phase("cards")
        rename_cards(channel, cards)
        operations = _compile_machine(channel, machine)
        _ensure_bridge_filter(machine)
        demote_foreign_defaults(channel, machine)
        if not os.path.lexists(RESOLVER_FILE):  # pods mount their own over it
            Path(RESOLVER_FILE).touch(0o644)
        phase("holder")
        lab = LabHandle(machine.name, DIRECTORY, secrets.token_hex(8))
        entry = holders.start_holder(lab, sys.executable, NODE_HOLDER, deadline.left())
        _build(entry, work, operations, deadline, phase)
        files.write_record(files.plan_record(machine))
        _write_status_script(entry, work)


def enter_holder() -> HolderProcess:
    """The entry into the holder.

    Raises BrokenError if there is none.
    """
    homes = list_holders(NODE_HOLDER)
    if not homes:
        raise BrokenError(
            "entering the pods", "the holder of the pods is not running", "run 'lab up' again"
        )
    return homes[0]


@contextmanager
def _network_lock(deadline: Deadline) -> Iterator[None]:
    """Lock the computer's network: an agent may still be working after its lab command died."""
    lock = os.open(DIRECTORY / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        deadline.wait(
            "waiting for an earlier command to finish",
            lambda: _take_lock(lock),
            every=0.1,
            hint="find it: ps ax | grep hybridlab",
        )
        yield
    finally:
        os.close(lock)


def _take_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_status_script(entry: HolderEntry, work: Work) -> None:
    responder = daemons.running_responder(entry.pid)
    if responder is None:
        raise BrokenError(
            "bringing the machine's network up", files.NO_RESPONDER, "run 'lab up' again"
        )
    holder = (entry.pid, entry.started)
    files.write_file(
        files.STATUS_SCRIPT,
        files.status_script(work.digest(), holder, responder, work.namespaces()),
    )


def _management(channel: Socket) -> list[str]:
    own = {link.index for link in list_links(channel) if link.name == MANAGEMENT}
    return [address for index, address in list_addresses(channel) if index in own]


def _clear(channel: Socket, planned: Record, deadline: Deadline) -> None:
    remove_devices(channel, planned.devices, deadline)
    clear_cards(channel, planned.cards)
    namespaces.load_ruleset("".join(replacing_table(name) for name in planned.tables), _HERE)


def _compile_machine(channel: Socket, machine: MachineIntent) -> tuple[NamespaceOperations, ...]:
    links = list_links(channel)
    indexes = {link.name: link.index for link in links}
    return compile_machine(
        machine,
        {interface.name: indexes[interface.name] for interface in machine.interfaces},
        first_index(links),
    )


def _ensure_bridge_filter(machine: MachineIntent) -> None:
    """Load br_netfilter, the one module that the kernel does not load on demand."""
    if machine.bridge is None or _BRIDGE_SETTINGS.is_dir():
        return
    action = "loading the kernel module 'br_netfilter'"
    hint = "boot the machine with a kernel that has it"
    try:
        done = subprocess.run(
            ["modprobe", "br_netfilter"],  # noqa: S607  its path differs between distributions
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise BrokenError(action, "there is no 'modprobe'", hint) from None
    if not _BRIDGE_SETTINGS.is_dir():
        raise BrokenError(action, done.stderr.strip() or "it is loaded, but has no settings", hint)


def _build(
    entry: HolderEntry,
    work: Work,
    operations: tuple[NamespaceOperations, ...],
    deadline: Deadline,
    phase: Phase,
) -> None:
    machine = work.machine
    loads = [op.text for op in operations[0].operations if isinstance(op, RulesetLoad)]
    contained = replacing_table(MANAGEMENT_TABLE, containment(work.ranges))
    rules = ((machine.name, "".join((*loads, contained))),)

    def network() -> None:
        namespaces.create([pod.name for pod in machine.pods], current_name=machine.name)
        netlink.apply_operations(operations)
        namespaces.write_resolvers((machine, *machine.pods))

    def ready() -> None:
        netlink.wait_for_carrier(operations, deadline)
        netlink.wait_for_links(
            machine.name,
            {interface.name for interface in machine.interfaces},
            Deadline(min(_CARRIER_SECONDS, deadline.left())),
        )

    stages: tuple[tuple[str, str, Callable[[], None]], ...] = (
        ("network", "making the network", network),
        ("rules", "loading the rules", lambda: namespaces.load_rulesets(rules)),
        (
            "responder",
            "starting the responder",
            lambda: daemons.start_responder(sys.executable, work.answers, deadline),
        ),
        ("ready", "waiting for the links", ready),
    )
    for name, action, function in stages:
        phase(name)
        entry.call(action, lambda _, do=function: do(), deadline)  # type: ignore[misc]
