"""Kubernetes' own tests on a cluster of system containers: of networking, or of Windows nodes.

``make conformance`` runs those of networking that are marked conformance on a control plane and a
worker; ``make conformance-windows`` those of Windows nodes and of Services with Windows pods on a
control plane and two Wine nodes. The cluster comes up, upstream's test program tests it and writes
JUnit, and it is taken down. Exit code 1 if a test fails, unless ``conformance_windows.toml`` says
why it does; 4 if this machine cannot have Wine nodes.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from xml.etree import ElementTree as ET

TESTS = Path(__file__).parents[3]
sys.path[:0] = [str(TESTS), str(TESTS / "bundle")]

import wine_tests  # noqa: E402
from bundle.made_bundle import PARTS, made_bundle, made_input  # noqa: E402

LAB = "conformance"
SECONDS = 7200
"""For all tests, which took a third of it on two busy cores."""
KNOWN = Path(__file__).with_name("conformance_windows.toml")


@dataclass(frozen=True, slots=True)
class Suite:
    """What is tested, on which cluster."""

    scenario: Path
    focus: str
    parts: tuple[str, ...]
    """Of a test bundle: the images that the tests want."""
    words: tuple[str, ...]
    """More words for upstream's program."""
    known: Mapping[str, str]
    """Tests that fail, and why."""


def linux_suite() -> Suite:
    """The network's conformance tests."""
    focus = r"\[sig-network\].*\[Conformance\]"
    return Suite(TESTS / "cluster.yaml", focus, ("conformance",), (), {})


def windows_suite() -> Suite:
    """The tests of Windows nodes, and of Services with Windows pods."""
    told = tomllib.loads(KNOWN.read_text(encoding="utf-8"))
    skipped = "|".join(told["not-run"])
    return Suite(
        Path(__file__).with_name("wine_conformance.yaml"),
        "|".join(told["run"]),
        ("conformance", "conformance-windows"),
        ("--node-os-distro=windows", f"--ginkgo.skip={skipped}"),
        told["fails"],
    )


def main() -> int:
    """Bring the cluster up, test it, and take it down."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--windows", action="store_true", help="of Windows nodes, on Wine")
    parser.add_argument("--focus", help="regular expression, instead of the suite's")
    parser.add_argument("--output", type=Path, default=Path("conformance"), help="%(default)s")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    suite = windows_suite() if asked.windows else linux_suite()
    inputs = Path(made_input(*suite.parts))
    if not asked.windows:
        made_bundle()
    elif why := wine_tests.lacking():
        print(f"NOT RUN: tests of Wine nodes: {why}")
        return wine_tests.NOT_POSSIBLE
    else:
        made = made_input(*PARTS, "windows")
        os.environ |= {"XDG_CACHE_HOME": str(wine_tests.CACHE), "HYBRIDLAB_INVENTORY": os.devnull}
        _lab({}, "bundle", "create", "--from", made)
    with tempfile.TemporaryDirectory(prefix="hybridlab-conformance-") as folder:
        state = {"HYBRIDLAB_STATE": folder}
        try:
            _lab(state, "up", str(suite.scenario), "--name", LAB, "--provider", "nspawn")
            for archive in sorted(inputs.glob("*-images/*.tar")):
                _lab(state, "image", "import", LAB, str(archive))
            kubeconfig = Path(folder) / "kubeconfig"
            with kubeconfig.open("wb") as into:
                _lab(state, "kubeconfig", LAB, stdout=into)
            began = time.monotonic()
            _judge(inputs / "linux-amd64", kubeconfig, suite, asked.focus, asked.output)
            seconds = time.monotonic() - began
        except subprocess.CalledProcessError as error:
            for path in Path(folder).glob("labs/*/evidence/*"):
                shutil.copy(path, asked.output)
            return int(error.returncode)
        finally:
            _lab(state, "down", LAB)
    return _tell(asked.output / "junit_01.xml", seconds, suite.known)


def _lab(state: Mapping[str, str], *words: str, stdout: BinaryIO | None = None) -> None:
    subprocess.run(
        (sys.executable, "-m", "lab", *words),
        env=os.environ | state,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        check=True,
        timeout=SECONDS,
    )


def _judge(programs: Path, kubeconfig: Path, suite: Suite, focus: str | None, output: Path) -> None:
    """Run upstream's program; details of failures are in ``e2e.log``.

    Of a cluster with Windows nodes, the control plane takes only the pods that want it.
    """
    kubectl = (programs / "kubectl", f"--kubeconfig={kubeconfig}")
    if suite.known:
        taint = "node-role.kubernetes.io/control-plane=:NoSchedule"
        subprocess.run((*kubectl, "taint", "node", "master", taint), check=True, timeout=SECONDS)
    with (output / "e2e.log").open("wb") as log:
        subprocess.run(
            (
                programs / "e2e.test",
                f"--kubeconfig={kubeconfig}",
                f"--kubectl-path={kubectl[0]}",
                f"--report-dir={output.absolute()}",
                f"--ginkgo.focus={focus or suite.focus}",
                "--ginkgo.no-color",
                "--ginkgo.silence-skips",
                "--provider=skeleton",
                "--num-nodes=2",
                "--dump-logs-on-failure=false",
                *suite.words,
            ),
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=SECONDS,
        )


def _tell(junit: Path, seconds: float, known: Mapping[str, str]) -> int:
    """Print every test that did not pass, and the number of those that did."""
    counted = Counter[str]()
    unknown = False
    for case in ET.parse(junit).iter("testcase"):
        status, name = case.get("status", ""), case.get("name", "")
        if status == "skipped" or not name.startswith("[It]"):
            continue
        counted[status] += 1
        why = next((why for part, why in known.items() if part in name), "")
        if status != "passed":
            unknown |= not why
            print(f"{status}: {name}{f': {why}' if why else ''}")
        elif why:
            print(f"passes, though it is known to fail: {name}: {why}")
    told = ", ".join(f"{count} {status}" for status, count in sorted(counted.items()))
    print(f"{told or 'no test was run'}; {seconds:.0f} s; {junit.parent}")
    return 0 if counted and not unknown else 1


if __name__ == "__main__":
    sys.exit(main())
