"""``lab test``: the connectivity matrix, through pytest."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lab._errors import UsageError
from lab._log import listed, quantity, say
from lab.cli.complete import selections
from lab.cli.options import json_option, lab_argument
from lab.cli.output import echo

if TYPE_CHECKING:
    import pytest

    from lab.lifecycle.open_lab import OpenLab
    from lab.matrix.verdict import RunResult


STRATEGIES = ("full", "node-pairs", "os-pairs")
"""The strategies of :mod:`lab.matrix.sampling`, which is not imported for ``--help``."""

_KEPT_BYTES = 1 << 20
"""Bytes for the files of a run without cells, and pytest's cache."""


class RunPlugin:
    """Gives the pytest plugin the open lab, and keeps the run that it records."""

    def __init__(self, opened: OpenLab) -> None:
        import pytest

        pytest.hookimpl(tryfirst=True)(RunPlugin.pytest_internalerror)
        pytest.hookimpl(wrapper=True)(RunPlugin.pytest_cmdline_parse)
        pytest.hookimpl(wrapper=True, tryfirst=True)(RunPlugin.pytest_cmdline_main)
        self.opened = opened
        self.run: RunResult | None = None
        self.directory: Path | None = None
        self.stopped: BaseException | None = None
        self.own: dict[str, str] = {}
        """The worst outcome of each test that is not of the matrix, by file and name."""

    def pytest_cmdline_parse(self) -> Generator[None, object, object]:
        """Raise a wrong option of pytest as a UsageError."""
        return (yield from self._usage_as_ours())

    def pytest_cmdline_main(self) -> Generator[None, object, object]:
        """Raise what pytest refuses later as a UsageError, too."""
        return (yield from self._usage_as_ours())

    def _usage_as_ours(self) -> Generator[None, object, object]:
        import pytest

        try:
            return (yield)
        except pytest.UsageError as error:
            raise UsageError(
                f"testing lab '{self.opened.name}'",
                f"pytest: {_strip_usage(str(error))}",
                "lab test --help, or pytest --help for pytest's own options",
            ) from error

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the user's own tests."""
        if not report.nodeid.startswith(f"{self.opened.name}::"):
            file, _, name = report.location
            test = f"{Path(file).name}::{name}"
            before = self.own.get(test, "passed")
            self.own[test] = report.outcome if before == "passed" else before

    def pytest_lab_open(self) -> OpenLab:
        """Return the open lab, so that it is not opened twice."""
        return self.opened

    def pytest_lab_recorded(self, run: RunResult, directory: Path | None) -> None:
        """Keep the run and its directory."""
        self.run, self.directory = run, directory

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Keep the interrupt: pytest would exit with 2, the code of wrong usage."""
        if isinstance(excinfo.value, KeyboardInterrupt):
            self.stopped = excinfo.value

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Re-raise an uncaught exception; pytest would print its traceback and continue."""
        raise excinfo.value


def _sample_options(command: Callable[..., object]) -> Callable[..., object]:
    """Give a command --full, --sample and --seed; its function gets the plugin's as ``sample``."""

    @wraps(command)
    def sampled(*, full: bool, sample: str | None, seed: int | None, **others: object) -> object:
        return command(sample=(*_options_of_choice(full, sample, seed),), **others)

    options = (
        click.option("--full", is_flag=True, help="Probe every cell, however many there are."),
        click.option("--sample", type=click.Choice(STRATEGIES), help="Which cells to probe."),
        click.option("--seed", type=int, help="Another sample for each number (default: 0)."),
    )
    decorated: Callable[..., object] = sampled
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


