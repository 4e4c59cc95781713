"""Inject faults into a lab, and heal them.

To survive ``kill -9``, a fault is recorded in the journal before anything is broken, and removed
from it after it is healed. The journal has no commands: they follow from the fault's name and
place.
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from lab._deadline import Deadline
from lab._errors import BrokenError, LabError, PreflightError, UsageError
from lab.explain.faults import registry
from lab.explain.faults.registry import Fault, FaultChange, FaultCommand, FaultSite
from lab.facts.command_lines import is_powershell, to_run
from lab.lifecycle import reconnect
from lab.lifecycle.open_lab import OpenLab
from lab.lifecycle.reconnect import wait_until_learned
from lab.providers.provider import MACHINES
from lab.state.lock import FAULTS, lab_lock
from lab.state.rows import FaultRow
from lab.suites.running_lab import bind_intent
from lab.topology.bind import bound_as, observed_in
from lab.topology.intent import Intent
from lab.topology.observed import POD_VARIABLE, from_text, to_text

_SECONDS = 60.0
"""For one command; on an emulated machine, starting a shell alone takes seconds."""
_READY_SECONDS = 120.0
"""For nodes to be Ready again: a kubelet reports within 20 s, and emulation is slow."""
_SCRIPT_BYTES = 60_000
"""Largest script for ``sh -c``; the kernel's limit is 128 KiB (MAX_ARG_STRLEN of linux/binfmts.h).
"""
_AGAIN_SECONDS = 0.5
_SHOWN = 200
"""Characters of a command, and of its output, in an error."""
_SHELL = "set -e; PATH=$PATH:/usr/sbin:/sbin; export PATH; "

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class FaultRequest:
    """A fault to put in or heal; an empty ``node`` or ``peer`` means any."""

    name: str
    """With its parameters: ``packet-loss 5%``."""
    node: str = ""
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Healed:
    """The result of ``heal``."""

    removed: tuple[FaultRow, ...]
    rebuilt: tuple[FaultRow, ...]
    """Faults put in before the lab was last rebuilt: they are gone already."""


_INSTEAD = "'lab attach --write FILE' writes a scenario of the same shape; faults go into its lab"


def put_in(opened: OpenLab, request: FaultRequest, say: Say) -> FaultRow:
    """Put a fault into a running lab, using the real addresses of its pods.

    Raises UsageError when there is no such fault, it is not possible there, or is in already, and
    PreflightError when the machine's kernel or tools cannot do it; nothing was changed then. Raises
    BrokenError when a command fails; the fault is then undone.
    """
    action = f"putting fault '{request.name}' into lab '{opened.name}'"
    opened.require_own(action, _INSTEAD)
    _require_figures(opened, request, action)
    fault = registry.find(action, request.name)
    command = f"lab fault {opened.name} {request.name}"
    with opened.in_use(command, say), _by_one(opened, command, say):
        opened.require_running(healthy=False)
        with bind_intent(opened) as intent:
            row = _put(opened, fault, request, intent, action)
    return replace(row, state="done")


def _require_figures(opened: OpenLab, request: FaultRequest, action: str) -> None:
    """Refuse machines and pods where the figures of a fault belong."""
    word, *figures = request.name.split() or [""]
    places = opened.intent.places()
    named = [figure for figure in figures if figure in places]
    if not named or word not in registry.faults():
        return
    words = [word, *(figure for figure in figures if figure not in places)]
    for option, value in zip(("--node", "--peer"), named, strict=False):
        words += [option, value]
    why = f"'{named[0]}' is a {'pod' if places[named[0]][1] else 'machine'}, not a value"
    raise UsageError(action, why, f"'lab fault {opened.name} {' '.join(words)}'")


def _put(
    opened: OpenLab, fault: Fault, request: FaultRequest, intent: Intent, action: str
) -> FaultRow:
    site = registry.choose(fault, intent, action, request.node, request.peer)
    peer = site.peers[0] if site.peers else ""
    _refuse_windows(opened, intent, site.node, action)
    _refuse_twice(opened, fault, site.node, peer, action)
    _probe(opened, intent, fault, site.node, action)
    change = _change(opened, fault, intent, site.node, peer)
    number = opened.store.intend_fault(
        opened.name,
        opened.handle.token,
        fault.name,
        node=site.node,
        peer=peer,
        observed=to_text(observed_in(opened.intent, intent)) if intent.kubernetes else "",
    )
    row = next(row for row in present(opened) if row.number == number)
    try:
        _run(opened, intent, change.do, action)
    except LabError:
        _remove(opened, row)
        raise
    opened.store.finish_fault(opened.name, number)
    return row


def put_random(opened: OpenLab, seed: int, say: Say) -> FaultRow:
    """Put in a random fault, the same one for the same seed and lab.

    Raises PreflightError when this machine's kernel and tools can do none, and the errors of
    :func:`put_in`.
    """
    present_faults = {
        (registry.plain_name(row.name), row.node, row.peer) for row in present(opened)
    }
    places = [
        place
        for name, sites in find_possible_faults(opened, say).items()
        for site in sites
        for peer in site.peers or ("",)
        if (place := (name, site.node, peer)) not in present_faults
    ]
    random.Random(seed).shuffle(places)  # noqa: S311  must be reproducible
    for place in places:
        try:
            return put_in(opened, FaultRequest(*place), say)
        except PreflightError:  # the next one may be possible
            continue
    raise PreflightError(
        f"putting a random fault into lab '{opened.name}'",
        "none of its faults is possible here",
        f"lab fault --list {opened.name}",
    )


def heal(opened: OpenLab, say: Say, only: FaultRequest | None = None) -> Healed:
    """Take every fault, or only ``only``, out of the lab, the last one first. Can be repeated.

    The undo commands follow from the fault's name and place. The pods' addresses were recorded with
    the fault, so that a cluster is healed even if its API is lost. Returns when daemons have
    relearned what they lost and, on a cluster, nodes and probe pods are Ready, or two minutes are
    over.

    If other faults remain, it does not wait. Undoing a fault repairs its whole machine, so other
    faults of that machine are taken out too, and put in again.

    Raises UsageError when ``only`` is not in the lab. Raises BrokenError when the lab is not
    running, or a fault cannot be taken out; it stays in the journal. Raises DeadlineError when
    every fault is out, but daemons have not relearned what they lost.
    """
    rebuilt = []
    command = f"lab heal {opened.name}"
    with opened.in_use(command, say, as_found=True), _by_one(opened, command, say):
        opened.require_running(healthy=False)
        live = present(opened)
        chosen = live if only is None else _choose_rows(opened, only, live)
        for row in reversed(opened.store.faults(opened.name)):
            if row not in live:
                opened.store.forget_fault(opened.name, row.number)
                rebuilt.append(row)
        removed = _take_out(opened, chosen, live)
        if removed and not present(opened):
            action = f"healing lab '{opened.name}'"
            wait_until_learned(opened.provider, opened.handle, opened.intent, action, say)
            _wait_until_ready(opened, action, say)
    return Healed(tuple(removed), tuple(rebuilt))


def _choose_rows(
    opened: OpenLab, only: FaultRequest, live: Sequence[FaultRow]
) -> tuple[FaultRow, ...]:
    """The faults in ``live`` that match ``only``."""
    rows = tuple(
        row
        for row in live
        if registry.plain_name(row.name) == registry.plain_name(only.name)
        and only.node in {"", row.node}
        and only.peer in {"", row.peer}
    )
    if not rows:
        listed = "; ".join(words(row) for row in live)
        raise UsageError(
            f"taking fault '{only.name}' out of lab '{opened.name}'",
            "the lab does not have it",
            f"there are {listed}" if listed else "the lab has no faults",
        )
    return rows


def _take_out(
    opened: OpenLab, chosen: Sequence[FaultRow], live: Sequence[FaultRow]
) -> list[FaultRow]:
    """Take the chosen faults out; others that share a machine are taken out and put in again."""
    others = [row for row in live if row not in chosen]
    places = {place for row in chosen for place in _places_of(opened, row)} if others else set()
    again = [row for row in others if _places_of(opened, row) & places]
    removed = []
    for row in reversed(live):
        if row in again:
            action = f"taking fault {words(row)} out of lab '{opened.name}'"
            _run(opened, opened.intent, _change_of(opened, row, action).undo, action)
        elif row in chosen:
            _remove(opened, row)
            removed.append(row)
    for row in again:
        action = f"putting fault {words(row)} into lab '{opened.name}' again"
        _run(opened, opened.intent, _change_of(opened, row, action).do, action)
    return removed


def _places_of(opened: OpenLab, row: FaultRow) -> set[str]:
    """The machines and pods that undoing the fault repairs."""
    if row.name == reconnect.CUT_OFF:
        return set()
    action = f"looking for fault {words(row)} in lab '{opened.name}'"
    return {command.place for command in _change_of(opened, row, action).undo}


def _wait_until_ready(opened: OpenLab, action: str, say: Say) -> None:
    """Wait for a cluster's nodes and probe pods. If they do not get Ready, only a note says so."""
    if opened.intent.kubernetes is None:
        return
    try:
        Deadline(_READY_SECONDS).wait(
            f"{action}: waiting for the cluster",
            lambda: opened.provider.liveness(opened.handle, opened.intent),
            until=lambda liveness: liveness.state == "running",
            every=_AGAIN_SECONDS,
        )
        with bind_intent(opened, ready=True):
            return
    except LabError as error:
        say(f"note: every fault is out, but the cluster is not healthy: {error.happened}")


