"""The pytest plugin: ``pytest --lab NAME --pyargs lab.suites``.

Every pytest in the environment loads this module, so it imports the rest of hybridlab only if
``--lab`` is given. Otherwise it only defines fixtures, and a test that uses one fails. Exit codes
with ``--lab`` are those of ``lab``: 0 all cells green, 1 cells failed, 2 usage, 3 the lab is broken
or no cell was chosen, 4 this machine cannot do what is asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import pytest

from lab._errors import LabError, UsageError, os_words
from lab._log import complain

if TYPE_CHECKING:
    from kubernetes import client

    from lab.matrix.verdict import CellResult, RunResult
    from lab.suites.fixtures import HeldLab, PlaceFinder
    from lab.suites.running_lab import RunningLab
    from lab.suites.session import MatrixSession

PACKAGE = "lab.suites"
_UNDER_TEST = "hybridlab-under-test"
"""Name of the plugin that is registered once a lab is open."""
SUITE = Path(__file__).parent
OPENER = "lab.lifecycle.api:open_running"
"""The function that opens labs, found by name because the suite may not import ``lifecycle``."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; without a lab, the plugin does nothing else."""
    group = parser.getgroup("hybridlab", "connectivity matrix of a lab")
    group.addoption("--lab", metavar="NAME", help=f"the lab whose matrix {PACKAGE} collects")
    group.addoption(
        "--lab-sample",
        metavar="STRATEGY",
        help="which cells to probe: full, node-pairs, os-pairs (default: depends on their number)",
    )
    group.addoption(
        "--lab-seed", metavar="NUMBER", type=int, default=0, help="another sample for each number"
    )
    group.addoption(
        "--lab-failover",
        action="store_true",
        help="after the cells, cut off the holder of a gateway, and measure the outage",
    )
    group.addoption(
        "--lab-quiet",
        action="store_true",
        help="report nothing but a progress line (for 'lab test', which prints its own summary)",
    )


