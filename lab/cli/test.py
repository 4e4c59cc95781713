"""``lab test``: the connectivity matrix, through pytest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lab._errors import UsageError
from lab._log import say
from lab.cli.complete import cells
from lab.cli.options import json_option, lab_argument
from lab.cli.output import echo

if TYPE_CHECKING:
    import pytest

    from lab.lifecycle.session import OpenLab
    from lab.matrix.verdict import RunResult


STRATEGIES = ("full", "node-pairs", "os-pairs")
"""As :mod:`lab.matrix.sampling` has them, which is not imported for ``--help``."""

_KEPT_BYTES = 1 << 20
"""For the files of a run of no cells, and pytest's cache."""


class Keeper:
    """Gives the pytest plugin the lab that is open already, and takes the run over from it."""

    def __init__(self, opened: OpenLab) -> None:
        import pytest

        pytest.hookimpl(tryfirst=True)(Keeper.pytest_internalerror)
        self.opened = opened
        self.run: RunResult | None = None
        self.directory: Path | None = None
        self.stopped: BaseException | None = None
        self.usage = True
        """True if pytest has not got beyond reading its options."""

    def pytest_cmdline_main(self) -> None:
        """Take note that pytest has understood its options."""
        self.usage = False

    def pytest_lab_open(self) -> OpenLab:
        """Open no lab twice."""
        return self.opened

    def pytest_lab_recorded(self, run: RunResult, directory: Path) -> None:
        """Keep what was found and where it is stored."""
        self.run, self.directory = run, directory

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Keep what stopped pytest, which ends as if it were wrong usage."""
        if isinstance(excinfo.value, KeyboardInterrupt):
            self.stopped = excinfo.value

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Let what nobody has caught out of pytest, which would print its traceback and go on."""
        raise excinfo.value