def _by_one(opened: OpenLab, command: str, say: Say) -> AbstractContextManager[None]:
    """Lock faults against other commands; tests may run meanwhile."""
    return lab_lock(opened.handle.directory, command, say=say, file=FAULTS)


def present(opened: OpenLab) -> tuple[FaultRow, ...]:
    """The faults that are in the lab, at least in part, in the order they were put in."""
    return opened.store.live_faults(opened.name, opened.handle.token)


def find_possible_faults(opened: OpenLab, say: Say) -> Mapping[str, tuple[FaultSite, ...]]:
    """Where each fault can be put in, in the running lab, or in its plan if it is not up.

    Raises BrokenError when the pods of a running lab cannot be observed.
    """
    opened.require_own(f"listing the faults of lab '{opened.name}'", _INSTEAD)
    if opened.provider.liveness(opened.handle, opened.intent).state != "running":
        say("note: the lab is not running; this list is made from its plan")
        return _list_possible(opened, opened.intent)
    with (
        opened.in_use(f"lab fault --list {opened.name}", say, as_found=True),
        bind_intent(opened) as intent,
    ):
        return _list_possible(opened, intent)


def _list_possible(opened: OpenLab, intent: Intent) -> Mapping[str, tuple[FaultSite, ...]]:
    return {
        name: tuple(
            site
            for site in registry.sites(fault, intent)
            if _can_take_faults(opened, intent, site.node)
        )
        for name, fault in registry.faults().items()
    }


