"""The plugin for an open lab: collect cells, probe before the first item, hand over the run.

A cell is judged before its item runs, so there is nothing to set up, capture or tear down. pytest's
own protocol would take a third of the time of a large matrix; this plugin creates the same reports
directly. If another plugin implements these hooks, the normal protocol is used.
"""

from __future__ import annotations

import gc
import os
import re
import stat
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from lab._errors import LabError, MatrixError, UsageError, stop_code
from lab._log import complain, quantity, say
from lab.matrix.failover import Failover
from lab.matrix.sampling import STRATEGIES, Choice, Strategy
from lab.matrix.verdict import GREEN
from lab.scenario.families import families_on_request
from lab.scenario.terms import Family
from lab.state.failure import file_failure
from lab.state.files import open_output
from lab.suites.connectivity import MARKERS, CellItem, CheckItem, JudgedItem, LabDirectory
from lab.suites.progress import ProgressBar, ProgressLines
from lab.suites.running_lab import RunningLab
from lab.suites.session import MatrixSession

_NEW_FILE = 0o666
"""Mode of a new file, less the umask."""
_CALLS = (
    "pytest_runtest_setup",
    "pytest_runtest_call",
    "pytest_runtest_teardown",
    "pytest_runtest_makereport",
    "pytest_exception_interact",
)
_OF_FUNCTIONS = {"_pytest", "_hypothesis_pytestplugin", "pytest_benchmark", "pytest_timeout"}
"""Modules of plugins that implement these hooks, but only for test functions."""
_STEPS = ("setuponly", "setupshow", "usepdb", "trace")
"""Options of pytest that show single calls or stop at them."""

Phase = Literal["setup", "call", "teardown"]


def is_watched(config: pytest.Config) -> bool:
    """Whether a plugin or an option needs the single calls of an item."""
    if any(config.getoption(name, False) for name in _STEPS):
        return True
    return any(
        hookimpl.function.__module__.partition(".")[0] not in _OF_FUNCTIONS
        for name in _CALLS
        for hookimpl in getattr(config.hook, name).get_hookimpls()
    )


def tell(item: JudgedItem) -> None:
    """Send the reports of the item's setup, call and teardown, as pytest's protocol would."""
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item):
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _reports(item: JudgedItem) -> Iterator[pytest.TestReport]:
    now = time.time()
    phase, outcome, message = item.outcome()
    seconds = item.seconds
    item.user_properties.extend(item.properties())
    keywords: dict[str, Literal[1]] = dict.fromkeys(item.keywords, 1)
    phases: tuple[Phase, ...] = (
        ("setup", "teardown") if phase == "setup" else ("setup", "call", "teardown")
    )
    for phase_of_report in phases:
        yield pytest.TestReport(
            item.nodeid,
            item.location,
            keywords,
            outcome if phase_of_report == phase else "passed",
            message if phase_of_report == phase else None,
            phase_of_report,
            start=now,
            stop=now,
            duration=seconds if phase_of_report == phase else 0,
            user_properties=item.user_properties,
        )


SUITE = Path(__file__).parent


