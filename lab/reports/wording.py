"""The wording of verdicts, expectations and outcomes in all reports."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from lab._log import quantity
from lab.matrix.cell import Cell
from lab.matrix.failover import Failover
from lab.matrix.judge import format_rate
from lab.matrix.refusal_words import refusal_words
from lab.matrix.verdict import RED, VERDICTS, CellResult, RunResult, Verdict
from lab.providers.provider import Outcome

_NAMED = 5
_WORDS: dict[Verdict, tuple[str, str]] = {
    "pass": ("pass", "pass"),
    "known-limit": ("known limit", "known limits"),
    "fail": ("fail", "fail"),
    "flaky": ("flaky", "flaky"),
    "unexpected-pass": ("unexpected pass", "unexpected passes"),
    "probe-error": ("probe error", "probe errors"),
}
"""Singular and plural."""


def verdict_words(verdict: Verdict, count: int = 2) -> str:
    """``known limits``, or ``known limit`` for a count of one."""
    return _WORDS[verdict][count != 1]


def count_verdicts(run: RunResult) -> tuple[tuple[Verdict, int], ...]:
    """How many cells have each verdict that occurs, in the fixed order of verdicts."""
    numbers = dict.fromkeys(VERDICTS, 0)
    for result in run.results:
        numbers[result.verdict] += 1
    return tuple((verdict, count) for verdict, count in numbers.items() if count)


def count_cells(run: RunResult) -> str:
    """``2,412 cells``; for a sample, ``57,123 of 36,134,400 cells``."""
    return run.coverage.share if run.coverage else quantity(len(run.results), "cell")


def describe_sample(run: RunResult) -> str:
    """What the sample covers; empty if all cells were probed."""
    return run.coverage.sentence if run.coverage else ""


def closing_line(run: RunResult) -> str:
    """``2,412 cells: 2,380 pass, 32 known limits; 1.9 s``."""
    cells = f"{count_cells(run)}; interrupted" if run.interrupted else count_cells(run)
    return f"{cells}: {verdict_line(run)}; {run.seconds:.1f} s"


def verdict_line(run: RunResult) -> str:
    """``2,380 pass, 32 known limits; 2 of 2 assertions passed``."""
    parts = tally(dict(count_verdicts(run)))
    checks = "".join(f"; {words}" for words in _checks(run))
    if run.failover:
        checks += f"; failover {_describe_failover(run.failover)}"
    return f"{parts or 'nothing judged'}{checks}"


def tally(counts: Mapping[str, int]) -> str:
    """``2,380 pass, 32 known limits``: how many cells have each verdict that occurs."""
    numbers = ((verdict, counts.get(verdict, 0)) for verdict in VERDICTS)
    return ", ".join(
        f"{count:,} {verdict_words(verdict, count)}" for verdict, count in numbers if count
    )


def _describe_failover(failover: Failover) -> str:
    return f"in {failover.away.longest:.1f} s" if failover.well else "failed"


def failover_lines(failover: Failover) -> Iterator[str]:
    """Who held the gateways, and how long probes got no answer, as lines."""
    if failover.trouble:
        yield f"not as expected: {failover.trouble}"
    for node, before in failover.before.items():
        then, now = failover.away.holders.get(node), failover.back.holders.get(node)
        yield (
            f"gateway of {node}: held by {before or 'no machine'}, then by {then or 'no machine'}, "
            f"and by {now or 'no machine'} once {failover.lost} was back"
        )
    for words, turn in (
        (f"{failover.lost} lost", failover.away),
        (f"{failover.lost} back", failover.back),
    ):
        for outward in (True, False):
            longest = failover.silence(turn, outward=outward)
            if longest:
                yield (
                    f"{words}: {longest.seconds:.2f} s without an answer, "
                    f"from {longest.source} to {longest.target}"
                )


def failover_words(failover: Failover) -> str:
    """The failover in one sentence."""
    if failover.trouble:
        return f"Not as expected: {failover.trouble}."
    return (
        f"{failover.lost} was lost, and pods got no answer for {failover.away.longest:.2f} s "
        f"at most; {failover.back.longest:.2f} s when it came back."
    )


def _checks(run: RunResult) -> Iterator[str]:
    """How many workload checks and assertions have passed, if any were made."""
    for noun, checks in (("workload check", run.workloads), ("assertion", run.assertions)):
        verdicts = Counter(check.verdict for check in checks)
        made = len(checks) - verdicts["known-limit"]
        if made:
            yield f"{verdicts['pass']:,} of {quantity(made, noun)} passed"
        if skipped := verdicts["known-limit"]:
            yield f"{quantity(skipped, noun)} not made on emulated nodes"


def headline(run: RunResult) -> str:
    """The outcome of the run in one sentence."""
    unmet = any(check.verdict in RED for check in run.workloads) or any(
        assertion.verdict in RED for assertion in run.assertions
    )
    checks = " and ".join(_checks(run))
    if not run.results:
        return f"{checks}." if checks else "There were no cells to judge."
    red = sum(1 for result in run.results if result.verdict in RED)
    limits = run.count("known-limit")
    if not red and not run.green():
        if run.failover and not run.failover.well:
            return f"The network is as expected, but its failover is not: {run.failover.trouble}."
        return f"The network is as expected, but only {checks}."
    if red:
        verb = "is" if red == 1 else "are"
        cells = f"{red:,} of {quantity(len(run.results), 'cell')} {verb} not as expected"
        return f"{cells}, and only {checks}." if unmet else f"{cells}."
    if limits:
        return f"Everything is as expected, {quantity(limits, 'known limit')} included."
    return "Everything works, and nothing else was expected."


def emulation(run: RunResult) -> str:
    """The emulated nodes, at most the first five; empty if there are none."""
    names = run.emulated_nodes
    if not names:
        return ""
    if len(names) <= _NAMED + 1:
        return f"emulated: {', '.join(names)}"
    return f"emulated: {', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"


def path_words(cell: Cell) -> str:
    """``worker1-p1 to win1-p1, TCP small``."""
    sent = "stream" if cell.family == "throughput" else cell.size
    return f"{cell.source.name} to {cell.target.name}, {cell.protocol.upper()} {sent}"


def explain_command(lab: str, cell: Cell) -> str:
    """The command that explains the cell: ``lab explain overlay worker1-p1 win1-p1 ...``."""
    ends = shlex.join((cell.source.name, cell.target.name))
    return f"lab explain {lab} {ends} --protocol {cell.protocol} --size {cell.size}"


def fix_command(lab: str, result: CellResult) -> str:
    """What lets a pod run that a cell needs: the command, or a sentence; empty for others."""
    if result.verdict != "probe-error" or result.finding is None:
        return ""
    return result.finding.fixed_by(lab)


def expected(result: CellResult) -> str:
    """The expected outcome of the cell."""
    cell, expectation = result.cell, result.expectation
    if not expectation.works:
        return f"{refusal_words(expectation.refusal).noun} (rule {expectation.rule})"
    if cell.answer is not None:
        return f"the answer {cell.answer}"
    if cell.sticky:
        return f"answers from one of {', '.join(cell.backends)}"
    if len(cell.backends) > 1:
        return f"an answer from each of {', '.join(cell.backends)}"
    seeing = f", which sees the source {' or '.join(sorted(cell.sources))}" if cell.sources else ""
    floor = f", {format_rate(cell.min_throughput)} or more" if cell.min_throughput else ""
    return f"an answer from {', '.join(cell.backends) or cell.target.name}{seeing}{floor}"


def actual(result: CellResult) -> str:
    """The outcome of the cell, for each attempt."""
    if not result.attempts:
        return "not probed"
    return "; then ".join(_describe_outcome(outcome) for outcome in result.attempts)


def latency_ms(result: CellResult) -> float | None:
    """Milliseconds of the last attempt that was answered; None if none was."""
    for outcome in reversed(result.attempts):
        if outcome.status == "ok":
            return outcome.latency_ms
    return None


def throughput_of(result: CellResult) -> float | None:
    """Bits a second of the last attempt that measured them; None when none did."""
    measured = (attempt.throughput for attempt in reversed(result.attempts))
    return next((throughput for throughput in measured if throughput is not None), None)


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of sorted, non-empty ``values``; ``share`` is from 0 to 1."""
    rank = -int(-share * len(values) // 1)
    return values[max(0, min(len(values), rank) - 1)]


def milliseconds(value: float) -> str:
    """``0.42 ms``, ``12 ms``: two decimals below 10 ms."""
    return f"{value:.2f} ms" if value < 10 else f"{value:,.0f} ms"  # noqa: PLR2004 - see docstring


def _describe_outcome(outcome: Outcome) -> str:
    if outcome.status != "ok":
        return outcome.detail or outcome.status
    if outcome.answer is not None:
        return f"the answer {outcome.answer}"
    words = f"an answer from {', '.join(outcome.backends) or 'an unnamed endpoint'}"
    words += f", which saw the source {outcome.source_seen}" if outcome.source_seen else ""
    return (
        f"{words}, {format_rate(outcome.throughput)}" if outcome.throughput is not None else words
    )


def in_full(started: str) -> str:
    """``21 November 2026, 10:15:00 UTC``; the text itself if it is not ISO 8601."""
    try:
        moment = datetime.fromisoformat(started)
    except ValueError:
        return started
    return f"{moment.day} {moment:%B %Y, %H:%M:%S} UTC"
