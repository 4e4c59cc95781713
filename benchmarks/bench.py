"""Everything that is claimed to be quick, measured in one run and printed; kept nowhere.

Whole commands are timed as processes, the median of several runs. Ratios are within this run:
another machine gives other figures, and much the same ratios.

    make bench                 all of it (a few minutes)
    python benchmarks/bench.py start engine scale growth pytest media containers wine
    python benchmarks/bench.py mininet
    python benchmarks/bench.py --smallest    does every part work? its figures mean nothing
    python benchmarks/startup.py main        start-up beside that of another revision
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
LAB = [sys.executable, "-m", "lab"]
RUNS = 7
ENOUGH_SECONDS = 300
ENOUGH_GROWTH_SECONDS = 600
"""What growth.py allows itself; the last size may have begun just before."""


@dataclass(frozen=True)
class Sizes:
    """How much the parts do."""

    runs: int = RUNS
    engine: tuple[str, ...] = ()
    """Options of engine.py; those of the other scripts follow."""
    pytest: tuple[str, ...] = ()
    media: tuple[str, ...] = ()
    growth: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    existing: tuple[str, ...] = ()
    wine: tuple[str, ...] = ()
    labs: tuple[tuple[int, int], ...] = ((5, 2), (10, 20), (50, 20))
    """Nodes, and pods on each."""
    cells: tuple[int, int] = (20, 10)
    hosts: tuple[int, ...] = (10, 30)


SMALLEST = Sizes(
    runs=1,
    engine=("--pods", "2", "--probes", "100", "--curl", "2"),
    pytest=("--pods", "1"),
    media=("--runs", "1", "--mib", "64"),
    growth=("--pods", "1", "5"),
    containers=("--clusters", "1"),
    existing=("--clusters", "1", "--runs", "1"),
    wine=("--smallest",),
    labs=((5, 1),),
    cells=(5, 1),
    hosts=(5,),
)


def script(name: str, *options: str, seconds: float = ENOUGH_SECONDS) -> None:
    """Run another script of this directory."""
    subprocess.run([sys.executable, str(HERE / name), *options], check=True, timeout=seconds)


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


def line(subject: str, figure: str, remark: str = "") -> None:
    print(f"{subject:<52} {figure:>14}  {remark}", flush=True)


@contextmanager
def state_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hybridlab-bench-") as path:
        yield Path(path)


def start(sizes: Sizes) -> None:
    """Whole commands beside a bare Python start."""
    with state_directory() as state:
        bare = statistics.median(
            run([sys.executable, "-c", "pass"], state) for _ in range(sizes.runs)
        )
        figures: dict[str, list[float]] = {"--help": [], "up overlay": [], "down overlay": []}
        for _ in range(sizes.runs):
            for words, seconds in figures.items():
                seconds.append(run([*LAB, *words.split()], state))
    for words, seconds in figures.items():
        median = statistics.median(seconds)
        line(f"lab {words}", f"{median:.3f} s", f"{median / bare:.0f} times a bare Python start")


def engine(sizes: Sizes) -> None:
    """Probes a second of the engine beside a loop of curl."""
    script("engine.py", *sizes.engine)


def pytest_items(sizes: Sizes) -> None:
    """10,000 cells through pytest with JUnit, beside plain parametrised tests."""
    script("pytest_items.py", *sizes.pytest)


def media(sizes: Sizes) -> None:
    """Reading an installation medium of 5 GiB beside other programs."""
    script("media.py", *sizes.media)


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


def scale(sizes: Sizes) -> None:
    """Bring-up as labs grow, and 40,000 cells of 200 pods."""
    with state_directory() as state:
        base = None
        for nodes, pods in sizes.labs:
            path = large(state, nodes, pods, "pod-pod")
            up = run([*LAB, "up", str(path), "--name", "bench"], state)
            down = run([*LAB, "down", "bench"], state)
            base = base or up
            line(
                f"up, {nodes} nodes x {pods} pods",
                f"{up:.2f} s",
                f"{up / base:.1f} times the first",
            )
            line(f"down, {nodes} nodes x {pods} pods", f"{down:.2f} s")
        nodes, pods = sizes.cells
        path = large(state, nodes, pods, "pod-pod")
        run([*LAB, "up", str(path), "--name", "cells"], state)
        seconds = run([*LAB, "test", "cells"], state)
        run([*LAB, "down", "cells"], state)
        pods *= nodes
        line(
            f"lab test, {pods * (pods - 1):,} cells of {pods} pods",
            f"{seconds:.1f} s",
            "no wrong verdict",
        )


def growth(sizes: Sizes) -> None:
    """Up, test and down from 5 to 100 nodes with 20 pods each."""
    script("growth.py", *sizes.growth, seconds=2 * ENOUGH_GROWTH_SECONDS)


def containers(sizes: Sizes) -> None:
    """Real clusters on system containers, beside namespaces, and checked by their kubeconfigs."""
    if os.geteuid() or not shutil.which("systemd-nspawn"):
        line("containers", "not run", "as root: tools/setup develop nspawn, and a bundle")
        return
    script("containers.py", *sizes.containers, seconds=2 * ENOUGH_GROWTH_SECONDS)
    script("existing.py", *sizes.existing, seconds=ENOUGH_GROWTH_SECONDS)


def wine(sizes: Sizes) -> None:
    """Clusters with Windows nodes on Wine."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if os.geteuid() or not (base / "hybridlab/test-wine").is_dir():
        line("wine", "not run", "as root, after 'make test-wine'")
        return
    script("wine.py", *sizes.wine, seconds=2 * ENOUGH_GROWTH_SECONDS)


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


def mininet(sizes: Sizes) -> None:
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
        like = state / "like.py"
        like.write_text(MININET)
        for hosts in sizes.hosts:
            theirs = run([python, str(like), str(hosts)], state)
            path = large(state, 5, hosts // 5, "pod-pod")
            ours = run([*LAB, "up", str(path), "--name", "like"], state)
            ours += run([*LAB, "test", "like"], state)
            ours += run([*LAB, "down", "like"], state)
            line(f"mininet, {hosts} hosts, every pair, down", f"{theirs:.2f} s")
            line(f"lab, {hosts} pods, every pair, down", f"{ours:.2f} s", f"{ours / theirs:.2f}")


PARTS: dict[str, Callable[[Sizes], None]] = {
    "start": start,
    "engine": engine,
    "pytest": pytest_items,
    "media": media,
    "scale": scale,
    "growth": growth,
    "containers": containers,
    "wine": wine,
    "mininet": mininet,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--smallest", action="store_true")
    options.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    wanted = options.parse_args()
    for name in wanted.parts or PARTS:
        if name not in PARTS:
            options.error(f"there is no part '{name}'")
        print(f"\n{name}: {PARTS[name].__doc__}", flush=True)
        PARTS[name](SMALLEST if wanted.smallest else Sizes())


if __name__ == "__main__":
    main()
