"""An explanation as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lab._log import quantity
from lab.matrix.explain.finding import Finding
from lab.matrix.explain.question import Explanation
from lab.matrix.verdict import GREEN
from lab.reports.wording import path_words

_COMMAND_SHOWN = 400
"""Characters of a command on the terminal; JSON has it whole."""


def to_text(lab: str, explanation: Explanation) -> str:
    """For a person: what happens, what is wrong first, how to see it and how to mend it."""
    return "".join(f"{line}\n" for line in _lines(lab, explanation))


def _lines(lab: str, explanation: Explanation) -> Iterator[str]:
    cell = explanation.cell
    yield f"{cell.family}: {path_words(cell)}: {_answer(explanation)}"
    finding = explanation.finding
    if finding is None:
        yield from _nothing(explanation)
    else:
        yield f"  {finding.sentence}"
        if finding.fault:
            yield f"    fault:  {finding.fault}"
        yield f"    hop:    {_hop(explanation, finding)}"
        yield f"    see:    {_cut(finding.shown_by(lab))}"
        yield f"    mend:   {_cut(finding.mended_by(lab))}"
    others = explanation.explained.findings[1:]
    if others:
        yield "  Further along the path:"
        yield from (f"    {one.line}" for one in others)
    if explanation.elsewhere:
        yield "  Not on the path, but wrong:"
        yield from (f"    {one.line}" for one in explanation.elsewhere)


def _answer(explanation: Explanation) -> str:
    if explanation.verdict == "known-limit":
        return f"not expected to work: {explanation.expectation.reason}"
    if explanation.verdict in GREEN:
        return f"works ({quantity(explanation.times, 'time')} of {explanation.times})"
    asked = f"{explanation.failed} of {explanation.times} times" if explanation.times > 1 else ""
    return f"{explanation.verdict}{f' {asked}' if asked else ''}: {explanation.detail}"


def _nothing(explanation: Explanation) -> Iterator[str]:
    hops = len(explanation.explained.path.hops)
    if explanation.verdict in GREEN:
        yield f"  nothing is wrong on its path ({hops} hops, there and back)"
        return
    yield f"  nothing that was looked at on its path differs from the intent ({hops} hops)"
    yield "    try:    lab gather, and the logs of the nodes on the path:"
    yield f"            {', '.join(explanation.explained.path.machines)}"


def _hop(explanation: Explanation, finding: Finding) -> str:
    path = explanation.explained.path
    hop = path.hops[finding.hop]
    way = "on the way there" if finding.hop < len(path.there) else "on the way back"
    return f"{finding.hop + 1} of {len(path.hops)}, {way}: {hop}"


def _cut(text: str) -> str:
    if len(text) <= _COMMAND_SHOWN:
        return text
    return f"{text[:_COMMAND_SHOWN]}... (--json has all of it)"


def to_json(lab: str, explanation: Explanation) -> dict[str, Any]:
    """As values that :mod:`json` can write."""
    path = explanation.explained.path
    return {
        "lab": lab,
        "cell": explanation.cell.id,
        "verdict": explanation.verdict,
        "detail": explanation.detail,
        "times": explanation.times,
        "failed": explanation.failed,
        "well": explanation.well,
        "finding": finding_json(lab, explanation.finding) if explanation.finding else None,
        "further": [finding_json(lab, one) for one in explanation.explained.findings[1:]],
        "elsewhere": [finding_json(lab, one) for one in explanation.elsewhere],
        "backend": path.backend,
        "end": path.end,
        "path": [
            {
                "way": "there" if number < len(path.there) else "back",
                "kind": hop.kind,
                "machine": hop.machine,
                "place": hop.place,
                "device": hop.device,
                "object": hop.object,
                "source": hop.packet.source,
                "target": hop.packet.target,
            }
            for number, hop in enumerate(path.hops)
        ],
    }


def finding_json(lab: str, finding: Finding) -> dict[str, Any]:
    """One finding; ``show`` and ``mend`` are what to type."""
    return {
        "kind": finding.kind,
        "fault": finding.fault,
        "node": finding.node,
        "object": finding.object,
        "intended": finding.intended,
        "observed": finding.observed,
        "sentence": finding.sentence,
        "hop": finding.hop,
        "show": finding.shown_by(lab),
        "mend": finding.mended_by(lab),
    }
