"""The status of labs: the journal's record, checked against the providers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from lab._errors import LabError
from lab.lifecycle.names import again, check_name, unknown_lab
from lab.lifecycle.ownership import all_marks, same_directory
from lab.lifecycle.providers import choose
from lab.providers.provider import LabHandle, Liveness, Mark, Provider, find_cluster
from lab.state.lock import Holder, holder
from lab.state.rows import LabRow, LabState
from lab.state.store import Store
from lab.topology.intent import Intent

State = Literal[
    "up", "working", "suspended", "broken", "interrupted", "absent", "orphan", "unknown"
]
"""``working``: another command holds the lab; ``interrupted``: a command was stopped or killed, and
none has continued; ``suspended``: its machines' memory is on disk; ``absent``: its machines are
gone; ``orphan``: found only by its marks; ``unknown``: it could not be checked."""


@dataclass(frozen=True, slots=True)
class StepStatus:
    """One step of the bring-up."""

    name: str
    state: str
    at: float


@dataclass(frozen=True, slots=True)
class RunStatus:
    """One run of the matrix."""

    run: str
    started: str
    seconds: float
    green: bool
    counts: Mapping[str, int]
    directory: str


@dataclass(frozen=True, slots=True)
class FaultStatus:
    """One injected fault that is still in the lab."""

    name: str
    node: str
    peer: str
    at: float
    whole: bool
    """False if the command that put it in did not finish."""


@dataclass(frozen=True, slots=True)
class LabStatus:
    """One lab. Times are seconds since 1970; ``dataclasses.asdict`` of it is JSON."""

    name: str
    state: State
    detail: str
    """Description of the state; empty for a lab that is up."""
    scenario: str
    provider: str
    directory: str
    created: float
    updated: float
    steps: tuple[StepStatus, ...]
    runs: tuple[RunStatus, ...]
    """Oldest first, including those of earlier labs of the same name."""
    again: str = ""
    """The command that brings it up again; empty if it is not in the journal."""
    faults: tuple[FaultStatus, ...] = ()
    hypervisors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The machines on each of the scenario's hypervisors."""
    nodes: tuple[tuple[str, str], ...] = ()
    """Nodes of a cluster that is up, with what keeps new pods away from them."""
    disclaimer: str = ""
    """See :meth:`Provider.disclaimer`; empty, too, if the lab's scenario cannot be read."""


def judge(
    journal: LabState, why: str, liveness: Liveness, at_it: Holder | None
) -> tuple[State, str]:
    """The state of a lab and its detail.

    ``journal`` and ``why``: the journal's status and detail. ``liveness``: what the provider found.
    ``at_it``: the command that holds the lab.
    """
    if at_it is not None:
        return "working", f"{at_it!r} is running on it"
    if journal == "broken":
        worse = liveness.state in {"broken", "absent"} and liveness.detail not in why
        return "broken", f"{why}; now {liveness.detail}" if worse else why
    if journal in {"starting", "going"}:
        command = "up" if journal == "starting" else "down"
        return "interrupted", f"'lab {command}' ended before it finished"
    if journal == "interrupted":
        return "interrupted", why
    states: Mapping[str, State] = {"running": "up", "suspended": "suspended", "absent": "absent"}
    state = states.get(liveness.state, "broken")
    return state, "" if state == "up" else liveness.detail


def list_labs(providers: Mapping[str, Provider], store: Store) -> tuple[LabStatus, ...]:
    """Every lab of this state directory, by name; labs known only by their marks come last.

    Raises StateError when the journal cannot be read.
    """
    marks = all_marks(providers)
    rows = store.labs()
    known = tuple(_status_of(row, providers, store) for row in rows)
    return (*known, *_list_orphans(marks, {row.name for row in rows}, store))


def status(name: str, providers: Mapping[str, Provider], store: Store) -> LabStatus:
    """The status of the lab of this name.

    Raises UsageError, with the nearest name and the existing labs, when there is none. Raises
    StateError when the journal cannot be read.
    """
    check_name(name)
    row = store.lab(name)
    if row is not None and row.status != "down":
        return _status_of(row, providers, store)
    orphans = _list_orphans(all_marks(providers), {row.name for row in store.labs()}, store)
    for orphan in orphans:
        if orphan.name == name:
            return orphan
    known = [row.name for row in store.labs()] + [orphan.name for orphan in orphans]
    raise unknown_lab(f"looking at lab '{name}'", name, known)


def _status_of(row: LabRow, providers: Mapping[str, Provider], store: Store) -> LabStatus:
    from lab.lifecycle.compilation import rebuild  # noqa: PLC0415  only where there is a lab

    directory = store.lab_directory(row.name)
    state: State
    hypervisors: Mapping[str, tuple[str, ...]] = {}
    nodes: tuple[tuple[str, str], ...] = ()
    disclaimer = ""
    try:
        provider = choose(providers, row.provider)
        intent = rebuild(row, store, provider).intent
        disclaimer = provider.disclaimer(intent)
        hosts = intent.hosts()
        hypervisors = {
            hypervisor.name: tuple(machine for machine, host in hosts if host == hypervisor.name)
            for hypervisor in intent.hypervisors
        }
        liveness = provider.liveness(LabHandle(row.name, directory, row.token), intent)
        state, detail = judge(row.status, row.detail, liveness, holder(directory))
        if state == "up":
            nodes = _list_remarks(provider, LabHandle(row.name, directory, row.token), intent)
    except LabError as error:
        state, detail = "unknown", str(error)
    return LabStatus(
        name=row.name,
        state=state,
        detail=detail,
        scenario=row.scenario,
        provider=row.provider,
        directory=str(directory),
        created=row.created,
        updated=row.updated,
        steps=tuple(StepStatus(step.name, step.state, step.at) for step in store.steps(row.name)),
        runs=_list_runs(row.name, store),
        again=again(row),
        faults=tuple(
            FaultStatus(fault.name, fault.node, fault.peer, fault.at, fault.state == "done")
            for fault in store.live_faults(row.name, row.token)
        ),
        hypervisors=hypervisors,
        nodes=nodes,
        disclaimer=disclaimer,
    )


def _list_remarks(
    provider: Provider, lab: LabHandle, intent: Intent
) -> tuple[tuple[str, str], ...]:
    cluster = find_cluster(provider, lab, intent)
    return cluster.remarks() if cluster else ()


def _list_runs(name: str, store: Store) -> tuple[RunStatus, ...]:
    return tuple(
        RunStatus(
            run=run.id,
            started=run.started,
            seconds=run.seconds,
            green=run.green,
            counts=run.counts,
            directory=str(store.run_directory(name, run.id)),
        )
        for run in store.runs(name)
    )


def _list_orphans(
    marks: Iterable[tuple[str, Mark]], known: set[str], store: Store
) -> tuple[LabStatus, ...]:
    """One for each lab of this state directory that is not in its journal."""
    orphans: dict[str, LabStatus] = {}
    for provider, mark in marks:
        directory = store.lab_directory(mark.lab)
        if mark.lab in known or not same_directory(mark.directory, directory):
            continue
        born = store.now() - mark.age_seconds
        orphans[mark.lab] = LabStatus(
            name=mark.lab,
            state="orphan",
            detail=f"{mark.object} is in no journal; 'lab down {mark.lab}' removes it",
            scenario="",
            provider=provider,
            directory=str(directory),
            created=born,
            updated=born,
            steps=(),
            runs=_list_runs(mark.lab, store),
        )
    return tuple(orphans[name] for name in sorted(orphans))
