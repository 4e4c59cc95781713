"""Where ``lab nightly`` comes to: its commands, the user's own journal, and how much fits."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lab._errors import LabError
from lab.inventory.inventory import STOCK, Inventory
from lab.inventory.loader import current
from lab.lifecycle.blueprint import draw
from lab.lifecycle.command import run_lab
from lab.lifecycle.desk import opened_store, providers
from lab.lifecycle.marks import all_marks, same_directory
from lab.lifecycle.nightly import Hands, Job
from lab.lifecycle.parallelism import LAB_MIB, parallelism
from lab.lifecycle.providers import choose
from lab.providers.provider import Pods


def hands() -> Hands:
    """What a night works with: ``lab`` commands, and the user's own journal."""
    return Hands(run_lab, _is_there, _run_directories)


def inventory() -> Inventory | None:
    """The inventory that is meant here; see :func:`lab.inventory.loader.current`."""
    return current(os.environ, Path.cwd())


def labs_at_once(
    provider: str, known: Inventory | None, sources: Sequence[str], only: str | None
) -> int:
    """How many of these scenarios' labs may be up at once on that provider."""
    if provider != "libvirt":
        return parallelism(None)
    return parallelism(
        known or STOCK, max((_memory(source, only) for source in sources), default=LAB_MIB)
    )


def judged(
    jobs: Sequence[Job], provider: str, only: str | None, pods: Pods | None
) -> tuple[Job, ...]:
    """The jobs, each with the reason why that provider can never have it, if there is one."""
    chosen = choose(providers(), provider)

    def unfit(job: Job) -> str:
        try:
            return chosen.unfit(draw(job.source, only, None, pods or chosen.pods).intent)
        except LabError:  # what is wrong with its file, 'lab up' tells
            return ""

    return tuple(replace(job, unfit=unfit(job)) for job in jobs)


def _memory(source: str, only: str | None) -> int:
    """MiB that the machines of a scenario have; 1 for one that cannot be brought up anyway."""
    try:
        machines = draw(source, only).intent.machines
    except LabError:
        return 1
    return sum(machine.hardware.memory_mib for machine in machines)


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
