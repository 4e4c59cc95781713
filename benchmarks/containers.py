"""Real clusters on system containers: each step of ``lab up``, the matrix, memory, and down.

Beside each is the same scenario on namespaces, in the same run. A busy machine takes longer, so
the seconds of processors that the command and the lab's machines took are printed too, and the
machine's load. Needs root, the bundle of the tests (tests/bundle/README.md), and nothing else at
work on the machine's inotify instances.

    python benchmarks/containers.py [--clusters 3]
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from lab.machines.nspawn import cgroups
from lab.machines.nspawn.holder import KIND
from lab.providers.netns.holders import list_holders

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
WANTED = {"one and two": 30, "one and four": 40, "three and two": 60}
"""Seconds of ``lab up`` on two idle cores that each is to take at most.

Three and two takes longer (67 s): further control planes join one after another in 10 to 20 s each.
A new etcd member tells its leader its name; where that message is lost, as often happens while its
first snapshot replaces its connections, etcd repeats it only after its request timeout of 7 s (5 s
and two election timeouts). Until then neither etcd nor the API server on the node answers, and the
kubelet waits longer each time before it asks for its certificate again.
"""


@dataclass(frozen=True, slots=True)
class Took:
    """What a command took, as a whole process."""

    seconds: float
    processors: float
    """Seconds of them; without those of the lab's machines."""
    output: str


def lab(state: Path, *words: str) -> Took:
    """Run a command."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "lab", *words],
        env={**os.environ, "HYBRIDLAB_STATE": str(state)},
        capture_output=True,
        text=True,
        timeout=ENOUGH_SECONDS,
        check=False,
    )
    if done.returncode:
        output = f"{done.stderr}{done.stdout}"
        sys.exit(f"lab {' '.join(words)} ended with {done.returncode}:\n{output}")
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(seconds, used, done.stderr + done.stdout)


def processor_seconds(token: str) -> float:
    """What the lab's machines have taken of the processors so far."""
    for group in cgroups.hierarchies().groups(token):
        if (group / "cpuacct.usage").exists():
            return int((group / "cpuacct.usage").read_text()) / 1e9
        if (group / "cpu.stat").exists() and "usage_usec" in (group / "cpu.stat").read_text():
            stat = dict(map(str.split, (group / "cpu.stat").read_text().splitlines()))
            return int(stat["usage_usec"]) / 1e6
    return 0.0


def working_set_mib(token: str) -> int:
    """Memory of the machines without files that the kernel can drop, as the kubelet counts."""
    hierarchies = cgroups.hierarchies()
    total = 0
    for group in hierarchies.groups(token):
        for machine in (path.parent for path in group.glob("*/memory.stat")):
            stat = dict(map(str.split, (machine / "memory.stat").read_text().splitlines()))
            v1 = machine / "memory.usage_in_bytes"
            used = v1 if v1.exists() else machine / "memory.current"
            droppable = stat.get("total_inactive_file") or stat["inactive_file"]
            total += int(used.read_text()) - int(droppable)
    return total >> 20


def line(subject: str, figure: str, remark: str = "") -> None:
    print(f"{subject:<52} {figure:>14}  {remark}", flush=True)


def measure(name: str, scenario: Path, state: Path) -> None:
    """One cluster's life, and the same scenario on namespaces."""
    words = ("up", str(scenario), "--only", "linux", "--name", "bench", "--provider")
    commands = {
        "up": (*words, "nspawn"),
        "up again": (*words, "nspawn"),
        "test of cells alone": ("test", "bench", "-k", "not workloads"),
        "test": ("test", "bench"),
    }
    token, before, outputs = "", 0.0, dict[str, str]()
    figures: list[tuple[str, float, float, float]] = []
    for command, wanted in commands.items():
        took = lab(state, *wanted)
        if not token:
            token = next(
                holder.token for holder in list_holders(KIND) if state in holder.directory.parents
            )
            memory = working_set_mib(token)
        used = processor_seconds(token)
        figures.append((command, took.seconds, took.processors + used - before, os.getloadavg()[0]))
        before, outputs[command] = used, took.output
    took = lab(state, "down", "bench")
    figures.append(("down", took.seconds, took.processors, os.getloadavg()[0]))
    commands |= dict.fromkeys(("up", "up again"), (*words, "netns")) | {"down": ("down", "bench")}
    for command, seconds, processors, load in figures:
        beside = lab(state, *commands[command]).seconds
        line(
            f"{name}: lab {command}",
            f"{seconds:.1f} s",
            f"{processors:.1f} s of processors, load {load:.1f}; on namespaces {beside:.2f} s"
            + (f"; wanted on two idle cores: {WANTED[name]} s" if command == "up" else ""),
        )
    cells = re.search(r"([\d,]+) cells: .*", outputs["test"])
    line(f"{name}: memory", f"{memory} MiB", cells[0] if cells else "")
    steps = re.search(r"took (.*)", outputs["up"])
    print(f"  {steps[1] if steps else ''}", flush=True)


def main() -> None:
    if os.geteuid():
        sys.exit("system containers need root")
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--clusters", type=int, default=len(CLUSTERS), help="how many of them")
    count = options.parse_args().clusters
    with tempfile.TemporaryDirectory(prefix="hybridlab-bench-") as directory:
        state = Path(directory)
        lab(state, "up", "overlay", "--provider", "nspawn", "--only", "linux")  # what is made once
        lab(state, "down", "overlay")
        try:
            for name, text in [*CLUSTERS.items()][:count]:
                scenario = state / "bench.yaml"
                scenario.write_text(text, encoding="utf-8")
                measure(name, scenario, state)
        finally:
            if (state / "labs" / "bench").exists():
                lab(state, "down", "bench")


if __name__ == "__main__":
    main()
