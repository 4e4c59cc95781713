"""An explanation as text and as JSON. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lab._log import listed, quantity
from lab.facts.command_lines import IN_POD, is_command
from lab.facts.difference import CLUSTER_NAME, Difference
from lab.matrix.cell import Expectation
from lab.matrix.refusal_words import refusal_words
from lab.matrix.verdict import GREEN, RED, CellResult
from lab.reports.patterns import NOWHERE, Findings, Group, Hosts, red_groups
from lab.reports.wording import path_words

if TYPE_CHECKING:
    from lab.explain.explanation import Explanation

_FIX_SHOWN = 200
"""Characters of a command that fixes something; of a longer one, 'lab repair' is shown."""
_COMMAND_SHOWN = 2000
"""Characters of a command on the terminal; JSON has the whole command."""
_LOGGED_SHOWN = 5
_KERNEL_SHOWN = 3


def to_text(lab: str, explanation: Explanation, *, commands: bool = False) -> str:
    """As text: what happens, the first thing that is wrong, how to see it and how to fix it.

    ``commands``: whether a fix is its command however long that is.
    """
    return "".join(f"{line}\n" for line in _lines(lab, explanation, commands=commands))


def fix_words(lab: str, finding: Difference) -> str:
    """The command line or sentence to fix it; for a long command, the ``lab repair`` for it."""
    text = finding.fixed_by(lab)
    if len(text) <= _FIX_SHOWN or not is_command(finding.mends.removeprefix(IN_POD)):
        return _cut(text)
    return shlex.join(("lab", "repair", lab, finding.place, finding.object))


def _lines(lab: str, explanation: Explanation, *, commands: bool) -> Iterator[str]:
    cell = explanation.cell
    yield f"{cell.family}: {path_words(cell)}: {_answer(explanation)}"
    yield from _rule(explanation.expectation)
    finding = explanation.finding
    if finding is None:
        yield from _render_no_finding(lab, explanation)
    else:
        yield f"  {finding.sentence}"
        if finding.fault:
            yield f"    fault:  {finding.fault}"
        yield from _render_place(explanation)
        yield f"    agree:  {_agree(explanation)}"
        yield f"    hop:    {_hop(explanation, finding)}"
        yield f"    see:    {_cut(finding.shown_by(lab))}"
        fix = finding.fixed_by(lab) if commands else fix_words(lab, finding)
        yield f"    fix:    {fix}"
    yield from _unknown(explanation)
    others, beside = explanation.explained.findings[1:], explanation.elsewhere
    yield from _render_list(
        "Further along the path", [difference for difference in others if not difference.of_state]
    )
    yield from _render_list(
        "Wrong, but not on the path",
        [difference for difference in beside if not difference.of_state],
    )
    yield from _render_list(
        "Other differences",
        [difference for difference in (*others, *beside) if difference.of_state],
    )
    yield from _logs(explanation)


_UNKNOWN = {
    "where": "where the probe is lost",
    "difference": "what differs at {}",
    "kernel": "what the kernel reports at {}",
}


def _unknown(explanation: Explanation) -> Iterator[str]:
    """The witnesses that did not answer, and what could not be compared."""
    for answer in explanation.unanswered:
        places = listed([place or CLUSTER_NAME for place in answer.places])
        of = _UNKNOWN[answer.witness].format(places)
        yield f"  not known: {of}: {answer.reason}"
    for queries in explanation.not_asked:
        yield f"  not looked at here: {queries.line}"
    if explanation.unrecorded:
        places = listed([place or CLUSTER_NAME for place in explanation.unrecorded])
        yield f"  not compared, as 'lab up' has recorded no state: {places}"
    if explanation.stateless:
        places = ", ".join(explanation.stateless)
        yield f"  compared with the Intent only, as Windows has no recorded state: {places}"


def _render_place(explanation: Explanation) -> Iterator[str]:
    bracket = explanation.bracket
    if bracket is not None:
        yield f"    where:  {bracket.sentence}"
        yield from (f"    kernel: {sentence}" for sentence in bracket.dropped()[:_KERNEL_SHOWN])


_WITNESSES = {
    "where": ("where it was lost", "where it was lost is unknown"),
    "difference": ("what differs there", "nothing differs"),
    "kernel": ("what the kernel reports", "the kernel reports no drop"),
}


def _agree(explanation: Explanation) -> str:
    """The kinds of evidence that support the cause, then those that do not."""
    heard = explanation.witnesses
    agree = ", ".join(yes for witness, (yes, _) in _WITNESSES.items() if witness in heard)
    number = ("none", "one of three", "two of three", "all three")[len(heard)]
    silent = [no for witness, (_, no) in _WITNESSES.items() if witness not in heard]
    bracket = explanation.bracket
    if "kernel" not in heard:
        if bracket is None or bracket.untraced:
            silent[-1] = "what the kernel reports is unknown"
        elif bracket.dropped():
            silent[-1] = "what the kernel reports is of something else"
    return "; ".join([f"{number}: {agree}", *silent])


def _render_list(title: str, findings: Sequence[Difference]) -> Iterator[str]:
    if findings:
        yield f"  {title}:"
        yield from (f"    {finding.line}" for finding in findings)


def _answer(explanation: Explanation) -> str:
    times = f"{_times(explanation)} of {explanation.times} times" if explanation.times > 1 else ""
    if explanation.verdict not in GREEN:
        return f"{explanation.verdict}{f' {times}' if times else ''}: {explanation.detail}"
    expectation = explanation.expectation
    refused = refusal_words(expectation.refusal).present
    done = "works" if expectation.works else f"{refused}, as expected"
    return f"{done} ({times})" if times else done


def _times(explanation: Explanation) -> int:
    """How often the outcome matched the verdict."""
    green = explanation.verdict in GREEN
    return explanation.times - explanation.failed if green else explanation.failed


def _rule(expectation: Expectation) -> Iterator[str]:
    """The rule by which the cell is expected to fail, if it is."""
    if expectation.works:
        return
    if expectation.refusal is None:
        yield f"  not expected to be reachable, because {expectation.reason}"
        yield f"    from:   {expectation.source}"
        return
    kind = "Kubernetes promises it" if expectation.promised else "a known limit"
    yield f"  expected: {refusal_words(expectation.refusal).noun}; {kind}"
    yield f"    rule:   {expectation.rule}: {expectation.reason}"
    yield f"    from:   {expectation.source}"


def _render_no_finding(lab: str, explanation: Explanation) -> Iterator[str]:
    path = explanation.explained.path
    if explanation.verdict == "unexpected-pass":
        rule = explanation.expectation
        yield f"  {': '.join(filter(None, (rule.unmet, rule.advice)))}"
        return
    hops = quantity(len(path.hops), "hop")
    way = f"{hops}, to where it ends: {path.end}" if path.end else f"{hops}, there and back"
    if explanation.verdict in GREEN:
        if explanation.unanswered:
            yield f"  nothing wrong was found on its path ({way}), but not everything answered"
        else:
            yield f"  nothing is wrong on its path ({way})"
        for difference in explanation.marginal:
            yield f"  marginal: on {difference.node}, {difference.object}: {difference.observed}"
        return
    yield f"  nothing checked on its path differs from the intent ({way})"
    yield from _render_place(explanation)
    yield "    try:    lab gather, and the logs of the nodes on the path:"
    yield f"            {', '.join(path.machines)}"
    cell = explanation.cell
    words = f"{cell.source.name} {cell.target.name} --protocol {cell.protocol} --size {cell.size}"
    yield f"    or:     lab capture {lab} {words}"


def _logs(explanation: Explanation) -> Iterator[str]:
    logged = explanation.logged
    if not logged:
        return
    yield "  In the logs of the machines on the path (each line has its time):"
    for entry in logged[:_LOGGED_SHOWN]:
        yield f"    {entry.place}: {entry.match.cause}"
        yield f"      line: {_cut(entry.match.line)}"
        yield f"      try:  {entry.match.hint}"
    if len(logged) > _LOGGED_SHOWN:
        yield f"    and {len(logged) - _LOGGED_SHOWN} more (--json has all of it)"


def _hop(explanation: Explanation, finding: Difference) -> str:
    path = explanation.explained.path
    hop = path.hops[finding.hop]
    way = "on the way there" if finding.hop < len(path.request) else "on the way back"
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
        "silences": [
            {
                "witness": answer.witness,
                "places": [place or CLUSTER_NAME for place in answer.places],
                "reason": answer.reason,
            }
            for answer in explanation.unanswered
        ],
        "not_asked": [asdict(queries) for queries in explanation.not_asked],
        "unrecorded": [place or CLUSTER_NAME for place in explanation.unrecorded],
        "stateless": list(explanation.stateless),
        "expected": asdict(explanation.expectation),
        "finding": finding_json(lab, explanation.finding) if explanation.finding else None,
        "further": [finding_json(lab, finding) for finding in explanation.explained.findings[1:]],
        "where": explanation.bracket.sentence if explanation.bracket else "",
        "marginal": [finding_json(lab, difference) for difference in explanation.marginal],
        "kernel": list(explanation.bracket.dropped()) if explanation.bracket else [],
        "witnesses": list(explanation.witnesses),
        "elsewhere": [finding_json(lab, difference) for difference in explanation.elsewhere],
        "logs": [
            {
                "log": entry.path,
                "line": entry.match.line,
                "number": entry.match.number + 1,
                "times": entry.match.times,
                "signature": entry.match.id,
                "cause": entry.match.cause,
                "cure": entry.match.hint,
                "source": entry.match.source,
            }
            for entry in explanation.logged
        ],
        "backend": path.backend,
        "end": path.end,
        "path": [
            {
                "way": "there" if number < len(path.request) else "back",
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


def finding_json(lab: str, finding: Difference) -> dict[str, Any]:
    """One finding; ``show`` and ``mend`` are commands."""
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
        "mend": finding.fixed_by(lab),
    }


MOST_WHERE = 5
"""Sentences listed for one cause; the cells that they do not cover are counted."""
MOST_PLACED = 20
"""Causes, those with most cells first, for which common properties are computed."""

GroupCells = Callable[[Sequence[CellResult], Sequence[int]], Findings]
"""Groups the marked cells of a population, given by their indexes."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Red cells with the same first fault on their paths, or with no fault found."""

    line: str
    """``on worker2, tunnel flannel.4096: VNI 4097; it should be: VNI 4096 (wrong-vni)``, or the
    rule of unexpected passes; empty if no cause was found."""
    cells: tuple[CellResult, ...]
    """In the run's order."""
    groups: tuple[Group, ...]
    """Groups with something in common, the largest first."""
    singles: tuple[CellResult, ...]
    """The cells that are in no group."""

    @property
    def sentence(self) -> str:
        """The line and its number of cells."""
        return self.cells[0].cause_of(len(self.cells))

    @property
    def example(self) -> CellResult:
        """One of the cells."""
        return self.groups[0].example if self.groups else self.cells[0]

    @property
    def where(self) -> tuple[str, ...]:
        """What the cells have in common, as sentences; empty for a single cell."""
        shown = self.groups[:MOST_WHERE]
        sentences = [group.sentence for group in shown]
        placed = {result.cell.id for group in shown for result in group.cells}
        if shown and (rest := len(self.cells) - len(placed)):
            sentences.append(f"{quantity(rest, 'cell')} more")
        return tuple(sentences)


