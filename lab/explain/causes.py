"""The failures of a run, each with the first thing on its path that is not as intended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lab._errors import LabError
from lab.explain.explainer import Explainer
from lab.explain.question import Look
from lab.explain.scope import flow_of, of_failures
from lab.matrix.run import retry_order
from lab.matrix.verdict import GREEN, CellResult
from lab.topology.intent import Intent

MOST = 20_000
"""So many failures are walked, the most telling first; a thousand take about a second."""
_EACH = 3


def with_causes(
    results: Sequence[CellResult], intent: Intent, look: Look
) -> tuple[CellResult, ...]:
    """The results, those that failed with what is wrong on their paths where something is.

    One look at the machines that most failures pass serves them all; there is none where nothing
    failed. A lab that cannot be looked at leaves the results as they are.

    Parameters
    ----------
    results
        Of one run, the lab being as it was.
    intent
        The lab's, bound to what is known at run time only.
    look
        Looks at machines.

    """
    found = list(results)
    failed = [at for at, one in enumerate(found) if one.verdict not in {*GREEN, "probe-error"}]
    if not failed:
        return tuple(results)
    try:
        seen = look(of_failures(intent, [found[at].cell for at in failed]))
    except LabError:
        return tuple(results)
    explainer = Explainer(intent, seen)
    for at in retry_order(failed, [one.cell for one in found], _EACH)[:MOST]:
        works = found[at].expectation.works
        findings = explainer.explain(flow_of(found[at].cell), works=works).findings
        if findings:
            found[at] = replace(found[at], finding=findings[0])
    return tuple(found)
