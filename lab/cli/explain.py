"""``lab explain``: why one cell does not do what it should."""

from __future__ import annotations

import sys
from typing import Any

import click

from lab._log import StatusLine, say
from lab.cli.options import cell_options, json_option, lab_argument
from lab.cli.output import echo, echo_json, say_disclaimer


@click.command("explain")
@lab_argument()
@cell_options
@json_option("Print JSON, with every hop of the path.")
@click.option("--commands", is_flag=True, help="Print the command of a fix however long it is.")
def command(name: str, as_json: bool, commands: bool, **named: Any) -> int:
    """Probe DST from SRC again, and name the first thing on the path that is wrong.

    SRC and DST are any two endpoints, named as in the matrix: a pod, a node, client, a Service
    (to-POD), a NodePort (NODE:to-POD), a DNS name as queried. A single argument is the id of a
    cell:

    \b
      lab explain overlay worker1-p1 win1-p1          # pod to pod
      lab explain overlay client worker1:to-win1-p1   # a NodePort, from outside
      lab explain overlay worker1 worker2             # a pair that no family has
      lab explain overlay worker1-p1 to-win1-p1 --protocol udp
      lab explain overlay pod-pod/worker1-p1/win1-p1/tcp-large

    The exit code is 0 if the outcome is as expected and nothing on the path is wrong, 1 if the
    outcome is not as expected or something is wrong, and 3 if nothing was found but some questions
    had no answer: the output lists what is not known, and why. Questions to the lab take five
    minutes at most.
    """  # noqa: D301  \b tells click not to rewrap
    from lab._errors import BrokenError
    from lab.lifecycle import api
    from lab.lifecycle.explain import ExplainQuestion, explain_cell
    from lab.reports.explanation import to_json, to_text

    opened = api.open_any(name)
    say_disclaimer(opened)
    line = StatusLine(sys.stderr)
    show = line.show if sys.stderr.isatty() else lambda _: None
    try:
        explanation = explain_cell(opened, ExplainQuestion(**named), say, show)
    finally:
        line.erase()
    if as_json:
        echo_json(to_json(name, explanation), indent=1)
    else:
        echo(to_text(name, explanation, commands=commands), nl=False)
    if explanation.has_problem:
        return 1
    return BrokenError.exit_code if explanation.unanswered else 0
