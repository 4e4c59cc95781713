"""Everything that is claimed to be quick, measured in one run and printed; kept nowhere.

Whole commands are timed as processes, the median of several runs. Ratios are within this run:
another machine gives other figures, and much the same ratios.

    make bench                 all of it (a few minutes)
    python benchmarks/bench.py start engine scale growth pytest media containers mininet
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
LAB = [sys.executable, "-m", "lab"]
RUNS = 7
ENOUGH_SECONDS = 300
ENOUGH_GROWTH_SECONDS = 600
"""What growth.py allows itself; the last size may have begun just before."""


def run(command: list[str], state: Path, *, check: bool = True) -> float:
    """Seconds that a whole process takes."""
    started = time.perf_counter()
    done = subprocess.run(
        command,
        env={**os.environ, "HYBRIDLAB_STATE": str(state)},
        capture_output=True,
        text=True,
        timeout=ENOUGH_SECONDS,
        check=False,
    )
    seconds = time.perf_counter() - started
    if check and done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return seconds


def line(what: str, figure: str, remark: str = "") -> None:
    print(f"{what:<52} {figure:>14}  {remark}", flush=True)


@contextmanager
def state_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hybridlab-bench-") as path:
        yield Path(path)


def start() -> None:
    """Whole commands beside a bare Python start."""
    with state_directory() as state:
        bare = statistics.median(run([sys.executable, "-c", "pass"], state) for _ in range(RUNS))
        figures: dict[str, list[float]] = {"--help": [], "up overlay": [], "down overlay": []}
        for _ in range(RUNS):
            for words, seconds in figures.items():
                seconds.append(run([*LAB, *words.split()], state))
    for words, seconds in figures.items():
        median = statistics.median(seconds)
        line(f"lab {words}", f"{median:.3f} s", f"{median / bare:.0f} times a bare Python start")


def engine() -> None:
    """Probes a second of the engine beside a loop of curl."""
    subprocess.run([sys.executable, str(HERE / "engine.py")], check=True, timeout=ENOUGH_SECONDS)


def pytest_items() -> None:
    """10,000 cells through pytest with JUnit, beside plain parametrised tests."""
    script = str(HERE / "pytest_items.py")
    subprocess.run([sys.executable, script], check=True, timeout=ENOUGH_SECONDS)


def media() -> None:
    """Reading an installation medium of 5 GiB beside other programs."""
    script = str(HERE / "media.py")
    subprocess.run([sys.executable, script], check=True, timeout=ENOUGH_SECONDS)


LARGE = """\
name: large
summary: a lab for measuring
kubernetes:
  version: "1.36"
  pod_cidr: 10.244.0.0/16
  node_prefix: 24
  service_cidr: 10.96.0.0/12
  dns_address: 10.96.0.10
network:
  cidr: 10.9.176.0/23
topology:
  kind: overlay
pods_per_node: {pods}
nodes:
  - {{name: master, os: linux, role: control-plane}}
  - {{name: worker, os: linux, count: {linux}}}
  - {{name: win, os: windows, count: {windows}}}
"""
ONE_FAMILY = """\
matrix:
  families: [{family}]
  protocols: [tcp]
  sizes: [small]
"""


def large(state: Path, nodes: int, pods: int, family: str = "") -> Path:
    """The scenario of a large lab, a fifth of it Windows; with a family that one alone."""
    windows = nodes // 5
    path = state / f"large-{nodes}-{pods}.yaml"
    text = LARGE.format(pods=pods, linux=nodes - windows - 1, windows=windows)
    path.write_text(text + (ONE_FAMILY.format(family=family) if family else ""))
    return path


def scale() -> None:
    """Bring-up as labs grow, and 40,000 cells of 200 pods."""
    with state_directory() as state:
        base = None
        for nodes, pods in ((5, 2), (10, 20), (50, 20)):
            path = large(state, nodes, pods, "pod-pod")
            up = run([*LAB, "up", str(path), "--name", "bench"], state)
            down = run([*LAB, "down", "bench"], state)
            base = base or up
            line(f"up, {nodes} nodes x {pods} pods", f"{up:.2f} s", f"{up / base:.1f} times 5 x 2")
            line(f"down, {nodes} nodes x {pods} pods", f"{down:.2f} s")
        path = large(state, 20, 10, "pod-pod")
        run([*LAB, "up", str(path), "--name", "cells"], state)
        seconds = run([*LAB, "test", "cells"], state)
        run([*LAB, "down", "cells"], state)
        cells = 200 * 199
        line(f"lab test, {cells:,} cells of 200 pods", f"{seconds:.1f} s", "no wrong verdict")


def growth() -> None:
    """Up, test and down from 5 to 100 nodes with 20 pods each."""
    script = str(HERE / "growth.py")
    subprocess.run([sys.executable, script], check=True, timeout=2 * ENOUGH_GROWTH_SECONDS)


def containers() -> None:
    """Real clusters on system containers, beside the same scenarios on namespaces."""
    script = str(HERE / "containers.py")
    if os.geteuid() or not shutil.which("systemd-nspawn"):
        line("containers", "not run", "as root: tools/setup develop nspawn, and a bundle")
        return
    subprocess.run([sys.executable, script], check=True, timeout=2 * ENOUGH_GROWTH_SECONDS)


MININET = """\
import sys, time
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo
from mininet.nodelib import LinuxBridge
started = time.perf_counter()
net = Mininet(SingleSwitchTopo(int(sys.argv[1])), switch=LinuxBridge, controller=None)
net.start()
lost = net.pingAll(timeout=1)
net.stop()
print(time.perf_counter() - started, lost)
"""


def mininet() -> None:
    """Mininet's like: hosts up, all pairs once, down; and ours."""
    python = "/usr/bin/python3"
    known = [python, "-c", "import mininet.net"]
    if (
        not shutil.which("mn")
        or not shutil.which("brctl")
        or subprocess.run(known, capture_output=True, check=False).returncode
    ):
        line("mininet", "not installed", "as root: apt-get install mininet bridge-utils")
        return
    with state_directory() as state:
        script = state / "like.py"
        script.write_text(MININET)
        for hosts in (10, 30):
            theirs = run([python, str(script), str(hosts)], state)
            path = large(state, 5, hosts // 5, "pod-pod")
            ours = run([*LAB, "up", str(path), "--name", "like"], state)
            ours += run([*LAB, "test", "like"], state)
            ours += run([*LAB, "down", "like"], state)
            line(f"mininet, {hosts} hosts, every pair, down", f"{theirs:.2f} s")
            line(f"lab, {hosts} pods, every pair, down", f"{ours:.2f} s", f"{ours / theirs:.2f}")


PARTS: dict[str, Callable[[], None]] = {
    "start": start,
    "engine": engine,
    "pytest": pytest_items,
    "media": media,
    "scale": scale,
    "growth": growth,
    "containers": containers,
    "mininet": mininet,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        print(f"\n{name}: {PARTS[name].__doc__}", flush=True)
        PARTS[name]()
