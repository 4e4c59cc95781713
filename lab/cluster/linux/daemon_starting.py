"""Starting the daemons of an Intent on real machines, stage by stage, until all are ready."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lab._errors import BrokenError
from lab.cluster.linux import daemons
from lab.cluster.linux.daemon_looking import last_words
from lab.cluster.linux.doing import Hand
from lab.cluster.linux.parallel import on_each
from lab.cluster.linux.site import ClusterSite
from lab.topology.daemon import LOG, Daemon
from lab.topology.intent import Intent

_LOOK_SECONDS = 0.5
"""Between two looks whether a daemon is ready."""


@dataclass(frozen=True, slots=True, repr=False)
class _Sight:
    """What was seen of a daemon."""

    ready: bool
    words: str

    def __repr__(self) -> str:
        return self.words


def start(intent: Intent, site: ClusterSite) -> None:
    """Have every daemon run that the lab starts itself; what runs as it should is left alone.

    Raises
    ------
    BrokenError
        When one cannot be started, or has ended; with its last words.
    DeadlineError
        When one is not ready in time, with what was last seen of it.

    """
    wanted = daemons.wanted(intent)
    for stage in sorted({one.stage for some in wanted.values() for one in some}):
        now = {
            name: tuple(one for one in some if one.stage == stage) for name, some in wanted.items()
        }
        _stage({name: some for name, some in now.items() if some}, site)


def _stage(wanted: Mapping[str, tuple[Daemon, ...]], site: ClusterSite) -> None:
    def begin(name: str) -> None:
        for one in wanted[name]:
            Hand(name, site).do(daemons.started(one))

    def wait(name: str) -> None:
        for one in wanted[name]:
            _await_ready(name, one, site)

    on_each(wanted, begin)
    on_each(wanted, wait)
    for name, some in wanted.items():
        site.say(f"{name}: {', '.join(one.name for one in some)} ready")


def _await_ready(name: str, daemon: Daemon, site: ClusterSite) -> None:
    ready, hand = daemon.ready, Hand(name, site)
    doing = f"waiting for {daemon.name} on '{name}' to be ready ('{ready.pattern}')"
    log = ("cat", f"{daemon.directory}/{LOG}")

    def look() -> _Sight:
        if hand.say(("systemctl", "is-failed", "--quiet", daemons.unit(daemon))).code == 0:
            raise BrokenError(doing, f"it has ended: {last_words(hand.say(log).stdout)}")
        seen = hand.say(ready.command or log)
        good = seen.code == 0 and re.search(ready.pattern, seen.stdout, re.MULTILINE)
        return _Sight(
            bool(good), last_words(seen.stdout) or seen.stderr.strip() or "it says nothing"
        )

    site.deadline(ready.seconds).wait(
        doing,
        look,
        until=lambda seen: seen.ready,
        every=_LOOK_SECONDS,
        hint=f"'lab exec {name} cat {daemon.directory}/{LOG}' shows its log",
    )
