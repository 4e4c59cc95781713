"""Clusters with Windows nodes on Wine: up, a further node, a Windows pod, memory, the matrix.

Beside each is the same with a Linux node instead, in the same run. A busy machine takes longer: its
load is printed beside each figure. Needs root, the bundle that ``make test-wine`` makes (its cache
is used), and nothing else at work.

    python benchmarks/wine.py [--smallest]
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from containers import ONE_PLANE, Took, lab, line

from lab.machines.nspawn import cgroups
from lab.machines.nspawn.holder import KIND
from lab.providers.netns.holders import list_holders

BASE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
CACHE = BASE / "hybridlab" / "test-wine"
"""The cache of ``make test-wine``."""
NAME = "bench"
WANTED = {"up": 45, "node": 6, "pod": 3, "memory": 700, "matrix": 8}
"""Seconds on two idle cores, and MiB."""
SETTLED_SECONDS = 60
"""From Ready until the memory is read."""
POD = "bench-pod"
AGNHOST = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"
KUBECTL = ("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf")


def scenario(workers: int, windows: int) -> str:
    """``overlay`` with one control plane, and so many workers of each system."""
    head, _, _ = ONE_PLANE.partition("nodes:\n")
    head = re.sub(r"^name: .*$", f"name: {NAME}", head, flags=re.MULTILINE)
    nodes = ["  - {name: cp, os: linux, role: control-plane}"]
    nodes += [f"  - {{name: lin{number}, os: linux}}" for number in range(1, workers + 1)]
    nodes += [
        f"  - {{name: win{number}, os: windows, image: windows-server-2022}}"
        for number in range(1, windows + 1)
    ]
    return f"{head}nodes:\n" + "\n".join(nodes) + "\n"


def up(state: Path, workers: int, windows: int) -> Took:
    """Bring a lab up."""
    path = state / "bench.yaml"
    path.write_text(scenario(workers, windows), encoding="utf-8")
    return lab(state, "up", str(path), "--provider", "nspawn")


def proportional_mib(state: Path, machine: str) -> int:
    """Proportional memory of every process of a machine: those of its pods are in its group."""
    (token,) = (holder.token for holder in list_holders(KIND) if state in holder.directory.parents)
    pids = {
        pid
        for group in cgroups.hierarchies().groups(token)
        for tasks in (group / machine).rglob("cgroup.procs")
        for pid in tasks.read_text().split()
    }
    return sum(_pss(pid) for pid in pids) >> 10


def _pss(pid: str) -> int:
    """KiB; 0 for a process that has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    match = re.search(r"^Pss:\s+(\d+) kB$", text, re.MULTILINE)
    return int(match[1]) if match else 0


def pod_seconds(state: Path, node: str) -> float:
    """Seconds from ``kubectl run`` of a pod until it is Ready, by the control plane's clock."""
    kubectl = " ".join(KUBECTL)
    selector = f'{{"spec": {{"nodeName": "{node}"}}}}'
    run = f"run {POD} --image={AGNHOST} --image-pull-policy=IfNotPresent --overrides='{selector}'"
    wait = f"wait --for=condition=Ready pod/{POD} --timeout=120s"
    script = f"""
        date +%s.%N
        {kubectl} {run} -- netexec >/dev/null
        {kubectl} {wait} >/dev/null
        date +%s.%N
        {kubectl} delete pod {POD} >/dev/null
    """
    printed = lab(state, "exec", NAME, "cp", "--", "sh", "-ec", script).output
    began, ended = map(float, re.findall(r"^\d+\.\d+$", printed, re.MULTILINE))
    return ended - began


@dataclass(frozen=True, slots=True)
class Measured:
    """A cluster of one control plane, a Linux worker and another node, and what that node takes."""

    up: Took
    pod_seconds: float
    cells: int
    probing_seconds: float
    memory_mib: int


def measure(state: Path, windows: int, *, smallest: bool) -> Measured:
    """Bring it up, measure it, and take it down. ``windows``: 1 for a Windows node, 0 for Linux."""
    node = "win1" if windows else "lin2"
    first = up(state, 2 - windows, windows)
    ready = time.monotonic()
    seconds = pod_seconds(state, node)
    cells, probing = _probed(lab(state, "test", NAME, "-k", "not workloads"))
    if not smallest:
        time.sleep(max(0.0, SETTLED_SECONDS - (time.monotonic() - ready)))
    memory = proportional_mib(state, node)
    lab(state, "down", NAME)
    return Measured(first, seconds, cells, probing, memory)


def figures(state: Path, *, smallest: bool) -> Iterator[tuple[str, str, str]]:
    """What is measured, its figure, and a remark."""
    made = measure(state, 1, smallest=smallest)
    linux = measure(state, 0, smallest=smallest)
    for subject, wanted, unit, own, others in (
        ("1+1+1: lab up", WANTED["up"], "s", made.up.seconds, linux.up.seconds),
        ("a pod, applied until Ready", WANTED["pod"], "s", made.pod_seconds, linux.pod_seconds),
        (
            "memory of a node with two pods",
            WANTED["memory"],
            "MiB",
            made.memory_mib,
            linux.memory_mib,
        ),
    ):
        remark = (
            f"wanted: {wanted} {unit}; with Linux instead: {others:.1f}, ratio {own / others:.1f}"
        )
        yield subject, f"{own:.1f} {unit}", remark
    steps = re.search(r"took (.*)", made.up.output)
    yield "1+1+1: its steps", "", steps[1] if steps else ""
    own, others = (1000 * each.probing_seconds / each.cells for each in (made, linux))
    remark = f"{made.cells} cells; with Linux instead: {others:.1f} ms, ratio {own / others:.1f}"
    yield "1+1+1: matrix, for each cell", f"{own:.1f} ms", remark
    if smallest:
        return
    more = up(state, 1, 2).seconds - made.up.seconds
    yield "each further Windows node", f"{more:.1f} s", f"wanted: {WANTED['node']} s"
    lab(state, "down", NAME)
    whole = up(state, 2, 2)
    yield "overlay, 1+2+2: lab up", f"{whole.seconds:.1f} s", ""
    cells, seconds = _probed(lab(state, "test", NAME, "-k", "not workloads"))
    remark = f"wanted: {WANTED['matrix']} s; {cells:,} cells"
    yield "overlay, 1+2+2: matrix", f"{seconds:.1f} s", remark
    lab(state, "down", NAME)


def _probed(took: Took) -> tuple[int, float]:
    """How many cells a run has probed, and in how many seconds."""
    match = re.search(r"^([\d,]+) cells: .*; ([\d.]+) s$", took.output, re.MULTILINE)
    assert match, took.output
    return int(match[1].replace(",", "")), float(match[2])


def main() -> None:
    if os.geteuid() or not CACHE.is_dir():
        sys.exit("needs root and the bundle of 'make test-wine'")
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--smallest", action="store_true", help="one cluster, and no waiting")
    smallest = options.parse_args().smallest
    os.environ |= {"XDG_CACHE_HOME": str(CACHE), "HYBRIDLAB_INVENTORY": os.devnull}
    with tempfile.TemporaryDirectory(prefix="hybridlab-bench-") as directory:
        state = Path(directory)
        if not smallest:  # what is made once
            up(state, 1, 1)
            lab(state, "down", NAME)
        try:
            for subject, figure, remark in figures(state, smallest=smallest):
                line(subject, figure, f"load {os.getloadavg()[0]:.1f}; {remark}")
        finally:
            if (state / "labs" / NAME).exists():
                lab(state, "down", NAME)


if __name__ == "__main__":
    main()
