"""``lab check`` on existing clusters: as a whole, and the part that probes.

The clusters are made on system containers, one control plane with two and with four workers, and
then seen only through their kubeconfig. A busy machine takes longer, so the processors' seconds of
the command and the load are printed, too. Needs root and the bundle of the tests
(tests/bundle/README.md).

    python benchmarks/existing.py [--clusters 2] [--runs 3]
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/bundle"))

from bundle_images import agnhost_with_curl
from containers import ONE_PLANE, lab, line
from image_archives import write_image
from kubernetes_programs import CACHE

from lab._deadline import Deadline

CLUSTERS = {
    "three nodes": (ONE_PLANE, 15.0),
    "five nodes": (ONE_PLANE.replace("count: 2", "count: 4", 1), 20.0),
}
"""Scenario, and the seconds of the whole ``lab check`` that are wanted on two idle cores."""
IMAGE = "registry.k8s.io/e2e-test-images/agnhost:curl"
_CELLS = re.compile(r"([\d,]+ cells): .*; ([\d.]+) s$", re.MULTILINE)


def measure(name: str, scenario: Path, wanted: float, state: Path, runs: int) -> None:
    """One cluster, checked several times."""
    words = ("--only", "linux", "--name", "bench", "--provider", "nspawn", "--pods", "kubernetes")
    lab(state, "up", str(scenario), *words)
    programs = next(CACHE.glob("kubernetes-node-linux-*/agnhost")).parent
    archive = write_image(agnhost_with_curl(programs, Deadline(300)), state)
    lab(state, "image", "import", "bench", str(archive))
    kubeconfig = state / "kubeconfig"
    lab(state, "kubeconfig", "bench", "-o", str(kubeconfig))
    for number in range(1, runs + 1):
        took = lab(state, "check", "--kubeconfig", str(kubeconfig), "--image", IMAGE)
        cells = _CELLS.search(took.output)
        line(
            f"{name}: lab check, {number}",
            f"{took.seconds:.1f} s",
            f"{cells[1]} in {cells[2]} s; {took.processors:.1f} s of processors, load "
            f"{os.getloadavg()[0]:.1f}; wanted on two idle cores: {wanted:g} s"
            if cells
            else "no cells",
        )
    lab(state, "down", "bench")


def main() -> None:
    if os.geteuid():
        sys.exit("system containers need root")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, default=len(CLUSTERS), help="how many of them")
    parser.add_argument("--runs", type=int, default=3, help="checks of each")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hybridlab-bench-") as directory:
        state = Path(directory)
        try:
            for name, (text, wanted) in [*CLUSTERS.items()][: options.clusters]:
                scenario = state / "bench.yaml"
                scenario.write_text(text, encoding="utf-8")
                measure(name, scenario, wanted, state, options.runs)
        finally:
            if (state / "labs" / "bench").exists():
                lab(state, "down", "bench")


if __name__ == "__main__":
    main()
