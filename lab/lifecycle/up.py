"""Bring a lab up, step by step: run what is missing or changed, skip the rest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from lab._errors import BrokenError, UsageError
from lab.lifecycle.compilation import EvidenceSubject, write_scenario
from lab.lifecycle.interruption import Terminated, terminable
from lab.lifecycle.names import check_name
from lab.lifecycle.ownership import own_marks
from lab.lifecycle.reconnect import put_back
from lab.plan.canonical import digest
from lab.plan.plan import Plan
from lab.plan.step import Step
from lab.providers.provider import LabHandle, Liveness, Provider
from lab.state.capacity import check_room
from lab.state.lock import lab_lock
from lab.state.rows import LabRow
from lab.state.store import Store
from lab.topology.intent import Intent

TOKEN_BYTES = 8


_LONG_SECONDS = 5.0
"""If all steps together take longer, the time of each is printed."""


@dataclass(frozen=True, slots=True)
class UpRequest:
    """A request to bring a lab up."""

    name: str
    scenario_text: str
    scenario_path: str
    plan: Plan
    intent: Intent
    command: str
    """The command line, ``"lab up overlay --only linux"``, for waiting commands and hints."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Stored with the lab as JSON, for commands that open it later."""


@dataclass(frozen=True, slots=True)
class UpResult:
    """The result of ``up``."""

    lab: str
    changed: bool
    decisions: tuple[Decision, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class _Work:
    lab: LabHandle
    known: LabRow | None
    """The lab's row in the journal; None for one that is new or was taken down."""
    row: LabRow
    steps: tuple[Step, ...]
    decisions: tuple[Decision, ...]
    subject: EvidenceSubject


def up(
    request: UpRequest, provider: Provider, store: Store, say: Callable[[str], None]
) -> UpResult:
    """Bring the lab up, or find that it is up already.

    Raises UsageError when the name is invalid, or belongs to another scenario or provider. Raises
    PreflightError when this machine cannot run the lab; nothing was created then. Raises StateError
    when the journal cannot be written, or the disk is nearly full. Raises BrokenError when another
    command holds the lab, or a step failed; the lab is then marked broken. Raises KeyboardInterrupt
    when stopped, also by SIGTERM; the journal has the progress.
    """
    begun = time.monotonic()
    check_name(request.name, new=True)
    directory = store.lab_directory(request.name)
    with terminable(), lab_lock(directory, request.command, say=say):
        work = _decided(request, provider, store)
        changed = any(decision.action == "run" for decision in work.decisions)
        if changed:
            check_room(directory)
            provider.preflight(work.lab, request.intent)
            _begin(request, work, store)
            with _noted(request, store, say):
                _clear(work, provider, say)
                _run(request, work, store, say)
                _finish(request, work, provider, store)
        else:
            _settle(work, store, say)
            put_back(store, provider, work.lab, request.intent, say)
            for one in store.live_faults(request.name, work.lab.token):
                say(
                    f"note: fault '{one.name}' was put into '{one.node}'; "
                    f"'lab heal {request.name}' removes it"
                )
    return UpResult(request.name, changed, work.decisions, time.monotonic() - begun)


def preview(request: UpRequest, provider: Provider, store: Store) -> tuple[Decision, ...]:
    """What ``up`` would do now, and why. Nothing is locked, created or written.

    Raises UsageError as :func:`up` does.
    """
    check_name(request.name, new=True)
    return _decided(request, provider, store).decisions


def check(request: UpRequest, provider: Provider, store: Store) -> None:
    """Check that ``up`` would not be refused. Nothing is locked, created or written.

    Raises UsageError, PreflightError as :func:`up` does.
    """
    check_name(request.name, new=True)
    provider.preflight(_decided(request, provider, store).lab, request.intent)


def _decided(request: UpRequest, provider: Provider, store: Store) -> _Work:
    found = store.lab(request.name)
    known = None if found is None or found.status == "down" else found
    row = _row(request, provider.name, known, store.now())
    lab = LabHandle(request.name, store.lab_directory(request.name), row.token)
    steps = provider.steps(lab, request.intent)
    done = {step.name: step.digest for step in store.steps(request.name) if step.state == "done"}
    if known is None:
        liveness = Liveness("absent", "no such lab exists yet")
    else:
        liveness = provider.liveness(lab, request.intent)
    wanted = [(step.name, step.digest) for step in steps]
    decisions = tuple(decide(done, wanted, liveness))
    subject = EvidenceSubject(lab, row, request.plan, request.intent, provider, store)
    return _Work(lab, known, row, steps, decisions, subject)


def _row(request: UpRequest, provider: str, known: LabRow | None, now: float) -> LabRow:
    """The lab's new row; an existing lab keeps its token and its creation time."""
    doing = f"bringing up lab '{request.name}'"
    if known and known.scenario != request.plan.scenario:
        raise UsageError(
            doing,
            f"lab '{known.name}' was made from scenario '{known.scenario}', and this is scenario "
            f"'{request.plan.scenario}'",
            f"run 'lab down {known.name}' first, or give this lab another name with --name",
        )
    if known and known.provider != provider:
        raise UsageError(
            doing,
            f"lab '{known.name}' is on provider '{known.provider}', not on '{provider}'",
            f"run 'lab down {known.name}' first, or use '--provider {known.provider}'",
        )
    return LabRow(
        name=request.name,
        scenario=request.plan.scenario,
        scenario_text=request.scenario_text,
        scenario_path=request.scenario_path,
        provider=provider,
        token=known.token if known else os.urandom(TOKEN_BYTES).hex(),
        status="starting",
        created=known.created if known else now,
        updated=now,
        plan_digest=digest(request.plan),
        options=request.options,
    )


def _clear(work: _Work, provider: Provider, say: Callable[[str], None]) -> None:
    """If every step runs, first remove what an earlier bring-up of this lab left.

    That is every object with its token, or with its directory and a token that is in no journal
    (the state file was lost).
    """
    if any(decision.action == "skip" for decision in work.decisions):
        return
    tokens = {mark.token for mark in own_marks(provider, work.lab.directory)}
    if work.known:
        tokens.add(work.lab.token)
    for token in sorted(tokens):
        for removed in provider.destroy(replace(work.lab, token=token)):
            say(f"removed what an earlier bring-up left: {removed}")


def _begin(request: UpRequest, work: _Work, store: Store) -> None:
    """Record in the journal what will be created, before anything is."""
    kept = [decision.step for decision in work.decisions if decision.action == "skip"]
    machines = [(machine.kind, machine.name) for machine in request.intent.machines]
    with store.change(f"recording lab '{request.name}' before making it"):
        store.put_lab(work.row)
        store.keep_steps(request.name, kept)
        if not kept:
            store.disown_faults(request.name)
        store.gone(request.name)
        store.intend(request.name, machines)
    write_scenario(work.lab.directory, request.scenario_text)


def _run(request: UpRequest, work: _Work, store: Store, say: Callable[[str], None]) -> None:
    name = work.lab.name
    first = next(decision for decision in work.decisions if decision.action == "run")
    new = first.why == NOT_DONE
    say(f"{'starting' if new else 'going on with'} lab '{name}'{'' if new else f': {first.why}'}")
    took: dict[str, float] = {}
    for position, (step, decision) in enumerate(zip(work.steps, work.decisions, strict=True)):
        if decision.action == "skip":
            continue
        began = time.monotonic()
        say(f"  step {position + 1} of {len(work.steps)}: {step.name}")
        store.intend_step(name, position, step.name, step.digest)
        try:
            step.run()
        except Exception as error:  # any failure of a step leaves the lab broken
            happened = str(error) or type(error).__name__
            raise _broken(request, work, step.name, happened) from error
        store.finish_step(name, step.name)
        took[step.name] = time.monotonic() - began
    if sum(took.values()) > _LONG_SECONDS:
        say(f"  took {', '.join(f'{step} {seconds:.1f} s' for step, seconds in took.items())}")


def _finish(request: UpRequest, work: _Work, provider: Provider, store: Store) -> None:
    liveness = provider.liveness(work.lab, request.intent)
    if liveness.state != "running":
        happened = f"it succeeded, but the lab is {liveness.state}: {liveness.detail}"
        raise _broken(request, work, work.steps[-1].name, happened)
    _write_up(work, store)


def _settle(work: _Work, store: Store, say: Callable[[str], None]) -> None:
    """Record the lab again: no step runs, but parts of the scenario without steps may differ."""
    name = work.lab.name
    if work.known and work.known.plan_digest == work.row.plan_digest:
        say(f"lab '{name}' is already up: nothing has changed")
    else:
        say(f"lab '{name}' is already up: only its scenario was recorded again")
    _write_up(work, store)
    write_scenario(work.lab.directory, work.row.scenario_text)


def _write_up(work: _Work, store: Store) -> None:
    name = work.lab.name
    with store.change(f"recording that lab '{name}' is up"):
        store.put_lab(replace(work.row, status="up", updated=store.now()))
        store.made(name)


def _broken(request: UpRequest, work: _Work, step: str, happened: str) -> BrokenError:
    from lab.lifecycle.evidence import keep_because  # noqa: PLC0415  only a failure pays for it

    name, doing = request.name, f"bringing up lab '{request.name}', step '{step}'"
    work.subject.store.set_status(name, "broken", f"step '{step}': {happened}")
    return BrokenError(
        doing,
        f"{happened}\n  {keep_because(work.subject, f'{doing}: {happened}')}",
        f"'lab status {name}' shows how far it is, '{request.command}' continues, 'lab down "
        f"{name}' takes it down",
    )


@contextmanager
def _noted(request: UpRequest, store: Store, say: Callable[[str], None]) -> Iterator[None]:
    """If the block is interrupted, record it in the journal, tell the user, and re-raise."""
    try:
        yield
    except KeyboardInterrupt as stop:
        by = "by SIGTERM" if isinstance(stop, Terminated) else "from the keyboard"
        store.set_status(request.name, "interrupted", f"stopped {by}")
        say(
            f"stopped {by}: '{request.command}' continues, 'lab down {request.name}' removes what "
            "there is"
        )
        raise


NOT_DONE = "new"
"""The reason of a step that runs for the first time."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether one step runs, and the reason, as text."""

    step: str
    action: Literal["skip", "run"]
    why: str


def decide(
    steps_done: Mapping[str, str], wanted: Sequence[tuple[str, str]], liveness: Liveness
) -> list[Decision]:
    """Decide which steps run.

    A step that was done with the same digest is skipped if the lab's machines exist. If a step runs
    again, all steps after it run, too. In an absent or broken lab all steps run, or only those from
    ``liveness.again_from`` on. All steps run, too, if one was done that is no longer wanted.

    ``steps_done``: digest of every step that was done, by name. ``wanted``: name and digest of
    every step, in order. ``liveness``: what the provider found.
    """
    reason = _reason_for_all(steps_done, wanted, liveness)
    decisions = []
    for name, wanted_digest in wanted:
        if not reason and name == liveness.again_from:
            reason = f"the lab is {liveness.state}: {liveness.detail}"
        own = reason or _reason(steps_done.get(name), wanted_digest)
        decisions.append(Decision(name, "run" if own else "skip", own or "unchanged"))
        if own and not reason:
            reason = f"because '{name}' runs"
    return decisions


def _reason_for_all(
    steps_done: Mapping[str, str], wanted: Sequence[tuple[str, str]], liveness: Liveness
) -> str:
    carried_on = liveness.again_from is not None
    if liveness.state == "broken" and not carried_on:
        return f"the lab is broken: {liveness.detail}"
    if liveness.state == "absent" and not carried_on and steps_done:
        return f"the lab's machines are gone: {liveness.detail}"
    unwanted = sorted(set(steps_done) - {name for name, _ in wanted})
    if unwanted:
        return f"step '{unwanted[0]}' was done and is no longer wanted"
    return ""


def _reason(done: str | None, wanted: str) -> str:
    if done is None:
        return NOT_DONE
    return "" if done == wanted else "its input has changed"
