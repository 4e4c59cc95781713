"""Every part of the benchmark, at its smallest size. Its figures mean nothing then.

Those that need a cluster or a hypervisor run in .ci/run.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from processes import run_program

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ELSEWHERE = {"containers", "wine"}
SECONDS = 300

pytestmark = pytest.mark.slow


def parts() -> list[str]:
    tree = ast.parse((BENCHMARKS / "bench.py").read_text(encoding="utf-8"))
    (table,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "PARTS"
    )
    assert isinstance(table, ast.Dict)
    return [str(key.value) for key in table.keys if isinstance(key, ast.Constant)]


@pytest.mark.parametrize("part", sorted({*parts()} - ELSEWHERE))
def test_a_part_of_the_benchmark_works(part):
    done = run_program(
        [sys.executable, BENCHMARKS / "bench.py", "--smallest", part], check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    heading, *figures = done.stdout.strip().splitlines()
    assert heading.startswith(f"{part}: ")
    assert figures


def test_start_up_is_compared_with_another_revision():
    done = run_program([sys.executable, BENCHMARKS / "startup.py", "HEAD", "--runs", "1"])
    assert [line.split(" times")[0].split()[:2] for line in done.stdout.splitlines()] == [
        ["lab", "--help"],
        ["lab", "list"],
        ["lab", "up"],
        ["lab", "down"],
    ]


def test_the_code_is_counted():
    assert "files of ours" in run_program([sys.executable, BENCHMARKS / "size.py"]).stdout


def test_the_other_parts_run_in_continuous_integration():
    script = (BENCHMARKS.parent / ".ci/run").read_text(encoding="utf-8")
    for part in ELSEWHERE:
        assert f"benchmarks/bench.py --smallest {part}" in script
    assert "benchmarks/machines.py --runs 1 --counts 1" in script
