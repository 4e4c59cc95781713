"""Break the program in each way that ``tests/cases/mutations.toml`` lists; do its tests fail?

    make mutate                        all of them
    .venv/bin/python tools/mutate.py "one lost packet is a loss"

``caught``: a test failed. ``missed``: all passed. ``stale``: the text to replace is not in the file
exactly once. The working tree is not touched: everything happens in a copy of it. The exit code is
1 if anything was missed or is stale, or if the tests fail without a mutation.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "cases" / "mutations.toml"
SECONDS = 300
"""For the tests of one mutation: one that makes a loop endless is caught, too."""


@dataclass(frozen=True)
class Mutation:
    """One change of a file, and the tests that should fail for it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """As arguments of pytest."""

    def apply(self, root: Path) -> str | None:
        """Change the file below ``root``; return its text from before, None if it is stale."""
        path = root / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.count(self.old) != 1:
            return None
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")
        return text


def read_mutations(path: Path = LIST) -> tuple[Mutation, ...]:
    entries = tomllib.loads(path.read_text(encoding="utf-8"))["mutation"]
    return tuple(Mutation(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries)


def copy_tree(root: Path, target: Path) -> None:
    """Copy what git has of the working tree, with the changes that are not committed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607  git of the PATH
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source = root / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def run_tests(root: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"]
    environment: Mapping[str, str] = {
        **os.environ,
        "PYTHONPATH": str(root),
        "PYTHONDONTWRITEBYTECODE": "1",  # a changed file can have the size and second of the old
    }
    return subprocess.run(  # noqa: S603  our own tests
        [*command, *tests],
        check=False,
        cwd=root,
        env=environment,
        timeout=SECONDS,
        capture_output=True,
        text=True,
    )


def first_failure(output: str) -> str:
    failed = (line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR ")))
    return next(failed, "no test named").partition(" - ")[0]


def judge(root: Path, mutation: Mutation) -> tuple[str, str]:
    """``caught``, ``missed`` or ``stale``, and by which test or why."""
    before = mutation.apply(root)
    if before is None:
        return "stale", f"the old text is not in {mutation.file} exactly once"
    try:
        done = run_tests(root, mutation.tests)
    except subprocess.TimeoutExpired:
        return "caught", f"no end within {SECONDS} s"
    finally:
        (root / mutation.file).write_text(before, encoding="utf-8")
    if done.returncode == 0:
        return "missed", f"{mutation.file}: {' '.join(mutation.tests)} passed"
    if done.returncode != 1:  # 1: tests were run and some failed (pytest's exit codes)
        return "stale", f"pytest ended with {done.returncode}: {done.stdout[-300:]}"
    return "caught", first_failure(done.stdout)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="all if none is named")
    options = parser.parse_args(arguments)
    mutations = [
        mutation
        for mutation in read_mutations()
        if not options.names or mutation.name in options.names
    ]
    if unknown := {*options.names} - {mutation.name for mutation in mutations}:
        parser.error(f"no mutation is named {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "tree"
        copy_tree(ROOT, root)
        unchanged = run_tests(
            root, dict.fromkeys(test for mutation in mutations for test in mutation.tests)
        )
        if unchanged.returncode:
            print(unchanged.stdout)
            print("the tests fail without any mutation")
            return 1
        results = []
        for mutation in mutations:
            began = monotonic()
            verdict, reason = judge(root, mutation)
            results.append(verdict)
            print(
                f"{verdict:<7} {mutation.name}: {reason}; {monotonic() - began:.0f} s", flush=True
            )
    caught = results.count("caught")
    print(f"{caught} of {len(results)} caught, {results.count('missed')} missed, "
          f"{results.count('stale')} stale")  # fmt: skip
    return 0 if caught == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
