"""``lab capture``: the packets of one probe at every hop."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import click

from lab._log import say
from lab.cli.options import cell_options, json_option, lab_argument, output_option
from lab.cli.output import echo, echo_json, echo_part, say_disclaimer


class _Seconds(click.FloatRange):
    """A range of numbers that excludes "nan", which click's own range accepts."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert the value; fail like click for "nan"."""
        number = super().convert(value, param, ctx)
        assert isinstance(number, float)
        if math.isnan(number):
            self.fail(f"{value} is not a number of seconds.", param, ctx)
        return number


def _stream(ctx: click.Context, name: str, place: str, device: str) -> None:
    """Write the packets of a device to standard output until its reader closes the pipe."""
    from lab.lifecycle import api
    from lab.lifecycle.capture import stream_packets
    from lab.lifecycle.interruption import terminable

    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE
        if given and isinstance(param, click.Option) and param.name != "output":
            raise click.UsageError(f"'-o -' probes nothing, so leave '{param.opts[0]}' out", ctx)
    if sys.stdout.isatty():
        raise click.UsageError("packets are binary: '-o -' needs a pipe or a file", ctx)
    with terminable():
        stream_packets(api.open_any(name), place, device, echo_part, say)


@click.command("capture")
@lab_argument()
@cell_options
@click.option("--family", help="Family of the cell, if several families have one with these names.")
@click.option(
    "--times",
    type=click.IntRange(1, 1000),
    default=1,
    help="Probe at most this many times, until the outcome is not as expected (default: 1).",
)
@click.option(
    "--timeout",
    type=_Seconds(0.1, 30),
    default=2.0,
    help="Seconds to wait for an answer (default: 2).",
)
@output_option(
    "Directory for the files, new or empty (default: one beside the lab's runs); '-' streams."
)
@json_option("Print JSON, with every hop.")
@click.pass_context
def command(
    ctx: click.Context, /, name: str, output: Path | None, as_json: bool, **options: Any
) -> int:
    """Probe DST from SRC once, and show at which hop the packet was last seen.

    Packets are captured at every device on the way there and back: a pcapng file for each device,
    and one with all of them, for tshark and Wireshark. SRC and DST are any two endpoints,
    named as in the matrix; a single argument is the id of a cell:

    \b
      lab capture overlay worker1-p1 win1-p1
      lab capture overlay client worker1:to-win1-p1 --protocol udp
      lab capture overlay pod-pod/worker1-p1/win1-p1/tcp-large

    If several cells match, the first that is not as expected is shown. The probe's packets are
    commented in the files: tshark -r FILE -Y frame.comment

    The exit code is 0 if the outcome is as expected, else 1.

    With "-o -" nothing is probed: the arguments are a machine or pod and one of its devices, or
    none for all of them, and its packets are written to standard output as they come, until the
    reader closes the pipe or Ctrl-C:

    \b
      lab capture overlay worker1 eth0 -o - | wireshark -k -i -
      lab capture overlay win1-p1 -o - | tshark -i -
    """  # noqa: D301  \b tells click not to rewrap
    from lab.lifecycle import api
    from lab.lifecycle.capture import CaptureRequest, capture_cell, keep, made_empty
    from lab.lifecycle.interruption import terminable
    from lab.providers.provider import MACHINES
    from lab.reports.capture import to_json, to_text

    if output == Path("-"):
        _stream(ctx, name, options["source"], options["target"] or "")
        return 0
    with terminable(), made_empty(output):
        opened = api.open_any(name)
        say_disclaimer(opened)
        captured = capture_cell(opened, CaptureRequest(**options), say)
        directory = keep(opened, captured, output)
    if MACHINES in opened.provider.abilities:
        say("note: each machine has its own clock; compare times on one machine only")
    if as_json:
        echo_json(to_json(name, captured, directory), indent=1)
    else:
        echo(to_text(name, captured, directory), nl=False)
    return 0 if captured.well else 1
