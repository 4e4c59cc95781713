"""``lab readiness``: the points of Windows Operational Readiness (KEP-2578) of a run."""

from __future__ import annotations

import click

from lab.cli.complete import labs
from lab.cli.options import json_option
from lab.cli.output import echo, echo_json


@click.command("readiness")
@click.argument("run", metavar="RUN", shell_complete=labs)
@json_option("Print every point as JSON.")
def command(run: str, as_json: bool) -> int:
    """Print the points of Windows Operational Readiness (KEP-2578) that RUN answers.

    RUN is a run's id, a result.json or its directory, or a lab: its last run, or LAB~1 for the
    one before that. A point is "pass" or "fail" by the run's cells and workload checks, or "not
    run" with the reason: also if the run has no Windows node, or only emulated ones.

    \b
      lab check --context prod
      lab readiness hybrid

    Exit codes: 1 a point failed; 0 none did.
    """  # noqa: D301  \b tells click not to rewrap
    import os
    from collections import Counter

    from lab.lifecycle.runs import find_run
    from lab.state.directory import state_directory
    from lab.windows.readiness import judge_points

    judged = find_run(run, state_directory(os.environ))
    points = judge_points(judged)
    counts = Counter(point.verdict for point in points)
    if as_json:
        echo_json({"run": judged.run, "disclaimer": judged.disclaimer, "points": points})
    else:
        if judged.disclaimer:
            echo(judged.disclaimer)
        category = ""
        for point in points:
            if point.category != category:
                category = point.category
                echo(category)
            echo(f"  {point.verdict:8}{point.point.rstrip('.')}: {point.detail}")
        echo(
            f"{len(points)} points: {counts['pass']} pass, {counts['fail']} fail, "
            f"{counts['not run']} not run"
        )
    return int(counts["fail"] > 0)
