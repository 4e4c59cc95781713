"""An explanation as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from lab._log import quantity
from lab.explain.question import Explanation
from lab.matrix.cell import Expectation
from lab.matrix.finding import Finding
from lab.matrix.verdict import GREEN
from lab.reports.wording import REFUSALS, path_words

_COMMAND_SHOWN = 2000
"""Characters of a command on the terminal; JSON has it whole."""
_LOGGED_SHOWN = 5
_REFUSED: Mapping[str, str] = {
    "timeout": "times out",
    "refused": "is refused",
    "no-route": "finds no route",
    "no-such-name": "is told that there is no such name",
    "several-backends": "is answered by several backends",
}


def to_text(lab: str, explanation: Explanation) -> str:
    """For a person: what happens, what is wrong first, how to see it and how to fix it."""
    return "".join(f"{line}\n" for line in _lines(lab, explanation))


def _lines(lab: str, explanation: Explanation) -> Iterator[str]:
    cell = explanation.cell
    yield f"{cell.family}: {path_words(cell)}: {_answer(explanation)}"
    yield from _rule(explanation.expectation)
    finding = explanation.finding
    if finding is None:
        yield from _nothing(lab, explanation)
    else:
        yield f"  {finding.sentence}"
        if finding.fault:
            yield f"    fault:  {finding.fault}"
        yield f"    hop:    {_hop(explanation, finding)}"
        yield f"    see:    {_cut(finding.shown_by(lab))}"
        yield f"    fix:    {_cut(finding.mended_by(lab))}"
    others = explanation.explained.findings[1:]
    if others:
        yield "  Further along the path:"
        yield from (f"    {one.line}" for one in others)
    if explanation.elsewhere:
        yield "  Not on the path, but wrong:"
        yield from (f"    {one.line}" for one in explanation.elsewhere)
    yield from _logs(explanation)


def _answer(explanation: Explanation) -> str:
    asked = f"{_times(explanation)} of {explanation.times} times" if explanation.times > 1 else ""
    if explanation.verdict not in GREEN:
        return f"{explanation.verdict}{f' {asked}' if asked else ''}: {explanation.detail}"
    refusal = explanation.expectation.refusal
    done = f"{_REFUSED.get(refusal, refusal)}, as expected" if refusal else "works"
    return f"{done} ({asked})" if asked else done


def _times(explanation: Explanation) -> int:
    """How often it was as the verdict says."""
    green = explanation.verdict in GREEN
    return explanation.times - explanation.failed if green else explanation.failed


def _rule(expectation: Expectation) -> Iterator[str]:
    """Why it is not to work, where it is not."""
    if expectation.works:
        return
    kind = "Kubernetes promises it" if expectation.promised else "a known limit"
    yield f"  expected: {REFUSALS.get(expectation.refusal or '', 'a refusal')}; {kind}"
    yield f"    rule:   {expectation.rule}: {expectation.reason}"
    yield f"    from:   {expectation.source}"


def _nothing(lab: str, explanation: Explanation) -> Iterator[str]:
    path = explanation.explained.path
    hops = quantity(len(path.hops), "hop")
    way = f"{hops}, to where it ends: {path.end}" if path.end else f"{hops}, there and back"
    if explanation.verdict in GREEN:
        yield f"  nothing is wrong on its path ({way})"
        return
    yield f"  nothing that was looked at on its path differs from the intent ({way})"
    yield "    try:    lab gather, and the logs of the nodes on the path:"
    yield f"            {', '.join(path.machines)}"
    cell = explanation.cell
    words = f"{cell.source.name} {cell.target.name} --protocol {cell.protocol} --size {cell.size}"
    yield f"    or:     lab capture {lab} {words}"


def _logs(explanation: Explanation) -> Iterator[str]:
    logged = explanation.logged
    if not logged:
        return
    yield "  In the logs of the machines on the path (how long ago, the line says):"
    for one in logged[:_LOGGED_SHOWN]:
        yield f"    {one.place}: {one.match.cause}"
        yield f"      line: {_cut(one.match.line)}"
        yield f"      try:  {one.match.hint}"
    if len(logged) > _LOGGED_SHOWN:
        yield f"    and {len(logged) - _LOGGED_SHOWN} more (--json has all of it)"


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
        "expected": asdict(explanation.expectation),
        "finding": finding_json(lab, explanation.finding) if explanation.finding else None,
        "further": [finding_json(lab, one) for one in explanation.explained.findings[1:]],
        "elsewhere": [finding_json(lab, one) for one in explanation.elsewhere],
        "logs": [
            {
                "log": one.path,
                "line": one.match.line,
                "number": one.match.number + 1,
                "times": one.match.times,
                "signature": one.match.id,
                "cause": one.match.cause,
                "cure": one.match.hint,
                "source": one.match.source,
            }
            for one in explanation.logged
        ],
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
