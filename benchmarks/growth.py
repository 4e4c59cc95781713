"""How up, test and down grow from 5 to 100 nodes, with 20 pods on each.

Every size is brought up, tested as 'lab test' does without options, and taken down, as whole
processes. Beside each figure stands how many times that of the first size it is; on a machine that
does other things too, time of the processor is the fairer measure. A size is left out where, by
the growth so far, it would not end within the budget.

    python benchmarks/growth.py [--budget SECONDS] [--pods 20] [NODES ...]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench import LAB, large, line, state_directory

SIZES = (5, 25, 50, 100)
PODS = 20
BUDGET_SECONDS = 600.0
STEEPEST = 2
"""What is made for each pair of nodes grows with their square; nothing grows faster."""
SAMPLED = 2
"""A test asks a sample of any lab, and takes no more than so many times as long for the next."""


_TOLD = 2_000
"""Characters of a failed command's output that are shown."""


@dataclass(frozen=True)
class Done:
    """One command that has ended well."""

    seconds: float
    cpu: float
    """Seconds of processor that it and its children took."""
    mib: int
    """The most memory that one process of it had at once."""
    output: str


def run(words: list[str], state: Path) -> Done:
    """Run 'lab' to its end."""
    out = state / "output"
    started = time.perf_counter()
    pid = os.posix_spawn(
        LAB[0],
        [*LAB, *words],
        {**os.environ, "HYBRIDLAB_STATE": str(state / "state")},
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 1, str(out), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, str(state / "story"), os.O_WRONLY | os.O_CREAT, 0o600),
        ],
    )
    _, status, used = os.wait4(pid, 0)
    seconds = time.perf_counter() - started
    if status:
        code = os.waitstatus_to_exitcode(status)
        sys.exit(f"lab {' '.join(words)} ended with {code}\n{out.read_text()[-_TOLD:]}")
    return Done(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss >> 10, out.read_text())


def measure(nodes: int, pods: int, state: Path) -> dict[str, Done]:
    """One size, from nothing to nothing."""
    name = f"growth-{nodes}"
    path = large(state, nodes, pods)
    results = {"up": run(["up", str(path), "--name", name], state)}
    try:
        results["test"] = run(["test", name], state)
    finally:
        results["down"] = run(["down", name], state)
    return results


def show(size: str, results: dict[str, Done], first: dict[str, Done]) -> None:
    """A line for each command, and what of the matrix was asked."""
    for command, done in results.items():
        line(
            f"{command}, {size}",
            f"{done.seconds:.1f} s",
            f"{done.seconds / first[command].seconds:.1f} times the first; {done.cpu:.1f} s of "
            f"processor, {done.cpu / first[command].cpu:.1f} times; {done.mib:,} MiB at most",
        )
    for printed in results["test"].output.splitlines():
        if printed[:1].isdigit() or printed.startswith("Probed: "):
            print(f"    {printed}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=BUDGET_SECONDS, metavar="SECONDS")
    parser.add_argument("--pods", type=int, default=PODS, help="on each node")
    parser.add_argument("nodes", nargs="*", type=int, default=SIZES)
    arguments = parser.parse_args()
    ends = time.monotonic() + arguments.budget
    first: dict[str, Done] = {}
    foreseen, last, before = 0.0, first, 1
    with state_directory() as state:
        for nodes in arguments.nodes:
            size = f"{nodes} nodes x {arguments.pods} pods"
            if last:
                grown = (nodes / before) ** STEEPEST
                foreseen = grown * (last["up"].seconds + last["down"].seconds)
                foreseen += SAMPLED * last["test"].seconds
            if time.monotonic() + foreseen > ends:
                line(size, "left out", f"up to {foreseen:.0f} s more")
                continue
            last, before = measure(nodes, arguments.pods, state), nodes
            first = first or last
            show(size, last, first)


if __name__ == "__main__":
    main()