@click.command("test", context_settings={"ignore_unknown_options": True})
@lab_argument()
@click.argument(
    "selection",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[PYTEST OPTIONS]...",
    shell_complete=cells,
)
@click.option("--full", is_flag=True, help="Probe every cell, however many there are.")
@click.option("--sample", type=click.Choice(STRATEGIES), help="Which cells to probe.")
@click.option("--seed", type=int, help="Another sample for each number (default: 0).")
@click.option(
    "--failover",
    is_flag=True,
    help="Then take the holder of a gateway off the network, and measure the outage.",
)
@click.option(
    "--repeat-with",
    default="",
    hidden=True,
    help="Command that repeats a cell, without the cell's id.",
)
@json_option("Print the whole result as JSON.")
@click.option("--verbose", is_flag=True, help="Let pytest report every cell itself.")
def command(
    name: str,
    selection: tuple[str, ...],
    full: bool,
    sample: str | None,
    seed: int | None,
    failover: bool,
    repeat_with: str,
    as_json: bool,
    verbose: bool,
) -> int:
    """Run the connectivity matrix of LAB, every cell a pytest item.

    pytest's own options choose cells and are passed on:

    \b
      lab test overlay -k "win1 and tcp"
      lab test overlay -m "nodeport and large"
      lab test overlay --lf

    Of more than 50,000 cells a sample is asked, the same every time. "--sample os-pairs" asks
    each kind of cell a few times; "--sample node-pairs", the usual one, asks in every family
    each node from each node, and every pod. Every cell is asked with "--full" or "--sample full".
    Reports say what was reached.

    "--failover" is for labs whose pods have a gateway on one of several machines (upstream-vrrp):
    after the cells its holder is taken off every network and put back, while pods go on asking;
    the report has how long they were without an answer, who took over, and whether every route
    followed. Other commands on the lab wait meanwhile; one that finds the lab as a killed test
    left it puts the machine back.

    Exit codes: 0 every cell is as expected; 1 cells failed; 2 wrong usage; 3 the lab is broken, or
    no cell was chosen; 4 this machine cannot do it; 70 a defect of lab itself.

    The same without this command:

    \b
      pytest --lab LAB --pyargs lab.suites --lab-sample STRATEGY
    """  # noqa: D301  click's own mark for text that is not to be rewrapped
    import pytest

    from lab._errors import UsageError
    from lab.lifecycle import api
    from lab.lifecycle.interruption import terminable
    from lab.state.capacity import check_room
    from lab.state.failure import NO_ROOM
    from lab.suites import plugin

    if any(word == "--lab" or word.startswith("--lab=") for word in selection):
        raise UsageError(
            f"testing lab '{name}'",
            "'--lab' is pytest's own option, and this command has named a lab already",
            "leave '--lab' out",
        )
    Path.cwd()  # pytest needs one that is there
    opened = api.open_any(name)
    say(opened.banner)
    directory = opened.handle.directory
    junit = directory / f"junit-{os.getpid()}.xml"  # another test may run beside this one
    own = _has_files(selection)
    keeper = Keeper(replace(opened, held_alone=failover, repeat_with=repeat_with))
    with terminable(), opened.used(f"lab test {name}", say, alone=failover):
        opened.require_running()
        check_room(directory, _KEPT_BYTES)
        try:
            code = pytest.main(
                [
                    *("-p", "hybridlab"),  # also where PYTEST_DISABLE_PLUGIN_AUTOLOAD is set
                    *("--lab", name, "--pyargs", "lab.suites"),
                    # rewriting the asserts of the product's own modules takes half a second, and
                    # pytest-benchmark makes a directory where it is called
                    *(() if own else ("--assert=plain", "-p", "no:benchmark")),
                    *_asking(full, sample, seed),
                    *(("--lab-failover",) if failover else ()),
                    "--noconftest",  # the suite has none; one that lies here is somebody else's
                    *("-c", str(Path(plugin.__file__).with_name("pytest.ini"))),
                    *("-o", f"cache_dir={directory / 'pytest-cache'}"),
                    f"--junitxml={junit}",
                    *(() if verbose or own or _lists(selection) else ("--lab-quiet",)),
                    *selection,
                ],
                plugins=[keeper],
            )
        except OSError as error:
            if error.errno in NO_ROOM:  # pytest's own files: which disk it was, it is not set
                check_room(directory, _KEPT_BYTES)
            raise
        finally:
            junit.unlink(missing_ok=True)
    if keeper.stopped is not None:
        raise keeper.stopped
    if keeper.run is not None and keeper.directory is not None:
        with suppress(BrokenPipeError):  # who has read enough changes no verdict
            _show(keeper.run, keeper.directory, as_json)
    return UsageError.exit_code if keeper.usage else int(code)


def _asking(full: bool, sample: str | None, seed: int | None) -> Iterator[str]:
    """The options of the plugin that choose a sample."""
    if full and sample not in {None, "full"}:
        raise UsageError(
            f"choosing cells by '--full' and by '--sample {sample}'",
            "they contradict each other",
            "leave one of them out",
        )
    if full or sample:
        yield f"--lab-sample={sample or 'full'}"
    if seed is not None:
        yield f"--lab-seed={seed}"


def _has_files(selection: tuple[str, ...]) -> bool:
    """Check whether pytest is given test files of the user's beside the matrix."""
    return any(os.path.exists(word.partition("::")[0]) for word in selection)  # noqa: PTH110  of any length


def _lists(selection: tuple[str, ...]) -> bool:
    """Check whether pytest is asked for its own words, and not for a run."""
    return any(word.startswith("--co") or word == "--fixtures" for word in selection)


def _show(run: RunResult, directory: Path, as_json: bool) -> None:
    if as_json:
        from lab.reports.result import expanded_text

        stored = (directory / "result.json").read_text(encoding="utf-8")
        echo(expanded_text(stored), nl=False)
        return
    from lab.reports.terminal import show, summarise

    show(summarise(run, str(directory / "report.html")))