class Hooks:
    """Hooks that open a lab, report progress, and hand over the run.

    ``lab test`` passes pytest an object that implements ``pytest_lab_open`` and
    ``pytest_lab_recorded``, to share its open lab and to receive the run.
    """

    @pytest.hookspec(firstresult=True)
    def pytest_lab_open(self, name: str) -> RunningLab | None:
        """Open the lab of this name; LabError if there is none, or it is broken."""

    @pytest.hookspec
    def pytest_lab_progress(self, stage: str, done: int, total: int) -> None:
        """Called when a stage of a run begins (``done`` is 0), goes on, and ends (it is ``total``).

        ``stage``: ``"probing"``, ``"probing again"``, ``"measuring streams"``, ``"looking for
        causes"``, ``"looking for lost packets"`` or ``"checking"``. ``done`` and ``total`` count
        the probes of a pass; a stage that counts nothing has a total of 1.
        """

    @pytest.hookspec
    def pytest_lab_recorded(self, run: RunResult, directory: Path | None) -> None:
        """Called with a run that is judged and stored, and the directory of its reports.

        ``directory`` is None if it could not be stored.
        """


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the hooks of :class:`Hooks`."""
    pluginmanager.add_hookspecs(Hooks)


@pytest.hookimpl(trylast=True)
def pytest_lab_open(name: str) -> RunningLab:
    """Open the lab of this name in the user's journal."""
    lab: RunningLab = resolve_name(OPENER)(name)
    return lab


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Open the lab before anything is collected; return an exit code if that fails."""
    name = config.getoption("--lab")
    if config.option.help or config.option.version:
        return None
    if name is None:
        if not _asks_for_suite(config):
            return None
        return _refuse(
            UsageError(
                f"collecting '{PACKAGE}'",
                "no lab is named",
                f"pytest --lab NAME --pyargs {PACKAGE} ('lab list' names the labs)",
            )
        )
    return _open(config, name)


def _refuse(error: LabError) -> int:
    complain(error)
    return error.exit_code


def _open(config: pytest.Config, name: str) -> int | None:
    parallel = config.getoption("numprocesses", None) or config.getoption("dist", "no") != "no"
    if parallel and _asks_for_suite(config):
        return _refuse(
            UsageError(
                f"testing lab '{name}'",
                "pytest-xdist would probe every cell in each of its processes; one process already "
                "probes many cells at a time",
                "the same without -n, --dist and --tx (or -p no:xdist)",
            )
        )
    if junit := config.getoption("xmlpath", None):
        try:
            _require_writable(junit, f"testing lab '{name}' into '{junit}'")
        except LabError as error:
            return _refuse(error)
    from lab.suites.session_plugin import (  # noqa: PLC0415  only where a lab is asked for
        SessionPlugin,
        choice_of,
    )

    try:
        plugin = SessionPlugin(config.hook.pytest_lab_open(name=name), choice_of(config))
        if config.getoption("--lab-failover"):
            plugin.session.require_failover()
    except LabError as error:
        return _refuse(error)
    config.pluginmanager.register(plugin, _UNDER_TEST)
    return None


def _require_writable(junit: str, action: str) -> None:
    """Check the file before anything is probed, and create its directory if it is missing.

    Raises UsageError when it cannot be written, or another user's link leads to it; PreflightError
    when a resource of the machine is used up.
    """
    from lab.state.failure import exhausted  # noqa: PLC0415  only where a lab is asked for
    from lab.state.files import require_output  # noqa: PLC0415  only where a lab is asked for

    path = Path(os.path.expandvars(junit)).expanduser().absolute()
    try:
        first = path
        while not first.parent.exists():
            first = first.parent
        require_output(first, action)
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise exhausted(error, action) or UsageError(
            action,
            f"'{junit}' cannot be written: {os_words(error)}",
            "another file for --junitxml; nothing was probed",
        ) from error


def _asks_for_suite(config: pytest.Config) -> bool:
    for argument in config.args:
        base = argument.partition("::")[0]
        if config.option.pyargs and (base == PACKAGE or base.startswith(f"{PACKAGE}.")):
            return True
        path = (config.invocation_params.dir / base).resolve()
        if path == SUITE or SUITE in path.parents:
            return True
    return False


def _session(config: pytest.Config) -> MatrixSession:
    """The open lab; fails the test if no lab is named."""
    under_test = config.pluginmanager.get_plugin(_UNDER_TEST)
    if under_test is None:
        pytest.fail(
            "this test needs a lab, and none is named\n"
            "  try: pytest --lab NAME ('lab list' names the labs)",
            pytrace=False,
        )
    session: MatrixSession = under_test.session
    return session


@pytest.fixture(scope="session")
def lab(pytestconfig: pytest.Config) -> Iterator[HeldLab]:
    """The lab that ``--lab`` names: ``name``, ``provider``, ``nodes``, ``pods``, ``intent``."""
    from lab.suites.fixtures import tested  # noqa: PLC0415  only where a lab is asked for

    with tested(_session(pytestconfig)) as held:
        yield held


@pytest.fixture(scope="session")
def node(lab: HeldLab) -> PlaceFinder:
    """``node("worker1")``: a node, its ``name``, ``os``, ``address`` and ``run(*command)``."""
    return lab.node


@pytest.fixture(scope="session")
def pod(lab: HeldLab) -> PlaceFinder:
    """``pod("worker1-p1")``: a pod, its ``name``, ``os``, ``address`` and ``run(*command)``."""
    return lab.pod


@pytest.fixture(scope="session")
def probe(lab: HeldLab) -> Callable[..., CellResult]:
    """``probe("worker1-p1", "win1-p1")``: a cell, probed now; it has ``verdict`` and ``detail``."""
    return lab.probe


@pytest.fixture(scope="session")
def kube(lab: HeldLab, pytestconfig: pytest.Config) -> Iterator[client.ApiClient]:
    """A client of the kubernetes package; the test is skipped if the lab has no cluster."""
    from lab.suites.fixtures import kubernetes_client  # noqa: PLC0415  the same

    with kubernetes_client(_session(pytestconfig)) as api:
        if api is None:
            pytest.skip(f"lab '{lab.name}' has no Kubernetes: its pods are network namespaces")
        yield api