@click.command("test", context_settings={"ignore_unknown_options": True})
@lab_argument(required=False)
@click.argument(
    "selection",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[PYTEST OPTIONS]...",
    shell_complete=selections,
)
@_sample_options
@click.option(
    "--failover",
    is_flag=True,
    help="Afterwards, take the holder of a gateway off the network, and measure the outage.",
)
@click.option(
    "--repeat-with",
    default="",
    hidden=True,
    help="Command that repeats a cell, without the cell's id; the lab is taken down afterwards.",
)
@json_option("Print the whole result as JSON.")
@click.option("--verbose", is_flag=True, help="Let pytest report every cell itself.")
def command(
    name: str | None,
    selection: tuple[str, ...],
    sample: tuple[str, ...],
    failover: bool,
    repeat_with: str,
    as_json: bool,
    verbose: bool,
) -> int:
    """Run the connectivity matrix of LAB; every cell is a pytest item.

    LAB may be left out if there is only one. pytest's own options are passed on and choose cells:

    \b
      lab test overlay -k "win1 and tcp"
      lab test overlay -m "nodeport and large"
      lab test overlay --lf
      lab test overlay --collect-only -q   # list the cells, and probe none

    If there are more than 50,000 cells, a sample is probed, the same every time. "--sample
    node-pairs", the default, probes every pair of nodes in every family, and every pod; "--sample
    os-pairs" probes each kind of cell a few times. "--full" or "--sample full" probes every cell.
    Reports say what was covered.

    "--failover" is for labs in which one of several machines holds the pods' gateway
    (upstream-vrrp): after the cells, the holder is taken off every network and put back while pods
    keep probing; the report says how long they got no answer, which machine took over, and whether
    every route followed. Other commands on the lab wait meanwhile; if the test is killed, the next
    command puts the machine back.

    Exit codes: 0 every cell is as expected; 1 cells failed; 2 wrong usage; 3 the lab is broken, or
    no cell was chosen; 4 this machine cannot do it; 70 a bug in lab itself.

    The same without this command:

    \b
      pytest --lab overlay --pyargs lab.suites --lab-sample os-pairs
    """  # noqa: D301  \b tells click not to rewrap
    from lab.lifecycle import api
    from lab.lifecycle.interruption import terminable
    from lab.state.failure import guarded_files

    if name is None or name.startswith("-"):  # an option of pytest
        selection = (*((name,) if name else ()), *selection)
        name = api.only_lab("testing the only lab")
    if any(word == "--lab" or word.startswith("--lab=") for word in selection):
        raise UsageError(
            f"testing lab '{name}'",
            "'--lab' is pytest's own option, and this command has named a lab already",
            "leave '--lab' out",
        )
    Path.cwd()  # pytest needs a current directory that exists, and a temporary one
    with guarded_files(f"testing lab '{name}'", "or set TMPDIR to a directory of yours"):
        tempfile.gettempdir()
    opened = api.open_any(name)
    run_plugin = RunPlugin(replace(opened, held_alone=failover, repeat_with=repeat_with))
    quiet = not (verbose or _find_files(selection) or _only_lists(selection))
    options = [*sample, *(("--lab-quiet",) if quiet else ()), *selection]
    with terminable(), opened.in_use(f"lab test {name}", say, alone=failover):
        opened.require_running()
        if edited := opened.edited_file:
            say(
                f"note: '{edited}' has changed since the lab was brought up; the lab is tested as "
                f"it was then, and '{opened.again}' brings it up to date"
            )
        # pytest's own words are no part of a result
        with redirect_stdout(sys.stderr) if as_json else nullcontext():
            code = _run_pytest(run_plugin, options)
    if run_plugin.stopped is not None:
        raise run_plugin.stopped
    if run_plugin.run is not None:
        _show(run_plugin.run, run_plugin.directory, as_json)
    if failed := [test for test, outcome in run_plugin.own.items() if outcome == "failed"]:
        own_tests = quantity(len(run_plugin.own), "own test")
        line = f"{len(failed):,} of {own_tests} failed: {listed(failed)}"
        (say if as_json else echo)(line)
    return code


def _run_pytest(run_plugin: RunPlugin, options: list[str]) -> int:
    """Run pytest on the lab with these options besides those that every run has; its exit code."""
    import pytest

    from lab.state.capacity import check_room
    from lab.state.failure import NO_ROOM
    from lab.suites import plugin

    opened = run_plugin.opened
    directory = opened.handle.directory
    junit = directory / f"junit-{os.getpid()}.xml"  # another test may run beside this one
    # without a root, names of own tests are relative to the directory of the suite
    roots = [file if file.is_dir() else file.parent for file in _find_files(options)]
    arguments = [
        *("-p", "hybridlab"),  # also if PYTEST_DISABLE_PLUGIN_AUTOLOAD is set
        *("--lab", opened.name, "--pyargs", "lab.suites"),
        # rewriting the asserts of this package takes half a second, and
        # pytest-benchmark creates a directory in the current one
        *(
            ("--rootdir", os.path.commonpath(roots))
            if roots
            else ("--assert=plain", "-p", "no:benchmark")
        ),
        *(("--lab-failover",) if opened.held_alone else ()),
        "--noconftest",  # the suite has none; one in this directory is unrelated
        *("-c", str(Path(plugin.__file__).with_name("pytest.ini"))),
        *("-o", f"cache_dir={directory / 'pytest-cache'}"),
        f"--junitxml={junit}",
        *options,
    ]
    check_room(directory, _KEPT_BYTES)
    try:
        return int(pytest.main(arguments, plugins=[run_plugin]))
    except OSError as error:
        if error.errno in NO_ROOM:  # pytest's own files: the error does not say which disk
            check_room(directory, _KEPT_BYTES)
        raise
    finally:
        junit.unlink(missing_ok=True)


def _strip_usage(text: str) -> str:
    """What is wrong, from a message of argparse, which begins with the usage."""
    return text.rpartition(": error: ")[2].partition("\n")[0]


def _options_of_choice(full: bool, sample: str | None, seed: int | None) -> Iterator[str]:
    """Options of the plugin that choose a sample."""
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


def _find_files(selection: Sequence[str]) -> list[Path]:
    """The test files, and directories of them, that the user gives pytest besides the matrix."""
    paths = (word.partition("::")[0] for word in selection)
    return [Path(path).resolve() for path in paths if os.path.exists(path)]  # noqa: PTH110  of any length


def _only_lists(selection: tuple[str, ...]) -> bool:
    """Whether pytest is asked to list tests or fixtures, not to run."""
    return any(word.startswith("--co") or word == "--fixtures" for word in selection)


def _show(run: RunResult, directory: Path | None, as_json: bool) -> None:
    """Print the run as JSON, or a summary; ``directory``: None if it could not be stored."""
    if not as_json:
        from lab.reports.terminal import show

        page = directory / "report.html" if directory else None
        show(run, str(page) if page and page.exists() else None)
    elif directory:
        from lab.reports.result import expanded_text
        from lab.state.files import read_regular

        stored = read_regular(directory / "result.json").decode()
        echo(expanded_text(stored), nl=False)
