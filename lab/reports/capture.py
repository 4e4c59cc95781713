"""A captured probe as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab._log import quantity, table_lines
from lab.explain.capture.conclusion import icmp_words
from lab.explain.capture.files import Captured
from lab.explain.capture.trace import Row, Sight
from lab.matrix.verdict import GREEN
from lab.reports.wording import path_words

_MOST = 5
"""Number of unanswered ARP addresses that are listed."""
_HEAD = ("#", "where", "question", "after", "answer", "after", "as")


def to_text(lab: str, captured: Captured, directory: Path) -> str:
    """As text: every hop, where the packet was last seen, and where the files are."""
    return "".join(f"{line}\n" for line in _lines(lab, captured, directory))


def _lines(lab: str, captured: Captured, directory: Path) -> Iterator[str]:
    cell = captured.cell
    yield f"{cell.family}: {path_words(cell)}: {_describe_verdict(captured)}"
    yield from (f"  {line}" for line in table_lines([_HEAD, *_cells(captured)], right={3, 5}))
    if not captured.trace.known:
        yield "  (in the order of capture: paths through OVN are not computed)"
    yield f"  {captured.conclusion.sentence}"
    yield from _list_remarks(captured)
    yield f"    files:  {directory}"
    if not captured.well:
        source, target = cell.source.name, cell.target.name
        yield f"    try:    lab explain {lab} {source} {target} --protocol {cell.protocol}"


def _describe_verdict(captured: Captured) -> str:
    if captured.verdict == "known-limit" or (captured.cell.unreachable and captured.well):
        return f"not expected to work: {captured.expectation.reason}"
    if captured.verdict in GREEN:
        return "works" if captured.outcome.status == "ok" else "fails, as expected"
    return f"{captured.verdict}: {captured.detail}"


def _cells(captured: Captured) -> Iterator[tuple[str, ...]]:
    numbers = {tap: number for number, tap in enumerate(captured.taps(), start=1)}
    before = ""
    for row in captured.trace.rows:
        if row.passing is None:
            continue
        words = _describe_flow(row)
        yield (
            f"{numbers[row.tap]:02}",
            str(row.tap),
            _describe_passing(row.passing, row.question) if row.on_request else "",
            _time_after(captured, row.question),
            _describe_passing("in" if row.passing == "out" else "out", row.answer)
            if row.on_reply
            else "",
            _time_after(captured, row.answer),
            "" if words == before else words,
        )
        before = words or before


def _describe_passing(passing: str, sight: Sight) -> str:
    """``2 out``: two packets left by the device; ``-`` if none was seen."""
    if not sight.packets:
        return "-"
    return f"{sight.packets} {passing}{' (not its MAC)' if sight.strangers_mac else ''}"


def _time_after(captured: Captured, sight: Sight) -> str:
    if not sight.packets:
        return ""
    return f"{(sight.first - captured.trace.began) / 1e6:.3f} ms"


def _describe_flow(row: Row) -> str:
    sight = row.question if row.question.packets else row.answer
    return f"{sight.flow} in {sight.tunnels}" if sight.tunnels else str(sight.flow or "")


def _list_remarks(captured: Captured) -> Iterator[str]:
    silent = [str(row.tap) for row in captured.trace.rows if row.passing is None]
    if silent:
        yield f"    unseen: {', '.join(silent)}"
    if captured.onward:
        yield f"    onward: the server asks the services node: {captured.onward.sentence}"
    if captured.end:
        yield f"    intent: {captured.end}"
    for unanswered in captured.trace.unanswered[:_MOST]:
        requests = quantity(unanswered.times, "request")
        yield (
            f"    ARP:    {requests} for {unanswered.address} at {unanswered.tap.place} "
            f"{unanswered.tap.device} without a reply"
        )
    for taken in captured.taken:
        if taken.trouble:
            yield f"    gap:    {taken.trouble}"
        if taken.missed:
            missed = quantity(taken.missed, "packet")
            yield f"    gap:    {missed} at {taken.tap.place} {taken.tap.device} not captured"


def to_json(lab: str, captured: Captured, directory: Path) -> dict[str, Any]:
    """As values that :mod:`json` can write."""
    conclusion = captured.conclusion
    return {
        "lab": lab,
        "cell": captured.cell.id,
        "verdict": captured.verdict,
        "detail": captured.detail,
        "well": captured.well,
        "tried": captured.tried,
        "kind": conclusion.kind,
        "sentence": conclusion.sentence,
        "last": str(conclusion.last.tap) if conclusion.last else None,
        "missing": str(conclusion.missing.tap) if conclusion.missing else None,
        "path_known": captured.trace.known,
        "end": captured.end,
        "onward": captured.onward.sentence if captured.onward else None,
        "directory": str(directory),
        "hops": [_row_json(captured, row) for row in captured.trace.rows],
        "errors": [
            {
                "at": str(error.tap),
                "from": error.inside.flow.source,
                "says": icmp_words(error.error),
                "about": str(error.error.flow) if error.error.flow else None,
                "milliseconds": (error.frame.at - captured.trace.began) / 1e6,
            }
            for error in captured.trace.errors
        ],
        "unanswered_arp": [
            {"at": str(unanswered.tap), "address": unanswered.address, "times": unanswered.times}
            for unanswered in captured.trace.unanswered
        ],
        "gaps": [
            {"at": str(taken.tap), "trouble": taken.trouble, "missed": taken.missed}
            for taken in captured.taken
            if taken.trouble or taken.missed
        ],
    }


def _row_json(captured: Captured, row: Row) -> dict[str, Any]:
    return {
        "place": row.tap.place,
        "device": row.tap.device,
        "machine": row.machine,
        "file": captured.file_of(row.tap),
        "passing": row.passing,
        "question": _sight_json(captured, row.question) | {"intended": row.on_request},
        "answer": _sight_json(captured, row.answer) | {"intended": row.on_reply},
    }


def _sight_json(captured: Captured, sight: Sight) -> dict[str, Any]:
    return {
        "packets": sight.packets,
        "bytes": sight.covered,
        "milliseconds": (sight.first - captured.trace.began) / 1e6 if sight.packets else None,
        "as": str(sight.flow or ""),
        "tunnels": sight.tunnels,
        "strangers_mac": sight.strangers_mac or None,
    }
