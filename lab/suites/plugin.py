"""The pytest plugin: ``pytest --lab NAME --pyargs lab.suites``.

Every pytest of the environment loads this module, so it imports nothing of the product until
``--lab`` is given; without it, it only defines fixtures, and a test that uses one fails. Exit codes
with ``--lab`` are the product's: 0 all cells green, 1 cells failed, 2 usage, 3 the lab is broken or
no cell was chosen, 4 this machine cannot do what is asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import pytest

from lab._errors import LabError, UsageError
from lab._log import complain

if TYPE_CHECKING:
    from kubernetes import client

    from lab.matrix.verdict import CellResult, RunResult
    from lab.suites.fixtures import HeldLab, PlaceFinder
    from lab.suites.session import LabSession, SuiteLab

PACKAGE = "lab.suites"
_UNDER_TEST = "hybridlab-under-test"
"""The plugin that there is once a lab is open."""
SUITE = Path(__file__).parent
OPENER = "lab.lifecycle.api:open_lab"
"""Where labs are opened. It is right of the suite in the flow, and is therefore found by name."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; they are all that a pytest without a lab sees of the plugin."""
    group = parser.getgroup("hybridlab", "connectivity matrix of a lab")
    group.addoption("--lab", metavar="NAME", help=f"the lab whose matrix {PACKAGE} collects")
    group.addoption(
        "--lab-sample",
        metavar="STRATEGY",
        help="which cells are asked: full, node-pairs, os-pairs (default: by how many there are)",
    )
    group.addoption(
        "--lab-seed", metavar="NUMBER", type=int, default=0, help="another sample for each number"
    )
    group.addoption(
        "--lab-failover",
        action="store_true",
        help="after the cells, lose the holder of a gateway, and measure how long pods notice",
    )
    group.addoption(
        "--lab-quiet",
        action="store_true",
        help="report nothing but a progress line (for 'lab test', which prints its own summary)",
    )


class Hooks:
    """How a lab is found, and where a run goes.

    ``lab test`` passes pytest an object with ``pytest_lab_progress`` and ``pytest_lab_recorded``,
    to draw its line and to take the run over in process.
    """

    @pytest.hookspec(firstresult=True)
    def pytest_lab_open(self, name: str) -> SuiteLab | None:
        """Open the lab of that name; LabError if there is none, or it is broken."""

    @pytest.hookspec
    def pytest_lab_progress(self, done: int, total: int) -> None:
        """Hear how many of a pass's probes have ended; ``done`` is 0 when a pass begins."""

    @pytest.hookspec
    def pytest_lab_recorded(self, run: RunResult, directory: Path) -> None:
        """Take over a run once it is stored, with the directory of its reports."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the hooks by which a lab is opened and a run handed over."""
    pluginmanager.add_hookspecs(Hooks)


@pytest.hookimpl(trylast=True)
def pytest_lab_open(name: str) -> SuiteLab:
    """Open the lab that the lifecycle knows by that name."""
    lab: SuiteLab = resolve_name(OPENER)(name)
    return lab


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Open the lab before anything is collected; an exit code where that cannot be."""
    name = config.getoption("--lab")
    if config.option.help or config.option.version:
        return None
    if name is None:
        if not _asks_for_suite(config):
            return None
        complain(
            f"collecting '{PACKAGE}': no lab is named\n"
            f"  try: pytest --lab NAME --pyargs {PACKAGE} ('lab list' names the labs)"
        )
        return UsageError.exit_code
    return _open(config, name)


def _open(config: pytest.Config, name: str) -> int | None:
    if config.getoption("numprocesses", None) or config.getoption("dist", "no") != "no":
        complain(
            f"testing lab '{name}': pytest-xdist would ask every cell in each of its processes; "
            "cells are asked many at a time by one process\n"
            "  try: the same without -n, --dist and --tx (or -p no:xdist)"
        )
        return UsageError.exit_code
    junit = config.getoption("xmlpath", None)
    if junit and (why := _unwritable(Path(os.path.expandvars(junit)).expanduser())):
        complain(
            f"testing lab '{name}': '{junit}' cannot be written: {why}\n"
            "  try: another file for --junitxml; nothing was asked"
        )
        return UsageError.exit_code
    from lab.suites.session_plugin import (  # noqa: PLC0415  only where a lab is asked for
        LabUnderTest,
        choice_of,
    )

    try:
        lab = LabUnderTest(config.hook.pytest_lab_open(name=name), choice_of(config))
        if config.getoption("--lab-failover"):
            lab.session.require_failover()
    except LabError as error:
        complain(str(error))
        return error.exit_code
    config.pluginmanager.register(lab, _UNDER_TEST)
    return None


def _unwritable(path: Path) -> str:
    """Why the file cannot be written, which pytest finds out when all is asked; or empty."""
    try:
        if path.exists():
            return "" if os.access(path, os.W_OK) else "it is not your file"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.unlink()
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def _asks_for_suite(config: pytest.Config) -> bool:
    for argument in config.args:
        base = argument.partition("::")[0]
        if config.option.pyargs and (base == PACKAGE or base.startswith(f"{PACKAGE}.")):
            return True
        path = (config.invocation_params.dir / base).resolve()
        if path == SUITE or SUITE in path.parents:
            return True
    return False


def _session(config: pytest.Config) -> LabSession:
    """The lab that is open; a test that asks for one fails where none is named."""
    under_test = config.pluginmanager.get_plugin(_UNDER_TEST)
    if under_test is None:
        pytest.fail(
            "this test asks for a lab, and none is named\n"
            "  try: pytest --lab NAME ('lab list' names the labs)",
            pytrace=False,
        )
    session: LabSession = under_test.session
    return session


@pytest.fixture(scope="session")
def lab(pytestconfig: pytest.Config) -> Iterator[HeldLab]:
    """The lab that ``--lab`` names: ``name``, ``provider``, ``nodes``, ``pods``, ``intent``."""
    from lab.suites.fixtures import tested  # noqa: PLC0415  only where a lab is asked for

    with tested(_session(pytestconfig)) as found:
        yield found


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
    """``probe("worker1-p1", "win1-p1")``: a cell, asked now: its ``verdict`` and ``detail``."""
    return lab.probe


@pytest.fixture(scope="session")
def kube(lab: HeldLab, pytestconfig: pytest.Config) -> Iterator[client.ApiClient]:
    """A client of the kubernetes package; the test is skipped where the lab has no cluster."""
    from lab.suites.fixtures import kubernetes_client  # noqa: PLC0415  the same

    with kubernetes_client(_session(pytestconfig)) as found:
        if found is None:
            pytest.skip(f"lab '{lab.name}' has no Kubernetes: its pods are network namespaces")
        yield found
