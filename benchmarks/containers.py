"""Real clusters on system containers: each step of ``lab up``, the matrix, memory, and down.

Beside each is the same scenario on namespaces, in the same run. Needs root, the bundle of the
tests (tests/bundle/README.md), and nothing else at work on the machine's inotify instances.

    python benchmarks/containers.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from lab.providers.nspawn import cgroups

SCENARIOS = Path(__file__).parents[1] / "scenarios"
ENOUGH_SECONDS = 600
ONE_PLANE = (SCENARIOS / "overlay.yaml").read_text(encoding="utf-8")
CLUSTERS = {
    "one and two": ONE_PLANE,
    "one and four": ONE_PLANE.replace("count: 2", "count: 4", 1),
    "three and two": ONE_PLANE.replace(
        "role: control-plane", "role: control-plane\n    count: 3", 1
    ),
}
"""Control planes and workers."""


def lab(state: Path, *words: str) -> tuple[float, str]:
    """Seconds that the command takes as a whole process, and what it tells on standard error."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "lab", *words],
        env={**os.environ, "HYBRIDLAB_STATE": str(state)},
        capture_output=True,
        text=True,
        timeout=ENOUGH_SECONDS,
        check=False,
    )
    if done.returncode:
        sys.exit(f"lab {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return time.perf_counter() - started, done.stderr + done.stdout


def working_set_mib(token: str) -> int:
    """Memory of the machines without files that the kernel can drop, as the kubelet counts."""
    there = cgroups.hierarchies()
    total = 0
    for group in there.groups(token):
        for machine in (path.parent for path in group.glob("*/memory.stat")):
            stat = dict(map(str.split, (machine / "memory.stat").read_text().splitlines()))
            v1 = machine / "memory.usage_in_bytes"
            used = v1 if v1.exists() else machine / "memory.current"
            droppable = stat.get("total_inactive_file") or stat["inactive_file"]
            total += int(used.read_text()) - int(droppable)
    return total >> 20


def line(what: str, figure: str, remark: str = "") -> None:
    print(f"{what:<52} {figure:>14}  {remark}", flush=True)


def measure(name: str, scenario: Path, state: Path) -> None:
    """One cluster's life, and the same scenario on namespaces."""
    words = ("up", str(scenario), "--only", "linux", "--name", "bench", "--provider")
    seconds: dict[str, dict[str, float]] = {}
    for provider in ("nspawn", "netns"):
        took = seconds[provider] = {}
        known = cgroups.tokens(cgroups.hierarchies())
        took["up"], said = lab(state, *words, provider)
        if provider == "nspawn":
            steps = re.search(r"took (.*)", said)
            (token,) = cgroups.tokens(cgroups.hierarchies()) - known
            memory = working_set_mib(token)
        took["up again"], _ = lab(state, *words, provider)
        took["test"], tested = lab(state, "test", "bench")
        took["down"], _ = lab(state, "down", "bench")
    for command, taken in seconds["nspawn"].items():
        beside = seconds["netns"][command]
        line(f"{name}: lab {command}", f"{taken:.1f} s", f"on namespaces {beside:.2f} s")
    cells = re.search(r"([\d,]+) cells: .*", tested)
    line(f"{name}: memory", f"{memory} MiB", cells[0] if cells else "")
    print(f"  {steps[1] if steps else ''}", flush=True)


def main() -> None:
    if os.geteuid():
        sys.exit("system containers need root")
    with tempfile.TemporaryDirectory(prefix="hybridlab-bench-") as directory:
        state = Path(directory)
        lab(state, "up", "overlay", "--provider", "nspawn", "--only", "linux")  # what is made once
        lab(state, "down", "overlay")
        for name, text in CLUSTERS.items():
            scenario = state / "bench.yaml"
            scenario.write_text(text, encoding="utf-8")
            measure(name, scenario, state)


if __name__ == "__main__":
    main()
