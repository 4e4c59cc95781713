"""10,000 cells through pytest with JUnit, on a lab that answers at once, beside plain tests.

Both are whole processes. The network costs nothing here: what is measured is collecting,
judging, running the items and writing JUnit.

    python benchmarks/pytest_items.py [--pods 10]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.matrix.cells import cells
from lab.matrix.run import make_probe
from lab.matrix.verdict import RunResult
from lab.plan.plan import Plan
from lab.plan.planner import make_plan
from lab.providers.fake.provider import FakeProvider
from lab.providers.provider import LabHandle, Outcome, Probe, ProbeSettings
from lab.scenario.assertion import Assertion
from lab.scenario.loader import find, load
from lab.scenario.scenario import Limit
from lab.topology import registry
from lab.topology.intent import Intent

PODS = 10
"""On each of 5 nodes: 2,450 ordered pairs and 50 hairpins, each over TCP and UDP in two sizes."""
PLAIN = """\
import pytest

@pytest.mark.parametrize("number", range({items}))
def test_plain(number):
    pass
"""


class Answers(FakeProvider):
    """A provider whose every probe has the right answer."""

    def __init__(self, plan: Plan, intent: Intent) -> None:
        super().__init__(name="netns", abilities=frozenset())
        self._ready = {
            _key(make_probe(0, cell)): Outcome(
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
        return {sent.key: self._ready[_key(sent)] for sent in probes}


def _key(sent: Probe) -> tuple[str, str, int, str, str]:
    return (sent.source, sent.address, sent.port, sent.protocol, sent.size)


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
    assertions: tuple[Assertion, ...] = ()
    windows_rules_off: tuple[str, ...] = ()
    repeat_with: str = ""

    @contextmanager
    def in_use(
        self, _command: str, _say: Callable[[str], None], *, alone: bool = False
    ) -> Iterator[None]:
        assert not alone
        yield

    def require_running(self) -> None:
        """It always is."""

    def observe(self, *_: object) -> Mapping[str, object]:
        return {}

    def record(self, run: RunResult, _intent: Intent) -> Path:
        assert run.green()
        assert len(run.results) == len(cells(self.plan, self.intent))
        return self.handle.directory

    def record_page(self, _directory: Path, run: RunResult, _intent: Intent) -> None:
        assert run.green()

    def record_junit(self, _directory: Path, text: str) -> None:
        assert "<testcase" in text

    def pytest_lab_open(self, name: str) -> Bench:
        assert name == self.name
        return self


def bench(directory: Path, pods: int) -> Bench:
    overlay = load(find("overlay"))
    chosen = overlay.matrix.replace(families=("pod-pod", "hairpin"))
    plan = make_plan(overlay.replace(pods_per_node=pods, matrix=chosen))
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


def inside(directory: Path, pods: int) -> int:
    """One pytest with the cells, in this process."""
    arguments = ["-p", "lab.suites.plugin", "--lab", "bench", "--lab-quiet"]
    suite = ["--junitxml", "cells.xml", "-c", os.devnull, "--pyargs", "lab.suites"]
    return int(pytest.main([*arguments, *suite], plugins=[bench(directory, pods)]))


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


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pods", type=int, default=PODS, help="on each of 5 nodes")
    options.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    wanted = options.parse_args()
    if wanted.inside:
        return inside(wanted.inside, wanted.pods)
    with tempfile.TemporaryDirectory(prefix="hybridlab-bench-") as name:
        directory = Path(name)
        lab = bench(directory, wanted.pods)
        items = len(cells(lab.plan, lab.intent))
        (directory / "test_plain.py").write_text(PLAIN.format(items=items))
        plain = seconds(["-m", "pytest", "-q", "--junitxml", "plain.xml"], directory)
        again = [str(Path(__file__).resolve()), "--pods", str(wanted.pods), "--inside", name]
        ours = seconds(again, directory)
    print(f"{f'pytest, {items:,} plain parametrised tests, JUnit':<52} {plain:>12.2f} s")
    print(
        f"{f'pytest, {items:,} cells, JUnit':<52} {ours:>12.2f} s  "
        f"{ours / plain:.2f} times the plain ones"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