def words(row: FaultRow) -> str:
    """``'route-missing' on 'worker1', peer 'worker2'``."""
    peer = f", peer '{row.peer}'" if row.peer else ""
    doubt = ", perhaps incompletely" if row.state == "intended" else ""
    return f"'{row.name}' on '{row.node}'{peer}{doubt}"


def _refuse_windows(opened: OpenLab, intent: Intent, node: str, action: str) -> None:
    if not _can_take_faults(opened, intent, node):
        others = [machine.name for machine in intent.machines if machine.os == "linux"]
        raise UsageError(
            action,
            f"'{node}' runs Windows, and this fault is commands of Linux",
            f"--node {', '.join(others)}",
        )


def _can_take_faults(opened: OpenLab, intent: Intent, node: str) -> bool:
    alone = intent.machine(node).os == "windows" and intent.kubernetes is None
    return not (alone and MACHINES in opened.provider.abilities)


def _refuse_twice(opened: OpenLab, fault: Fault, node: str, peer: str, action: str) -> None:
    for row in present(opened):
        names = {registry.plain_name(name) for name in (row.name, fault.name)}
        if len(names) == 1 and (row.node, row.peer) == (node, peer):
            raise UsageError(
                action, f"the lab already has {words(row)}", f"'lab heal {opened.name}'"
            )


def _probe(opened: OpenLab, intent: Intent, fault: Fault, node: str, action: str) -> None:
    if not fault.asks:
        return
    machine = opened.provider.machine(opened.handle, intent, node)
    shell = ("sh", "-c", _SHELL + fault.asks)
    words = to_run(fault.asks) if is_powershell(fault.asks) else shell
    done = machine.run(words, Deadline(_SECONDS))
    if done.code:
        raise PreflightError(
            action,
            f"'{fault.asks}' fails on '{node}': {done.stderr.strip() or f'exit code {done.code}'}",
            "use another fault, or a kernel and tools that have it; nothing was changed",
        )


def _remove(opened: OpenLab, row: FaultRow) -> None:
    if row.name == reconnect.CUT_OFF:
        opened.reconnect(row.node)
        return
    action = f"taking fault {words(row)} out of lab '{opened.name}'"
    _run(opened, opened.intent, _change_of(opened, row, action).undo, action)
    opened.store.forget_fault(opened.name, row.number)


def _change(opened: OpenLab, fault: Fault, intent: Intent, node: str, peer: str) -> FaultChange:
    made = opened.provider.realised(intent)
    return from_nodes(fault.change(made, node, peer), intent)


