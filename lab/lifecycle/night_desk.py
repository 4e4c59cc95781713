"""Where ``lab nightly`` comes to: its commands, the user's own journal, and its provider."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lab._errors import LabError, PreflightError
from lab.inventory.inventory import Inventory
from lab.inventory.loader import current
from lab.lifecycle.blueprint import draw
from lab.lifecycle.command import run_lab
from lab.lifecycle.desk import opened_store, providers
from lab.lifecycle.marks import all_marks, same_directory
from lab.lifecycle.nightly import EMULATED_SECONDS, REAL_SECONDS, Hands, Job
from lab.lifecycle.providers import choose, chosen
from lab.providers.provider import MACHINES, Pods, Provider
from lab.topology.intent import Intent


def hands() -> Hands:
    """What a night works with: ``lab`` commands, and the user's own journal."""
    return Hands(run_lab, _is_there, _run_directories)


def choose_provider(asked: str | None) -> Provider:
    """The provider of a night: the one that is asked for, else the one that is usual here.

    Raises
    ------
    PreflightError
        When its machines are emulated and nobody has asked for it by name.

    """
    provider = choose(providers(), chosen(asked, _inventory()))
    if asked is None and MACHINES not in provider.abilities:
        raise PreflightError(
            "choosing where a night's labs are to run",
            "there are no hypervisors here, and a night on the embedded provider says nothing "
            "of real machines",
            f"name hypervisors in lab.toml, or ask for it: lab nightly --provider {provider.name}",
        )
    return provider


def _inventory() -> Inventory | None:
    """The inventory that is meant here; see :func:`lab.inventory.loader.current`."""
    return current(os.environ, Path.cwd())


def deadline(provider: Provider) -> float:
    """Seconds for each scenario on that provider, where nobody says."""
    return REAL_SECONDS if MACHINES in provider.abilities else EMULATED_SECONDS


def judged(
    jobs: Sequence[Job], provider: Provider, only: str | None, pods: Pods | None
) -> tuple[tuple[Job, ...], int]:
    """The jobs, each with the reason why the provider can never have it, if there is one.

    And how many of the others' labs may be up at once. What is wrong with a scenario's file,
    ``lab up`` tells.
    """
    found, fit = [], []
    for job in jobs:
        intent = _intent(job, provider, only, pods)
        found.append(replace(job, unfit=provider.unfit(intent) if intent else ""))
        if intent and not found[-1].unfit:
            fit.append(intent)
    return tuple(found), provider.labs_at_once(fit)


def _intent(job: Job, provider: Provider, only: str | None, pods: Pods | None) -> Intent | None:
    real = MACHINES in provider.abilities
    try:
        return draw(job.source, only, None, pods or provider.pods, real=real).intent
    except LabError:
        return None


def _is_there(name: str) -> bool:
    with opened_store() as store:
        row = store.lab(name)
        if row is not None and row.status != "down":
            return True
        directory = store.lab_directory(name)
    return any(same_directory(mark.directory, directory) for _, mark in all_marks(providers()))


def _run_directories(name: str) -> Mapping[str, Path]:
    with opened_store() as store:
        return {run.id: store.run_directory(name, run.id) for run in store.runs(name)}
