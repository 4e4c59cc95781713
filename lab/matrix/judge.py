"""The expectation of a cell, and the verdict on its attempts, with the reason in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from lab.matrix.cell import Cell, Expectation
from lab.matrix.cells import family_of, unreachable
from lab.matrix.refusal_words import REFUSAL_WORDS, refusal_words
from lab.matrix.verdict import GREEN, Verdict
from lab.providers.provider import Outcome
from lab.scenario.scenario import Limit, Match


def expect(cell: Cell, limits: Sequence[Limit]) -> Expectation:
    """The expectation by the first limit that matches the cell; else what Kubernetes specifies.

    Of two endpoints that are in no family together, by the Intent.
    """
    for limit in limits:
        if applies_to(limit.when, cell):
            return Expectation.of_limit(limit)
    if cell.unreachable:
        return unreachable(cell.unreachable)
    family = family_of(cell)
    return family.works if cell.refusal is None else family.promised[cell.refusal]


def applies_to(match: Match, cell: Cell) -> bool:
    """Whether the match selects the cell: every field that it has applies.

    ``source`` is compared with the names of the source and of its node; ``target`` with the names
    of the target, of its node, and of its backends.
    """
    return (
        (match.families is None or cell.family in match.families)
        and (match.source_kind is None or match.source_kind == cell.source.kind)
        and (match.source_os is None or match.source_os == cell.source.os)
        and (match.target_kind is None or match.target_kind == cell.target.kind)
        and (match.target_os is None or match.target_os == cell.target.os)
        and (match.relation is None or match.relation == cell.relation)
        and (match.protocol is None or match.protocol == cell.protocol)
        and (match.size is None or match.size == cell.size)
        and (match.name_form is None or match.name_form == cell.name_form)
        and (match.refusal is None or match.refusal == cell.refusal)
        and (match.entry is None or match.entry == _entry(cell))
        and (match.entry_os is None or match.entry_os == cell.entry_os)
        and (match.entry_node is None or _matches_name(match.entry_node, (cell.entry,)))
        and (
            match.source is None
            or _matches_name(match.source, (cell.source.name, cell.source.node))
        )
        and (
            match.target is None
            or _matches_name(match.target, (cell.target.name, cell.target.node, *cell.backends))
        )
    )


def _entry(cell: Cell) -> str | None:
    if cell.entry is None:
        return None
    return "own" if cell.entry == cell.source.node else "other"


def _matches_name(pattern: str, names: Iterable[str | None]) -> bool:
    return any(name is not None and fnmatchcase(name, pattern) for name in names)


SHARED_TRIES = 64
"""Connections within which every backend of a shared Service must answer."""

STICKY_TRIES = 16
"""Connections of one client that must all reach the same backend; with two backends chosen at
random, 32,767 of 32,768 runs see both."""

_UNREACHED = frozenset({"timeout", "refused", "no-route"})
_HAPPENED = {
    **{refusal: words.past for refusal, words in REFUSAL_WORDS.items()},
    "wrong": "went wrong",
}
"""What a probe did, by the status of its outcome."""


_RATES = ((1e9, "Gbit"), (1e6, "Mbit"), (1e3, "kbit"))


class Judgement(NamedTuple):
    """A verdict, and the reason in one clause; empty for a pass."""

    verdict: Verdict
    detail: str


_PASS = Judgement("pass", "")


def judge(cell: Cell, expectation: Expectation, attempts: tuple[Outcome, ...]) -> Judgement:
    """Judge one attempt, or two if the first failed.

    The first attempt counts unless it failed. After a failure, the second decides between
    ``flaky`` (it was as expected), ``unexpected-pass`` (it worked but should not) and ``fail``; a
    second attempt that could not be made changes nothing.
    """
    first = _judge_one(cell, expectation, attempts[0])
    if first.verdict != "fail" or len(attempts) == 1:
        return first
    second = _judge_one(cell, expectation, attempts[-1])
    if second.verdict in GREEN:
        return Judgement("flaky", f"{first.detail}; the second attempt was as expected")
    if second.verdict == "probe-error":
        return Judgement("fail", f"{first.detail}; second attempt: {second.detail}")
    if second.verdict == "fail" and attempts[0].status != attempts[-1].status:
        happened = _HAPPENED.get(attempts[0].status, "was answered, but not as expected")
        return Judgement("fail", f"{second.detail}; the first attempt {happened}")
    return second


def _judge_one(cell: Cell, expectation: Expectation, outcome: Outcome) -> Judgement:
    if outcome.status == "error":
        return Judgement("probe-error", f"the probe could not be sent: {outcome.detail}")
    if not expectation.works:
        judged = _judge_refusal(cell, expectation, outcome)
        return _judge_promise(judged) if expectation.promised else judged
    if outcome.status != "ok":
        happened = f"expected to work, but {_HAPPENED[outcome.status]}"
        return Judgement("fail", _join_detail(happened, outcome.detail))
    amiss = _describe_deviation(cell, outcome)
    return Judgement("fail", amiss) if amiss else _PASS


def _judge_promise(judged: Judgement) -> Judgement:
    """The verdict where Kubernetes itself specifies the refusal: pass or fail."""
    if judged.verdict == "known-limit":
        return _PASS
    return Judgement("fail", judged.detail)


def _is_refusal(expectation: Expectation, outcome: Outcome) -> bool:
    if expectation.refusal is None:
        return outcome.status in _UNREACHED
    if expectation.refusal == "several-backends":
        return outcome.status == "ok" and len(outcome.backends) > 1
    return outcome.status == expectation.refusal


def _judge_refusal(cell: Cell, expectation: Expectation, outcome: Outcome) -> Judgement:
    expected = refusal_words(expectation.refusal).infinitive
    if _is_refusal(expectation, outcome):
        return Judgement("known-limit", expectation.reason)
    if outcome.status == cell.refusal:
        happened = f"it {_HAPPENED[outcome.status]}, as Kubernetes specifies"
        return Judgement(
            "unexpected-pass", f"expected {expected} ({expectation.rule}), but {happened}"
        )
    if outcome.status == "ok":
        amiss = "" if cell.unreachable else _describe_deviation(cell, outcome)
        happened = f"expected {expected} ({expectation.rule}), but it works"
        return Judgement("unexpected-pass", f"{happened}, though {amiss}" if amiss else happened)
    happened = f"expected {expected}, but {_HAPPENED[outcome.status]}"
    return Judgement("fail", _join_detail(happened, outcome.detail))


def _join_detail(happened: str, detail: str) -> str:
    return f"{happened}: {detail}" if detail else happened


def _describe_deviation(cell: Cell, outcome: Outcome) -> str:
    if cell.answer is not None:
        return "" if outcome.answer == cell.answer else _wrong_answer(cell, outcome)
    if cell.refusal is not None:
        return f"{_any_of(outcome.backends)} answered" if outcome.backends else ""
    if cell.sticky and len(outcome.backends) == 1 and outcome.backends[0] in cell.backends:
        pass
    elif outcome.backends != cell.backends:
        amiss = _wrong_backends(cell, outcome)
        if amiss:
            return amiss
    if cell.min_throughput and (outcome.throughput or 0) < cell.min_throughput:
        return (
            f"the stream carried {format_rate(outcome.throughput or 0)}, not "
            f"{format_rate(cell.min_throughput)} or more"
        )
    sources = (outcome.source_seen, *outcome.other_sources)
    strange = [source for source in sources if source not in cell.sources]
    if cell.sources and strange:
        allowed = _any_of(sorted(cell.sources))
        return f"the backend saw {_shown(strange[0])} as the source, not {allowed}"
    return ""


def format_rate(bits: float) -> str:
    """``940 Mbit/s``, ``1.2 Gbit/s``: a rate of so many bits a second, in the units of networks."""
    unit, name = next(((size, name) for size, name in _RATES if bits >= size), _RATES[-1])
    amount = bits / unit
    return f"{amount:.1f} {name}/s" if amount < 10 else f"{amount:,.0f} {name}/s"  # noqa: PLR2004  two digits where they matter


def _wrong_answer(cell: Cell, outcome: Outcome) -> str:
    if cell.name_form is None:
        reported = "nothing" if outcome.answer is None else outcome.answer
        return f"'{cell.entry}' reports {reported} local backends, not {cell.answer}"
    return f"'{cell.target.name}' resolved to {_shown(outcome.answer)}, not '{cell.answer}'"


def _wrong_backends(cell: Cell, outcome: Outcome) -> str:
    strangers = [name for name in outcome.backends if name not in cell.backends]
    if strangers:
        return f"{_any_of(strangers)} answered, not {_any_of(cell.backends)}"
    if cell.sticky and outcome.backends:
        return f"{_any_of(outcome.backends, ' and ')} answered one client in {STICKY_TRIES} tries"
    missing = [name for name in cell.backends if name not in outcome.backends]
    if missing and len(cell.backends) > 1:
        noun = "backend" if len(missing) == 1 else "backends"
        return (
            f"{noun} {_any_of(missing, ' and ')} of {len(cell.backends)} never answered "
            f"within {SHARED_TRIES} tries"
        )
    return f"something answered without a name, not {_any_of(missing)}" if missing else ""


def _shown(value: str | None) -> str:
    return "nothing" if value is None else f"'{value}'"


def _any_of(names: tuple[str, ...] | list[str], last: str = " or ") -> str:
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else ", ".join(quoted[:-1]) + last + quoted[-1]