class SessionPlugin:
    """The plugin of one pytest session with ``--lab``.

    If the session cannot continue, ``refused`` is the exit code, and nothing more is run.
    """

    def __init__(self, lab: RunningLab, choice: Choice = Choice()) -> None:  # noqa: B008  frozen
        self.session = MatrixSession(lab, choice)
        self.refused: int | None = None
        self._is_watched: bool | None = None
        """None until the first item runs: plugins may be registered until then."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Register the markers, add cells that failed before, and apply ``--lab-quiet``."""
        if again := failed_before(config):
            choice = self.session.choice
            families = (*choice.families, *_find_requested(" ".join(again)))
            named = (*choice.named, *again)
            self.session.choose(replace(choice, named=named, families=families))
        for name, meaning in MARKERS.items():
            config.addinivalue_line("markers", f"{name}: {meaning}")
        drawn = sys.stderr.isatty() and os.environ.get("TERM") not in {None, "", "dumb"}
        progress = ProgressBar(sys.stderr) if drawn else ProgressLines()
        config.pluginmanager.register(progress, "hybridlab-progress")
        if config.getoption("--lab-quiet"):
            config.pluginmanager.unregister(name="terminalreporter")

    def pytest_report_header(self) -> str:
        """The lab, its provider, and what is emulated."""
        return f"lab '{self.session.lab.name}': {self.session.lab.banner}"

    def pytest_collect_directory(
        self, path: Path, parent: pytest.Collector
    ) -> pytest.Collector | None:
        """Collect the package of the suite for the lab; leave other directories to pytest."""
        if path != SUITE:
            return None
        return LabDirectory.from_parent(parent, path=path, matrix_session=self.session)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Exit with the code of ``lab`` on a usage error of pytest."""
        try:
            return (yield)
        except pytest.UsageError as error:
            self._refuse(
                UsageError(
                    f"choosing tests of lab '{self.session.lab.name}'",
                    "; ".join(str(part) for part in error.args if part),
                    "'--collect-only -q' lists the cells",
                )
            )
            return None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Give own tests the properties ``file`` and ``line``: pytest's JUnit has neither."""
        for item in items:
            if not isinstance(item, JudgedItem):
                line = item.location[1]
                item.user_properties.append(("file", os.path.relpath(item.path)))
                item.user_properties += [] if line is None else [("line", str(line + 1))]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Probe all chosen cells at once, before the first item runs."""
        if self.refused is not None:
            return True
        if session.config.option.collectonly or session.testsfailed:
            return None
        chosen = [item.cell for item in session.items if isinstance(item, CellItem)]
        checks = [item.judged_id for item in session.items if isinstance(item, CheckItem)]
        if not chosen and not checks:
            return None
        hook = session.config.hook
        gc.freeze()  # cells and items live until the end: exclude them from garbage collection
        try:
            self.session.probe(
                chosen,
                partial(_tell_progress, hook),
                checks=checks,
                enough=session.config.getoption("maxfail"),
            )
            if session.config.getoption("--lab-failover") and not self.session.interrupted:
                self.session.fail_over()
        except LabError as error:
            self._refuse(error)
            return True
        finally:
            _tell_progress(hook, "", 0, 0)
        gc.freeze()
        left = quantity(len(chosen) - len(self.session.found), "cell")
        if self.session.interrupted is not None:
            say(f"interrupted: {left} not judged")
            session.items[:] = [item for item in session.items if self._is_judged(item)]
        elif len(chosen) > len(self.session.found):
            say(f"stopped at a red cell (-x): {left} not judged")
        self._tell_junit(session.config)
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Report a judged item directly, unless the single calls are needed."""
        if not isinstance(item, JudgedItem) or self._watched(item.config):
            return None
        tell(item)
        return True

    def _is_judged(self, item: pytest.Item) -> bool:
        return isinstance(item, JudgedItem) and item.is_judged

    def _watched(self, config: pytest.Config) -> bool:
        if self._is_watched is None:
            self._is_watched = is_watched(config)
        return self._is_watched

    def _tell_junit(self, config: pytest.Config) -> None:
        """Add the provider, coverage and causes as properties to JUnit."""
        run = self.session.run
        added = {} if run is None else {"provider": run.banner}
        if run is not None and run.provenance is not None:
            added |= {"made_by": run.provenance.tool, "made_on": run.provenance.surroundings}
        if run is not None and run.coverage is not None:
            added |= {"cells": run.coverage.share, "coverage": run.coverage.sentence}
        if run is not None:
            red = [result for result in run.results if result.verdict not in GREEN]
            examples = {result.cause: result for result in red}
            counts = Counter(result.cause for result in red)
            added |= {
                f"cause_{place}": examples[line].cause_of(count)
                for place, (line, count) in enumerate(counts.most_common(), 1)
            }
        if run is not None and run.interrupted:
            added |= {"interrupted": "before every cell was judged and explained"}
        if run is not None and run.failover is not None:
            added |= _failover_properties(run.failover)
        if xml := _junit_plugin(config):
            if run is not None and xml.suite_name == _PYTESTS_SUITE:
                xml.suite_name = f"hybridlab.{run.provider}.{run.scenario}"
            for name, value in added.items():
                xml.add_global_property(name, value or "every cell")

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Store the run, let pytest write its own files, and set the exit code of ``lab``.

        The run comes first: no verdict is lost if JUnit or pytest's cache cannot be written.
        """
        if self.session.run is not None:
            self._record(session.config)
        result = None
        try:
            with self._junit_in_memory(session.config):
                try:
                    result = yield
                except UnicodeError:  # text of an earlier, damaged cache; JUnit is complete
                    say("note: pytest's cache was damaged, so '--lf' does not know this run")
        except OSError as error:
            action = f"writing JUnit and pytest's cache for lab '{self.session.lab.name}'"
            self._refuse_kept(file_failure(action, error, elsewhere=""))
        except LabError as error:
            self._refuse_kept(error)
        self._set_exit_code(session)
        return result

    def _set_exit_code(self, session: pytest.Session) -> None:
        nothing = session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED
        if nothing and self.refused is None and self.session.run is None:
            self._refuse(
                MatrixError(
                    f"testing lab '{self.session.lab.name}'",
                    f"no cell was chosen of {len(self.session.cells):,}{self._sampled()}",
                    "a wider -k or -m; '--collect-only -q' lists the cells",
                )
            )
        if self.refused is not None:
            session.exitstatus = self.refused
        elif self.session.interrupted is not None:
            session.exitstatus = stop_code(self.session.interrupted)
        elif self._failover_failed() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _failover_failed(self) -> bool:
        failover = self.session.run.failover if self.session.run else None
        return failover is not None and not failover.well

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print where the run is stored."""
        if self.session.directory is not None:
            terminalreporter.write_line(f"run stored in {self.session.directory}")

    def _record(self, config: pytest.Config) -> None:
        run = self.session.run
        assert run is not None
        try:
            self.session.directory = self.session.lab.record(run, self.session.intent)
            self.session.lab.record_page(self.session.directory, run, self.session.intent)
        except LabError as error:
            self._refuse_kept(error)
        config.hook.pytest_lab_recorded(run=run, directory=self.session.directory)

    @contextmanager
    def _junit_in_memory(self, config: pytest.Config) -> Iterator[None]:
        """Let pytest write JUnit into memory; then write it to the run and the user's file.

        pytest itself would write to wherever another user's link leads.
        """
        xml = _junit_plugin(config)
        if xml is None:
            yield
            return
        wanted = xml.logfile
        with os.fdopen(os.memfd_create("junit"), "rb") as memory:
            xml.logfile = f"/proc/self/fd/{memory.fileno()}"
            try:
                yield
            finally:
                xml.logfile = wanted
            content = memory.read()
        if self.session.directory is not None:
            self.session.lab.record_junit(self.session.directory, content.decode())
        with open_output(Path(wanted), f"writing '{wanted}'") as file:
            file.write(content)
            if stat.S_ISREG(
                os.fstat(file.fileno()).st_mode
            ):  # a CI's next step may be another user
                os.fchmod(file.fileno(), _NEW_FILE & ~_umask())

    def _refuse_kept(self, error: LabError) -> None:
        """Refuse, and say where the run is if it is stored."""
        if self.session.directory is not None:
            stored = f"the run is stored in '{self.session.directory}'"
            error.hint = f"{error.hint}; {stored}" if error.hint else stored
        self._refuse(error)

    def _sampled(self) -> str:
        """A clause with the size of the whole matrix; empty if the cells are all of it."""
        size = self.session.matrix.size
        return "" if len(self.session.cells) == size else f", which are a sample of {size:,}"

    def _refuse(self, error: LabError) -> None:
        self.refused = error.exit_code
        complain(error)


