"""The machine's network on this computer: made, looked at, and taken away."""

from __future__ import annotations

import fcntl
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError
from lab.providers.netns import holders, namespaces, responder_config
from lab.providers.netns.compile import compile_machine
from lab.providers.netns.entry import NODE_HOLDER, HolderEntry, HolderProcess, list_holders
from lab.providers.netns.isolation import RESOLVER_FILE
from lab.providers.netns.netlink import Socket, list_addresses, list_links
from lab.providers.netns.operations import NamespaceOperations, RulesetLoad
from lab.providers.netns.services import replacing_table
from lab.providers.node import cards, looking, management, place, record, settings, strangers
from lab.providers.node.place import DIRECTORY
from lab.providers.node.record import Record
from lab.providers.node.work import MANAGEMENT, Work
from lab.providers.provider import LabHandle
from lab.topology.intent import MachineIntent

Phase = Callable[[str], None]
"""Told what is done next."""

_BRIDGE_SETTINGS = Path("/proc/sys/net/bridge")
_CARRIER_SECONDS = 30.0
_HERE = "this machine"


def up(work: Work, deadline: Deadline, phase: Phase) -> None:
    """Make the network anew, whatever an earlier life has left.

    Raises
    ------
    LabError
        Saying what could not be made.

    """
    machine = work.machine
    with _alone(deadline), Socket(_HERE) as channel:
        found = cards.find(list_links(channel), machine)
        cards.check_connection(channel, found)
        management.check_apart(_management(channel), work.ranges)
        noted = record.of(machine).joined(record.read())
        record.write(noted)
        looking.SCRIPT.unlink(missing_ok=True)
        phase("clearing")
        holders.end_all_holders(_holders)
        place.tidy()
        _clear(channel, noted, deadline)
        phase("cards")
        cards.rename(channel, found)
        operations = _compiled(channel, machine)
        _ensure_bridge_filter(machine)
        noted = _noted(channel, machine, noted, operations[0])
        record.write(noted)
        strangers.demote(channel, noted.demoted)
        _ensure_resolver_file()
        phase("holder")
        entry = _hold(machine.name, deadline)
        _build(entry, work, operations, deadline, phase)
        record.write(replace(record.of(machine), settings=noted.settings, demoted=noted.demoted))
        _leave_word(entry, work)


def down(deadline: Deadline, phase: Phase) -> None:
    """Take away all that was made, and put the settings back."""
    with _alone(deadline):
        phase("clearing")
        looking.SCRIPT.unlink(missing_ok=True)
        holders.end_all_holders(_holders)
        there = record.read()
        if there is not None:
            with Socket(_HERE) as channel:
                _clear(channel, there, deadline)
                strangers.restore(channel, there.demoted)
            settings.restore(there.settings)
        record.remove()
        place.ENTER.unlink(missing_ok=True)


def entry() -> HolderEntry:
    """The way into the holder.

    Raises
    ------
    BrokenError
        If there is none.

    """
    found = list_holders(NODE_HOLDER)
    if not found:
        raise BrokenError(
            "entering the pods", "the holder of the pods is not running", "run 'lab up' again"
        )
    return HolderEntry(found[0].pid, found[0].started)


def _holders() -> tuple[HolderProcess, ...]:
    return list_holders(NODE_HOLDER, starting=True)


