"""Whether the daemons of an Intent run on their machines; of one that does not, its last words."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from lab.cluster.linux import daemons
from lab.cluster.linux.doing import Hand
from lab.cluster.linux.parallel import on_each
from lab.cluster.linux.site import ClusterSite
from lab.topology.daemon import LOG, Daemon
from lab.topology.intent import Intent

_LAST_LINES = 5
_RUNS = "active"
"""What systemd says of a unit that does; one that dies again and again is "activating"."""


def ailments(intent: Intent, site: ClusterSite) -> Mapping[str, str]:
    """By machine, what is the matter with the first of its daemons that does not run.

    Raises
    ------
    LabError
        When a machine cannot be asked.

    """
    wanted, found = daemons.wanted(intent), dict[str, str]()

    def look(name: str) -> None:
        what = _of(wanted[name], Hand(name, site))
        if what:
            found[name] = what

    on_each(wanted, look)
    return {name: found[name] for name in wanted if name in found}


def _of(some: tuple[Daemon, ...], hand: Hand) -> str:
    """What is the matter with the first that does not run; empty where all do."""
    states = hand.say(("systemctl", "is-active", *map(daemons.unit, some))).stdout.split()
    for daemon, state in zip_longest(some, states[: len(some)], fillvalue="unknown"):
        assert isinstance(daemon, Daemon)
        if state != _RUNS:
            log = hand.say(("cat", f"{daemon.directory}/{LOG}")).stdout
            return f"{daemon.name} is {state}: {last_words(log) or 'it has logged nothing'}"
    return ""


def last_words(log: str) -> str:
    """The last lines of a log, on one."""
    return " / ".join(line.strip() for line in log.strip().splitlines()[-_LAST_LINES:])
