"""10,000 cells through pytest with JUnit, on a lab that answers at once, beside plain tests.

Both are whole processes. The network costs nothing here: what is measured is collecting,
judging, running the items and writing JUnit.

    python benchmarks/pytest_items.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lab.matrix.cells import cells
from lab.matrix.run import probe
from lab.matrix.verdict import RunResult
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.providers.provider import LabHandle, Outcome, Probe, ProbeSettings
from lab.scenario.loader import find, load
from lab.scenario.scenario import Limit
from lab.topology import registry
from lab.topology.intent import Intent

ITEMS = 10_000
"""5 nodes x 10 pods: 2,450 ordered pairs and 50 hairpins, each over TCP and UDP in two sizes."""
PLAIN = """\
import pytest

@pytest.mark.parametrize("number", range({items}))
def test_plain(number):
    pass
"""


class Answers:
    """A provider whose every probe has the right answer."""

    name = "netns"

    def __init__(self, plan: Plan, intent: Intent) -> None:
        self._ready = {
            _key(probe(0, cell)): Outcome(
                0, "ok", "", min(cell.sources), cell.backends, cell.answer, 0.2
            )
            for cell in cells(plan, intent)
        }

    def probe(
        self,
        _lab: LabHandle,
        _intent: Intent,
        probes: Sequence[Probe],
        _settings: ProbeSettings,
        progress: Callable[[int], None],
    ) -> Mapping[int, Outcome]:
        progress(len(probes))
        return {asked.key: self._ready[_key(asked)] for asked in probes}


def _key(asked: Probe) -> tuple[str, str, int, str, str]:
    return (asked.source, asked.address, asked.port, asked.protocol, asked.size)


@dataclass
class Bench:
    """A lab that is open, and the plugin that opens it."""

    name: str
    banner: str
    plan: Plan
    intent: Intent
    limits: tuple[Limit, ...]
    provider: Answers
    handle: LabHandle
    windows_rules_off: tuple[str, ...] = ()

    @contextmanager
    def used(self, _command: str, _say: Callable[[str], None]) -> Iterator[None]:
        yield

    def require_running(self) -> None:
        """It always is."""

    def observe(self, *_: object) -> Mapping[str, object]:
        return {}

    def record(self, run: RunResult, _junit: Path | None, _intent: Intent) -> Path:
        assert run.green()
        assert len(run.results) == ITEMS
        return self.handle.directory

    def pytest_lab_open(self, name: str) -> Bench:
        assert name == self.name
        return self


def bench(directory: Path) -> Bench:
    overlay = load(find("overlay"))
    chosen = replace(overlay.matrix, families=("pod-pod", "hairpin"))
    plan = make_plan(replace(overlay, pods_per_node=10, matrix=chosen))
    intent = registry.intent(plan)
    return Bench(
        "bench",
        "nothing but answers",
        plan,
        intent,
        registry.limits(plan),
        Answers(plan, intent),
        LabHandle("bench", directory, "token"),
    )


def inside(directory: Path) -> int:
    """One pytest with the cells, in this process."""
    arguments = ["-p", "lab.suites.plugin", "--lab", "bench", "--lab-quiet"]
    suite = ["--junitxml", "cells.xml", "-c", os.devnull, "--pyargs", "lab.suites"]
    return int(pytest.main([*arguments, *suite], plugins=[bench(directory)]))


def seconds(command: list[str], directory: Path) -> float:
    environment = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
    }
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *command],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - started


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="hybridlab-bench-") as name:
        directory = Path(name)
        (directory / "test_plain.py").write_text(PLAIN.format(items=ITEMS))
        plain = seconds(["-m", "pytest", "-q", "--junitxml", "plain.xml"], directory)
        ours = seconds([str(Path(__file__).resolve()), "--inside", name], directory)
    print(f"{f'pytest, {ITEMS:,} plain parametrised tests, JUnit':<52} {plain:>12.2f} s")
    print(
        f"{f'pytest, {ITEMS:,} cells, JUnit':<52} {ours:>12.2f} s  "
        f"{ours / plain:.2f} times the plain ones"
    )


if __name__ == "__main__":
    if "--inside" in sys.argv:
        sys.exit(inside(Path(sys.argv[-1])))
    main()
