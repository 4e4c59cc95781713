"""Log lines with a known cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lab.facts.signatures import InLog, in_log
from lab.providers.provider import Evidence

_LOG_BYTES = 1 << 20
"""Bytes at the end of a log that are searched, in 0.2 s. A daemon that cannot connect writes
more in seconds."""


def find_known_lines(pieces: Iterable[Evidence], since: float = 0) -> tuple[InLog, ...]:
    """Known lines in those pieces that are logs; none before ``since`` (seconds since 1970)."""
    known_lines: list[InLog] = []
    for piece in pieces:
        if piece.is_log:
            begin = max(0, len(piece.content) - _LOG_BYTES)
            skipped = piece.content.count(b"\n", 0, begin)
            text = piece.content[begin:].decode(errors="replace")
            known_lines += (
                replace(
                    known_line,
                    match=replace(known_line.match, number=known_line.match.number + skipped),
                )
                for known_line in in_log(piece.path, text, since)
            )
    return tuple(known_lines)