@contextmanager
def _alone(deadline: Deadline) -> Iterator[None]:
    """Have the computer's network to oneself; an agent whose lab command died may still work."""
    lock = os.open(DIRECTORY / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        deadline.wait(
            "waiting for an earlier command to end its work",
            lambda: _locked(lock),
            every=0.1,
            hint="see what it does: ps ax | grep hybridlab",
        )
        yield
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _leave_word(entry: HolderEntry, work: Work) -> None:
    responder = responder_config.running_responder(entry.pid)
    if responder is None:
        raise BrokenError(
            "bringing the machine's network up", looking.NO_RESPONDER, "run 'lab up' again"
        )
    holder = (entry.pid, entry.started)
    place.write(looking.SCRIPT, looking.script(work.digest(), holder, responder, work.namespaces()))


def _management(channel: Socket) -> list[str]:
    own = {link.index for link in list_links(channel) if link.name == MANAGEMENT}
    return [address for index, address in list_addresses(channel) if index in own]


def _clear(channel: Socket, noted: Record, deadline: Deadline) -> None:
    cards.remove(channel, noted.devices, deadline)
    cards.clear(channel, noted.cards)
    namespaces.load_ruleset("".join(replacing_table(name) for name in noted.tables), _HERE)


def _compiled(channel: Socket, machine: MachineIntent) -> tuple[NamespaceOperations, ...]:
    there = list_links(channel)
    indexes = {link.name: link.index for link in there}
    return compile_machine(
        machine,
        {one.name: indexes[one.name] for one in machine.interfaces},
        cards.first_index(there),
    )


def _noted(
    channel: Socket, machine: MachineIntent, noted: Record, operations: NamespaceOperations
) -> Record:
    """The record with what was there before the lab; the first time it is looked at counts."""
    has_default = any(route.destination == "default" for route in machine.routes)
    moved = strangers.in_the_way(channel, has_default)
    return replace(
        noted,
        settings=noted.settings or settings.before(operations, noted.devices),
        demoted=tuple(dict.fromkeys((*noted.demoted, *moved))),
    )


def _ensure_bridge_filter(machine: MachineIntent) -> None:
    """Load the one kernel module that the kernel does not load by itself when it is wanted."""
    if machine.bridge is None or _BRIDGE_SETTINGS.is_dir():
        return
    doing = "loading the kernel module 'br_netfilter'"
    hint = "boot the machine with a kernel that has it"
    try:
        done = subprocess.run(
            ["modprobe", "br_netfilter"],  # noqa: S607  where it is differs between distributions
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise BrokenError(doing, "there is no 'modprobe'", hint) from None
    if not _BRIDGE_SETTINGS.is_dir():
        raise BrokenError(doing, done.stderr.strip() or "it is there, without settings", hint)


def _ensure_resolver_file() -> None:
    """Have a file where the pods' own are laid over; an empty one says what none says."""
    if not os.path.lexists(RESOLVER_FILE):
        Path(RESOLVER_FILE).touch(0o644)


def _hold(name: str, deadline: Deadline) -> HolderEntry:
    lab = LabHandle(name, DIRECTORY, secrets.token_hex(8))
    return holders.start_holder(lab, sys.executable, NODE_HOLDER, deadline.left())


def _inside(
    entry: HolderEntry, doing: str, function: Callable[[], None], deadline: Deadline
) -> None:
    entry.call(doing, lambda _: function(), deadline)


def _build(
    entry: HolderEntry,
    work: Work,
    operations: tuple[NamespaceOperations, ...],
    deadline: Deadline,
    phase: Phase,
) -> None:
    """All that is done inside the holder."""
    machine = work.machine
    loads = [op.text for op in operations[0].operations if isinstance(op, RulesetLoad)]
    contained = replacing_table(management.TABLE, management.containment(work.ranges))
    rules = ((machine.name, "".join((*loads, contained))),)

    def network() -> None:
        namespaces.create([pod.name for pod in machine.pods], here=machine.name)
        namespaces.apply_operations(operations)
        namespaces.write_resolvers((machine, *machine.pods))

    def ready() -> None:
        namespaces.wait_for_carrier(operations, deadline)
        namespaces.wait_for_links(
            machine.name,
            {one.name for one in machine.interfaces},
            Deadline(min(_CARRIER_SECONDS, deadline.left())),
        )

    stages: tuple[tuple[str, str, Callable[[], None]], ...] = (
        ("network", "making the network", network),
        ("rules", "loading the rules", lambda: namespaces.load_rulesets(rules)),
        (
            "responder",
            "starting the responder",
            lambda: responder_config.start_responder(sys.executable, work.answers, deadline),
        ),
        ("ready", "waiting for the links", ready),
    )
    for name, doing, function in stages:
        phase(name)
        _inside(entry, doing, function, deadline)
