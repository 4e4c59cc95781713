"""Bring a lab up, step by step: run what is missing or changed, skip the rest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from lab._dataclass import dataclass
from lab._errors import BrokenError, Terminated, UsageError
from lab.lifecycle.compilation import write_scenario
from lab.lifecycle.interruption import terminable
from lab.lifecycle.names import TEMPORARY, check_name, removal
from lab.lifecycle.ownership import own_marks
from lab.lifecycle.reconnect import reconnect_cut_off
from lab.plan.canonical import digest
from lab.plan.plan import Plan
from lab.plan.step import Step
from lab.providers.provider import LabHandle, Liveness, Provider
from lab.shells.parallel import on_each
from lab.state.capacity import check_room
from lab.state.lock import lab_lock
from lab.state.rows import LabRow
from lab.state.store import Store
from lab.topology.intent import Intent

TOKEN_BYTES = 8


_LONG_SECONDS = 5.0
"""If all steps together take longer, the time of each is printed."""


@dataclass(frozen=True, slots=True)
class CompiledRequest:
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


def up(
    request: CompiledRequest, provider: Provider, store: Store, say: Callable[[str], None]
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
        work = _BringUp(request, provider, store, say)
        changed = any(decision.action == "run" for decision in work.decisions)
        if changed:
            check_room(directory)
            provider.preflight(work.lab, request.intent)
            work.make()
        else:
            work.record_again()
    return UpResult(request.name, changed, work.decisions, time.monotonic() - begun)


def preview(request: CompiledRequest, provider: Provider, store: Store) -> tuple[Decision, ...]:
    """What ``up`` would do now, and why. Nothing is locked, created or written.

    Raises UsageError as :func:`up` does.
    """
    return _BringUp(request, provider, store).decisions


def check(request: CompiledRequest, provider: Provider, store: Store) -> None:
    """Check that ``up`` would not be refused. Nothing is locked, created or written.

    Raises UsageError, PreflightError as :func:`up` does.
    """
    provider.preflight(_BringUp(request, provider, store).lab, request.intent)


class _BringUp:
    """One bring-up of a lab: what the journal and the provider have, and which steps run.

    Nothing is written before :meth:`make` or :meth:`record_again`.
    """

    def __init__(
        self,
        request: CompiledRequest,
        provider: Provider,
        store: Store,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        check_name(request.name, new=True)
        self.request, self.provider, self.store, self.say = request, provider, store, say
        row = store.lab(request.name)
        self.known = None if row is None or row.status == "down" else row
        """The lab's row in the journal; None for one that is new or was taken down."""
        self.row = _make_row(request, provider.name, self.known, store.now())
        self.lab = LabHandle(request.name, store.lab_directory(request.name), self.row.token)
        self.steps = provider.steps(self.lab, request.intent)
        liveness = Liveness("absent", "no such lab exists yet")
        if self.known is not None:
            liveness = provider.liveness(self.lab, request.intent)
        done = {
            step.name: step.digest for step in store.steps(request.name) if step.state == "done"
        }
        wanted = [(step.name, step.digest) for step in self.steps]
        self.decisions = tuple(decide(done, wanted, liveness))

    def make(self) -> None:
        """Run the steps that are to run; if interrupted, say so in the journal and to the user."""
        self._begin()
        name, command = self.lab.name, self.request.command
        try:
            self._clear()
            self._run()
            self._finish()
        except KeyboardInterrupt as stop:
            by = "by SIGTERM" if isinstance(stop, Terminated) else "from the keyboard"
            self.store.set_status(name, "interrupted", f"stopped {by}")
            self.say(
                f"stopped {by}: '{command}' continues, '{removal(self.row)}' removes what there is"
            )
            raise

    def record_again(self) -> None:
        """Record the lab again: no step runs, but parts of the scenario without steps may differ.

        Machines that a killed failover test left cut off are reconnected.
        """
        name = self.lab.name
        if self.known and (self.known.plan_digest, self.known.scenario_text) == (
            self.row.plan_digest,
            self.row.scenario_text,
        ):
            self.say(
                f"lab '{name}' is already up: its scenario has not changed; "
                f"'lab status {name} --deep' compares its machines with it"
            )
        else:
            self.say(f"lab '{name}' is already up: only its scenario was recorded again")
        self._write_up()
        write_scenario(self.lab.directory, self.row.scenario_text)
        reconnect_cut_off(self.store, self.provider, self.lab, self.request.intent, self.say)
        for fault in self.store.live_faults(name, self.lab.token):
            self.say(
                f"note: fault '{fault.name}' was put into '{fault.node}'; "
                f"'lab heal {name}' removes it"
            )

    def _begin(self) -> None:
        """Record in the journal what will be created, before anything is."""
        name = self.lab.name
        kept = [decision.step for decision in self.decisions if decision.action == "skip"]
        machines = [(machine.kind, machine.name) for machine in self.request.intent.machines]
        with self.store.change(f"recording lab '{name}' before making it"):
            self.store.put_lab(self.row)
            self.store.keep_steps(name, kept)
            if not kept:
                self.store.disown_faults(name)
            self.store.mark_resources_gone(name)
            self.store.intend_resources(name, machines)
        write_scenario(self.lab.directory, self.request.scenario_text)

    def _clear(self) -> None:
        """If every step runs, first remove what an earlier bring-up of this lab left.

        That is every object with its token, or with its directory and a token that is in no journal
        (the state file was lost).
        """
        if any(decision.action == "skip" for decision in self.decisions):
            return
        tokens = {mark.token for mark in own_marks(self.provider, self.lab.directory)}
        if self.known:
            tokens.add(self.lab.token)
        for token in sorted(tokens):
            for removed in self.provider.destroy(replace(self.lab, token=token)):
                self.say(f"removed what an earlier bring-up left: {removed}")

    def _run(self) -> None:
        name, say = self.lab.name, self.say
        first = next(decision for decision in self.decisions if decision.action == "run")
        why = "" if first.is_new else f": {first.why}"
        say(f"{'starting' if first.is_new else 'continuing'} lab '{name}'{why}")
        took: dict[str, float] = {}
        skipped = {decision.step for decision in self.decisions if decision.action == "skip"}
        wanted = [step for step in self.steps if step.name not in skipped]
        for group in group_parallel_steps(wanted):
            for step in group:
                position = self.steps.index(step)
                say(f"  step {position + 1} of {len(self.steps)}: {step.name}")
                self.store.intend_step(name, position, step.name, step.digest)
            ends = _run_together(group)
            for end in ends:
                if end.error is None:
                    self.store.finish_step(name, end.step)
                    took[end.step] = end.seconds
            for end in ends:
                if end.error is not None:
                    happened = str(end.error) or type(end.error).__name__
                    raise self._broken(end.step, happened) from end.error
        if sum(took.values()) > _LONG_SECONDS:
            say(f"  took {', '.join(f'{step} {seconds:.1f} s' for step, seconds in took.items())}")

    def _finish(self) -> None:
        liveness = self.provider.liveness(self.lab, self.request.intent)
        if liveness.state != "running":
            happened = f"it succeeded, but the lab is {liveness.state}: {liveness.detail}"
            raise self._broken(self.steps[-1].name, happened)
        self._write_up()

    def _write_up(self) -> None:
        name = self.lab.name
        with self.store.change(f"recording that lab '{name}' is up"):
            self.store.put_lab(replace(self.row, status="up", updated=self.store.now()))
            self.store.mark_resources_made(name)

    def _broken(self, step: str, happened: str) -> BrokenError:
        from lab.lifecycle.evidence import EvidenceSubject, keep_because  # noqa: PLC0415  only a failure pays

        name, action = self.lab.name, f"bringing up lab '{self.lab.name}', step '{step}'"
        plan, intent = self.request.plan, self.request.intent
        subject = EvidenceSubject(self.lab, self.row, plan, intent, self.provider, self.store)
        self.store.set_status(name, "broken", f"step '{step}': {happened}")
        hint = (
            f"'lab status {name}' shows how far it is, '{self.request.command}' continues, "
            f"'{removal(self.row)}' takes it down"
        )
        if TEMPORARY in self.request.options:  # its command takes it away
            hint = ""
        return BrokenError(
            action, f"{happened}\n  {keep_because(subject, f'{action}: {happened}')}", hint
        )