def _change_of(opened: OpenLab, row: FaultRow, action: str) -> FaultChange:
    """The commands that put a fault in and take it out, from its name and place.

    Raises BrokenError when this lab cannot have such a fault, or its pods' addresses are unknown.
    """
    try:
        fault = registry.find(action, row.name)
        intent = _as_it_was(opened, row)
        machines = {machine.name for machine in intent.everything()}
        pods = {pod.name for machine in intent.machines for pod in machine.pods}
        if row.node in machines and row.peer in {"", *machines, *pods}:
            return _change(opened, fault, intent, row.node, row.peer)
    except (
        UsageError,
        LookupError,
        StopIteration,
        AssertionError,
        ValueError,
    ):  # it has no such site
        pass
    raise BrokenError(
        action,
        "the journal lists it, but this lab cannot have such a fault",
        f"'lab down {opened.name}', then '{opened.again}'",
    )


def _as_it_was(opened: OpenLab, row: FaultRow) -> Intent:
    """The Intent with the pods' addresses when the fault was put in."""
    if opened.intent.kubernetes is None:
        return opened.intent
    if row.observed:
        return bound_as(opened.intent, from_text(row.observed))
    with bind_intent(opened) as intent:  # an older row without them: use the current ones
        return intent


def _run(opened: OpenLab, intent: Intent, commands: Iterable[FaultCommand], action: str) -> None:
    for place, lines in batch_commands(commands):
        machine = opened.provider.machine(opened.handle, intent, place)
        windows = is_powershell(lines[0])
        words = to_run(lines[0]) if windows else ("sh", "-c", script(lines))
        done = machine.run(words, Deadline(_SECONDS))
        if done.code:
            output, _, number = done.stderr.strip().rpartition("@")
            line = lines[int(number)] if number.isdecimal() else "the shell"
            if windows:
                output, line = done.stderr, lines[0]
            raise BrokenError(
                action,
                f"'{_shorten(line)}' failed on '{place}': "
                f"{_shorten(output.strip()) or f'exit code {done.code}'}",
                f"'lab heal {opened.name}', or 'lab down {opened.name}' and '{opened.again}'",
            )


def _shorten(text: str) -> str:
    """The text, or its beginning if long: the rules of all Services are one line."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"


def from_nodes(change: FaultChange, intent: Intent) -> FaultChange:
    """The change with commands for pods of a cluster moved to their nodes. Pure.

    A container neither may change its network nor has the tools for it.
    """
    if intent.kubernetes is None:
        return change
    node = {pod.name: machine.name for machine in intent.machines for pod in machine.pods}

    def moved(commands: Iterable[FaultCommand], absent: str) -> tuple[FaultCommand, ...]:
        return tuple(
            FaultCommand(node[command.place], _command_in_pod(command.place, command.line, absent))
            if command.place in node
            else command
            for command in commands
        )

    gone = "exit 0"  # the change went with the pod
    return FaultChange(
        moved(change.do, "echo no such pod runs here >&2; exit 1"), moved(change.undo, gone)
    )


def _command_in_pod(pod: str, line: str, absent: str) -> str:
    """Shell command for a node that runs ``line`` in the network namespace of a probe pod.

    The pod is found by the environment of its processes.
    """
    own = shlex.quote(f"{POD_VARIABLE}={pod}")
    find = f"one=$(grep -lzxF {own} /proc/[0-9]*/environ 2>/dev/null | head -n 1)"
    enter = f'exec nsenter --net="${{one%environ}}ns/net" sh -ec {shlex.quote(line)}'
    return f'({find}; if [ -n "$one" ]; then {enter}; fi; {absent})'


def batch_commands(commands: Iterable[FaultCommand]) -> Iterator[tuple[str, list[str]]]:
    """The commands in order, grouped by place, each group small enough for one shell. Pure.

    A command of PowerShell is a group of its own.
    """
    place, lines, size = "", list[str](), 0
    for command in commands:
        large = size + len(command.line) > _SCRIPT_BYTES
        alone = any(map(is_powershell, (command.line, *lines[-1:])))
        if lines and (command.place != place or large or alone):
            yield place, lines
            lines, size = [], 0
        place = command.place
        lines.append(command.line)
        size += len(command.line)
    if lines:
        yield place, lines


def script(lines: Sequence[str]) -> str:
    """A script that runs the lines until one fails, and then prints its number. Pure."""
    numbered = (f"at={number}\n{line}\n" for number, line in enumerate(lines))
    return _SHELL + "trap '[ $? = 0 ] || echo \"@$at\" >&2' EXIT\n" + "".join(numbered)
