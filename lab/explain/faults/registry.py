"""The registry of faults: every :class:`Fault` in a module of this package."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

import lab.explain.faults
from lab._errors import UsageError
from lab.explain.faults.fault import Fault, FaultSite
from lab.topology.intent import Intent

_LEAST = 3
"""Prefix length that distinguishes one name from the others."""
_PATH = lab.explain.faults.__path__


@cache
def faults() -> Mapping[str, Fault]:
    """Every fault by name, in alphabetical order."""
    names = (f"{lab.explain.faults.__name__}.{one.name}" for one in iter_modules(_PATH))
    every = (one for name in names for one in vars(import_module(name)).values())
    found = {one.name: one for one in every if isinstance(one, Fault)}
    return dict(sorted(found.items()))


def find(doing: str, name: str) -> Fault:
    """The fault of this name, with its figures if any: ``packet-loss 5%``.

    Raises
    ------
    UsageError
        If there is none, with the nearest name, or if the figures are invalid.

    """
    known = faults()
    word, *figures = name.split() or [name]
    if word not in known:
        raise UsageError(doing, f"there is no fault '{word}'", _nearest(word, known))
    fault = known[word]
    if not figures:
        return fault
    if fault.with_figures is None:
        given = " or ".join(f"'{one.name}'" for one in known.values() if one.figures)
        raise UsageError(doing, f"'{word}' has no figures", f"leave them out, or use {given}")
    try:
        return fault.with_figures(figures)
    except ValueError as error:
        raise UsageError(doing, f"'{error}' is no figure of it", fault.figures) from None


def plain_name(name: str) -> str:
    """The name without figures."""
    return name.partition(" ")[0]


def _nearest(name: str, known: Mapping[str, Fault]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  only a wrong name pays for it

    meant = {alias: one.name for one in known.values() for alias in (one.name, *one.also)}
    close = [meant[one] for one in get_close_matches(name, meant, n=3, cutoff=0.5)]
    if len(name) >= _LEAST:
        close += [one for one in known if name in one or one in name]
    listed = " or ".join(f"'{one}'" for one in dict.fromkeys(close))
    hint = f"did you mean {listed}? " if listed else ""
    return f"{hint}'lab fault --list' shows every fault"


def sites(fault: Fault, intent: Intent) -> tuple[FaultSite, ...]:
    """Where the fault can be injected in a lab, in the Intent's order."""
    return tuple(fault.sites(intent))


def choose(fault: Fault, intent: Intent, doing: str, node: str = "", peer: str = "") -> FaultSite:
    """The machine for the fault, and the one peer.

    Parameters
    ----------
    fault, intent, doing
        The fault, the lab's Intent, and the activity for error messages.
    node, peer
        As requested; empty for the first possible one.

    Raises
    ------
    UsageError
        If it is not possible in this lab, on this machine, or with this peer: why, and where it is
        possible.

    """
    there = sites(fault, intent)
    if not there:
        raise UsageError(
            doing,
            f"it needs {fault.needs}, and no machine of a lab with topology "
            f"'{intent.topology}' has that",
            f"{_elsewhere(fault)}; in this lab there can be {', '.join(_here(intent))}",
        )
    chosen = [one for one in there if node in {"", one.node}]
    if not chosen:
        names = [machine.name for machine in intent.everything()]
        why = (
            f"it needs {fault.needs}, which '{node}' has not"
            if node in names
            else f"there is no machine '{node}'"
        )
        known = [one.node for one in there]
        raise UsageError(doing, why, f"{_meant(node, known)}--node {_either(known)}")
    return _with_peer(fault, intent, chosen, doing, peer)


def _here(intent: Intent) -> list[str]:
    return [one.name for one in faults().values() if sites(one, intent)]


def _with_peer(
    fault: Fault, intent: Intent, chosen: list[FaultSite], doing: str, peer: str
) -> FaultSite:
    if fault.peer is None:
        if peer:
            raise UsageError(doing, "it concerns one machine only", "leave '--peer' out")
        return FaultSite(chosen[0].node)
    fitting = [one for one in chosen if peer in {"", *one.peers}]
    if not fitting:
        known = list(dict.fromkeys(name for one in chosen for name in one.peers))
        where = f" of '{chosen[0].node}'" if len(chosen) == 1 else ""
        why = f"'{peer}' can be no peer{where} in it"
        if peer not in _named(intent):
            why = f"there is no {fault.peer} '{peer}'"
        raise UsageError(doing, why, f"{_meant(peer, known)}--peer {_either(known)}")
    return FaultSite(fitting[0].node, (peer or fitting[0].peers[0],))


def _named(intent: Intent) -> set[str]:
    """All names that a peer could have."""
    machines = [*intent.everything()]
    return {one.name for one in machines} | {pod.name for one in machines for pod in one.pods}


def _meant(name: str, known: list[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  only a wrong name pays for it

    near = get_close_matches(name, known, n=1) if name not in known else []
    return f"did you mean '{near[0]}'? " if near else ""


def _either(names: list[str]) -> str:
    shown = names[:12]
    return ", ".join(shown) + (f" (and {len(names) - 12} more)" if len(names) > 12 else "")  # noqa: PLR2004  a line's worth


def _elsewhere(fault: Fault) -> str:
    """The shipped scenarios in which it is possible."""
    from lab.plan.planner import make_plan  # noqa: PLC0415  only this error pays for it
    from lab.scenario.loader import find as find_scenario  # noqa: PLC0415  the same
    from lab.scenario.loader import load, shipped  # noqa: PLC0415  the same
    from lab.topology import registry  # noqa: PLC0415  the same

    fitting = [
        name
        for name in shipped()
        if sites(fault, registry.intent(make_plan(load(find_scenario(name)))))
    ]
    return f"a lab of scenario {_either(fitting)}" if fitting else "no shipped scenario has it"