def red_causes(results: Sequence[CellResult], hosts: Hosts = NOWHERE) -> tuple[Cause, ...]:
    """The red cells of a run by cause; ``hosts`` maps machines to hypervisors."""
    red = [index for index, result in enumerate(results) if result.verdict in RED]
    return by_cause(results, red, lambda population, _: red_groups(population, hosts))


def in_common(results: Sequence[CellResult], hosts: Hosts = NOWHERE) -> str:
    """What all red cells of a run have in common, whatever their causes; empty if nothing."""
    patterns = red_groups(results, hosts)
    return "" if patterns.singles or len(patterns.groups) != 1 else patterns.groups[0].sentence


def by_cause(
    population: Sequence[CellResult], marked: Sequence[int], group_cells: GroupCells
) -> tuple[Cause, ...]:
    """The marked cells of a population by cause, most cells first, cells without a cause last.

    When the common properties of one cause's cells are determined, marked cells of other causes
    are left out.
    """
    lines = {index: _line(population[index]) for index in marked}
    counts = Counter(lines.values())
    order = sorted(counts, key=lambda line: (not line, -counts[line], line))
    return tuple(
        _cause(line, population, lines, group_cells if number < MOST_PLACED or not line else None)
        for number, line in enumerate(order)
    )


def _cause(
    line: str,
    population: Sequence[CellResult],
    lines: dict[int, str],
    group_cells: GroupCells | None,
) -> Cause:
    cells = tuple(population[index] for index, other in lines.items() if other == line)
    if group_cells is None:
        return Cause(line, cells, (), cells)
    kept = [index for index in range(len(population)) if lines.get(index, line) == line]
    marked = [number for number, index in enumerate(kept) if index in lines]
    patterns = group_cells([population[index] for index in kept], marked)
    return Cause(line, cells, patterns.groups, patterns.singles)


def _line(result: CellResult) -> str:
    return result.cause if result.finding or result.verdict == "unexpected-pass" else ""
