"""Kubernetes' own conformance tests of networking, on a cluster of system containers.

``make conformance`` runs it: a control plane and a worker come up, upstream's test program tests
them and writes JUnit, and they are taken down. Exit code 1 if a test fails.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import BinaryIO
from xml.etree import ElementTree as ET

TESTS = Path(__file__).parents[3]
sys.path[:0] = [str(TESTS), str(TESTS / "bundle")]

from bundle.made_bundle import made_bundle, made_input  # noqa: E402

SCENARIO = TESTS / "cluster.yaml"
LAB = "conformance"
NODES = ("master", "worker")
FOCUS = r"\[sig-network\].*\[Conformance\]"
SECONDS = 3600
"""For all tests, which took a third of it on two busy cores."""
CTR = ("/run/hybridlab/bundle/bin/ctr", "--namespace", "k8s.io", "images", "import", "--local", "-")


def main() -> int:
    """Bring the cluster up, test it, and take it down."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--focus", default=FOCUS, help="regular expression; %(default)s")
    parser.add_argument("--output", type=Path, default=Path("conformance"), help="%(default)s")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    made_bundle()
    programs = Path(made_input("conformance"))
    with tempfile.TemporaryDirectory(prefix="hybridlab-conformance-") as folder:
        environment = os.environ | {"HYBRIDLAB_STATE": folder}
        try:
            _lab(environment, "up", str(SCENARIO), "--name", LAB, "--provider", "nspawn")
            for node in NODES:
                for archive in sorted((programs / "conformance-images").iterdir()):
                    with archive.open("rb") as content:
                        _lab(environment, "exec", LAB, node, "--", *CTR, stdin=content)
            kubeconfig = Path(folder) / "kubeconfig"
            with kubeconfig.open("wb") as into:
                _lab(environment, "kubeconfig", LAB, stdout=into)
            began = time.monotonic()
            _judge(programs / "linux-amd64", kubeconfig, asked.focus, asked.output)
            seconds = time.monotonic() - began
        except subprocess.CalledProcessError as error:
            for path in Path(folder).glob("labs/*/evidence/*"):
                shutil.copy(path, asked.output)
            return int(error.returncode)
        finally:
            _lab(environment, "down", LAB)
    return _tell(asked.output / "junit_01.xml", seconds)


def _lab(
    environment: dict[str, str],
    *words: str,
    stdin: BinaryIO | None = None,
    stdout: BinaryIO | None = None,
) -> None:
    subprocess.run(
        (sys.executable, "-m", "lab", *words),
        env=environment,
        stdin=stdin or subprocess.DEVNULL,
        stdout=stdout,
        check=True,
        timeout=SECONDS,
    )


def _judge(programs: Path, kubeconfig: Path, focus: str, output: Path) -> None:
    """Run upstream's program; details of failures are in ``e2e.log``."""
    with (output / "e2e.log").open("wb") as log:
        subprocess.run(
            (
                programs / "e2e.test",
                f"--kubeconfig={kubeconfig}",
                f"--kubectl-path={programs / 'kubectl'}",
                f"--report-dir={output.absolute()}",
                f"--ginkgo.focus={focus}",
                "--ginkgo.no-color",
                "--ginkgo.silence-skips",
                "--provider=skeleton",
                f"--num-nodes={len(NODES)}",
                "--dump-logs-on-failure=false",
            ),
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=SECONDS,
        )


def _tell(junit: Path, seconds: float) -> int:
    """Print every test that did not pass, and the number of those that did."""
    counted = Counter[str]()
    for case in ET.parse(junit).iter("testcase"):
        status = case.get("status", "")
        if status == "skipped" or not case.get("name", "").startswith("[It]"):
            continue
        counted[status] += 1
        if status != "passed":
            print(f"{status}: {case.get('name')}")
    told = ", ".join(f"{count} {status}" for status, count in sorted(counted.items()))
    print(f"{told or 'no test was run'}; {seconds:.0f} s; {junit.parent}")
    return 0 if set(counted) == {"passed"} else 1


if __name__ == "__main__":
    sys.exit(main())
