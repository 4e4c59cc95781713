"""Logs of a lab's machines, read once or followed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import replace

from lab._deadline import Deadline
from lab.explain.question import LOOK_SECONDS
from lab.lifecycle.session import OpenLab
from lab.providers.provider import Evidence

_EVERY_SECONDS = 0.5


def everywhere(opened: OpenLab) -> list[str]:
    """Names of all machines."""
    return [one.name for one in opened.intent.machines]


def read(opened: OpenLab, machines: Collection[str]) -> Iterator[Evidence]:
    """The logs of these machines; for one that cannot be read, a piece says why. Never raises."""
    return opened.provider.logs(opened.handle, opened.intent, machines, Deadline(LOOK_SECONDS))


def follow(opened: OpenLab, machines: Collection[str]) -> Iterator[Evidence]:
    """The logs of :func:`read`, and then what is added to them, as long as the lab runs."""
    seen: dict[str, bytes] = {}
    for _ in Deadline(math.inf).tries(_EVERY_SECONDS):
        if opened.provider.liveness(opened.handle, opened.intent).state != "running":
            return
        for piece in read(opened, machines):
            before = seen.get(piece.path, b"")
            seen[piece.path] = piece.content
            if new := added(before, piece.content):
                yield replace(piece, content=new)


def added(before: bytes, now: bytes) -> bytes:
    """The content added to a log since it was last read; all of it if it was restarted. Pure."""
    return now.removeprefix(before)