def _tell_progress(hook: Any, stage: str, done: int, total: int) -> None:
    hook.pytest_lab_progress(stage=stage, done=done, total=total)


def _junit_plugin(config: pytest.Config) -> Any:
    """The plugin of pytest that writes JUnit; None if it is not asked for."""
    plugins = (plugin for _, plugin in config.pluginmanager.list_name_plugin())
    return next((plugin for plugin in plugins if hasattr(plugin, "add_global_property")), None)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _failover_properties(failover: Failover) -> dict[str, str]:
    return {
        "failover": failover.trouble or "well",
        "failover_lost": failover.lost,
        "failover_seconds": f"{failover.away.longest:.3f}",
        "failover_back_seconds": f"{failover.back.longest:.3f}",
    }


_PYTESTS_SUITE = "pytest"
"""pytest's name for the suite, unless ``junit_suite_name`` gives another."""
_ID = re.compile(r"[^\s()]+/[^\s()]+/[^\s()]+/[^\s()]+")
"""Matches cell ids in an expression for ``-k``."""


def choice_of(config: pytest.Config) -> Choice:
    """The choice of cells by ``--lab-sample``, ``--lab-seed`` and ``-k``.

    A cell whose id is in ``-k`` is added to any sample; families that are tested only on request,
    if ``-m``, ``-k`` or a node id names them.

    Raises UsageError if the strategy is unknown.
    """
    return Choice(
        strategy=_strategy(config.getoption("--lab-sample")),
        seed=config.getoption("--lab-seed"),
        named=tuple(_ID.findall(config.getoption("keyword") or "")),
        families=_find_requested(
            " ".join((config.option.markexpr, config.option.keyword, *config.args))
        ),
    )


def _find_requested(text: str) -> tuple[Family, ...]:
    """The families that are asked on request and stand in the text as a word."""
    return tuple(
        name for name in families_on_request() if re.search(rf"(?<![\w-]){name}(?![\w-])", text)
    )


def _strategy(written: str | None) -> Strategy | None:
    if written is None:
        return None
    for known in STRATEGIES:
        if written == known:
            return known
    raise UsageError(
        f"choosing cells by the strategy '{written}'",
        "there is no such strategy",
        f"one of {', '.join(STRATEGIES)}",
    )


def failed_before(config: pytest.Config) -> tuple[str, ...]:
    """Ids of the cells that failed when last probed, if ``--lf`` or ``--ff`` is given.

    Available from ``pytest_configure`` on.
    """
    wanted = any(getattr(config.option, name, False) for name in ("lf", "failedfirst"))
    cache = getattr(config, "cache", None)
    if not wanted or cache is None:
        return ()
    return tuple("/".join(node.split("::")[1:]) for node in cache.get("cache/lastfailed", {}))