def _make_row(request: CompiledRequest, provider: str, known: LabRow | None, now: float) -> LabRow:
    """The lab's new row; an existing lab keeps its token and its creation time."""
    action = f"bringing up lab '{request.name}'"
    if known and known.scenario != request.plan.scenario:
        raise UsageError(
            action,
            f"lab '{known.name}' was made from scenario '{known.scenario}', and this is scenario "
            f"'{request.plan.scenario}'",
            f"run '{removal(known)}' first, or give this lab another name with --name",
        )
    if known and known.provider != provider:
        raise UsageError(
            action,
            f"lab '{known.name}' is on provider '{known.provider}', not on '{provider}'",
            f"run '{removal(known)}' first, or use '--provider {known.provider}'",
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


def group_parallel_steps(steps: Iterable[Step]) -> tuple[tuple[Step, ...], ...]:
    """The steps in order, in groups that run at the same time."""
    groups: list[tuple[Step, ...]] = []
    for step in steps:
        if step.alongside and groups:
            groups[-1] += (step,)
        else:
            groups.append((step,))
    return tuple(groups)


@dataclass(frozen=True, slots=True)
class _StepEnd:
    """How a step ended, and after how many seconds."""

    step: str
    seconds: float
    error: Exception | None


def _run_together(group: Sequence[Step]) -> tuple[_StepEnd, ...]:
    """Run steps at the same time, all to their ends, whether others fail or not."""
    if len(group) == 1:
        return (_run_step(group[0]),)
    named = {step.name: step for step in group}
    ends = on_each(named, lambda name: _run_step(named[name]))
    return tuple(ends[step.name] for step in group)


def _run_step(step: Step) -> _StepEnd:
    began = time.monotonic()
    error = None
    try:
        step.run()
    except Exception as raised:  # noqa: BLE001  any failure of a step leaves the lab broken
        error = raised
    return _StepEnd(step.name, time.monotonic() - began, error)


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether one step runs, and the reason, as text."""

    step: str
    action: Literal["skip", "run"]
    why: str
    is_new: bool = False
    """Whether it runs only because it was never done."""


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
        done = steps_done.get(name)
        own = reason or _why_it_runs(done, wanted_digest)
        is_new = done is None and not reason
        decisions.append(Decision(name, "run" if own else "skip", own or "unchanged", is_new))
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


def _why_it_runs(done: str | None, wanted: str) -> str:
    if done is None:
        return "new"
    return "" if done == wanted else "its input has changed"
