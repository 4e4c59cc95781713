"""Build what a release consists of into dist/, and check it; nothing is uploaded.

    python tools/release.py

The wheel's files are compared with the tree that git has. Beside it are written a manifest with
their SHA-256 and a bill of materials of what is installed with it. twine checks what an index
would show, and the wheel is installed and run with each Python from 3.11 to 3.14 that is here. Ends
with 1 and says what is wrong.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
SECONDS = 900
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
MOVED = {"lab/scenarios/": "scenarios/", "lab/images/": "images/"}
"""Directories of the wheel that stand elsewhere in the tree."""
FILES = {"lab/lab.example.toml": "docs/lab.example.toml"}
BUILT = "lab/windows/wine/compiled/"
"""Of the wheel, compiled by the build."""
SMOKE = (("--version",), ("validate", "overlay"), ("plan", "overlay", "--provider", "netns"))
"""Commands that an installed wheel must run; none needs root or the network."""


def source_of(name: str) -> str:
    """The file of the tree that a file of the wheel is a copy of; empty for one that is made."""
    if name.startswith(BUILT) or ".dist-info/" in name:
        return ""
    for inside, outside in MOVED.items():
        if name.startswith(inside):
            return outside + name.removeprefix(inside)
    return FILES.get(name, name)


def compare(wheel: Mapping[str, bytes], tree: Mapping[str, bytes]) -> Iterator[str]:
    """How a wheel's files differ from those of the tree, by path; nothing if they do not."""
    copied = {source: name for name in wheel if (source := source_of(name))}
    for source, name in copied.items():
        if source not in tree:
            yield f"{name}: git does not know {source}"
        elif wheel[name] != tree[source]:
            yield f"{name}: differs from {source}"
    for path in tree:
        if path not in copied and path.startswith(("lab/", "scenarios/", "images/")):
            yield f"{path}: is not in the wheel"
    if not any(name.startswith(BUILT) for name in wheel):
        yield f"{BUILT}: the stand-ins of Wine nodes are not compiled"


def read_wheel(path: Path) -> dict[str, bytes]:
    """The content of each file in a wheel."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def read_tree(root: Path) -> dict[str, bytes]:
    """The content of each file that git tracks."""
    words = ["git", "-C", str(root), "ls-files", "-z"]
    listed = subprocess.run(words, check=True, capture_output=True, text=True).stdout  # noqa: S603  git
    paths = [path for path in listed.split("\0") if path and (root / path).is_file()]
    return {path: (root / path).read_bytes() for path in paths}


def changes(root: Path) -> list[str]:
    """What of the tree is not committed."""
    words = ["git", "-C", str(root), "status", "--porcelain"]
    listed = subprocess.run(words, check=True, capture_output=True, text=True).stdout  # noqa: S603  git
    return [f"{line[3:]}: is not committed" for line in listed.splitlines()]


def manifest(path: Path, wheel: Mapping[str, bytes]) -> dict[str, object]:
    """The SHA-256 of the wheel and of each file in it."""
    return {
        "wheel": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "files": {name: hashlib.sha256(wheel[name]).hexdigest() for name in sorted(wheel)},
    }


def bill_of_materials(wheel: str, version: str, locked: str) -> dict[str, object]:
    """CycloneDX 1.6: the wheel, and the packages that ``locked``, a requirements file, pins."""
    pins = re.findall(r"^([a-z0-9._-]+)==([^ ;\\]+)", locked, re.MULTILINE | re.IGNORECASE)
    described = {"type": "application", "bom-ref": wheel, "name": "hybridlab", "version": version}
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{number}",
            "name": name,
            "version": number,
            "purl": f"pkg:pypi/{name}@{number}",
        }
        for name, number in pins
    ]
    references = [component["bom-ref"] for component in components]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": described},
        "components": components,
        "dependencies": [{"ref": wheel, "dependsOn": references}],
    }


def check_metadata(paths: Iterable[Path]) -> str:
    """What twine finds wrong with what an index would show of the files; empty if nothing is."""
    words = [sys.executable, "-m", "twine", "check", "--strict", *map(str, paths)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603  twine
    return f"twine: {done.stdout}{done.stderr}" if done.returncode else ""


def build() -> Path:
    """Build the wheel and the source distribution; the wheel's path."""
    shutil.rmtree(DIST, ignore_errors=True)
    environment = {**os.environ, "HYBRIDLAB_COMPLETE": "1"}
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    for words in (
        [*pip, "--wheel-dir", str(DIST), str(ROOT)],
        [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(DIST)],
    ):
        subprocess.run(words, cwd=ROOT, env=environment, check=True, timeout=SECONDS)  # noqa: S603  pip
    (wheel,) = DIST.glob("*.whl")
    return wheel


def is_here(python: str) -> bool:
    """Whether this Python runs; one on PATH may be a version manager's stand-in for it."""
    if shutil.which(python) is None:
        return False
    words = [python, "-c", "import venv"]
    return not subprocess.run(words, capture_output=True, check=False).returncode  # noqa: S603  as above


def run_installed(wheel: Path, python: str) -> str:
    """Install the wheel with its locked requirements, and run it; what failed, else empty."""
    with tempfile.TemporaryDirectory() as work:
        place = Path(work)
        pip = [str(place / "venv/bin/python"), "-m", "pip", "install", "--quiet"]
        lab = str(place / "venv/bin/lab")
        environment = {**os.environ, "HYBRIDLAB_STATE": str(place / "state"), "HOME": work}
        for words in (
            [python, "-m", "venv", str(place / "venv")],
            [*pip, "--require-hashes", "--requirement", str(ROOT / "requirements.txt")],
            [*pip, "--no-deps", str(wheel)],
            *([lab, *command] for command in SMOKE),
        ):
            done = subprocess.run(  # noqa: S603  ours
                words,
                cwd=work,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            if done.returncode:
                return f"{python}: {' '.join(words)}: {done.returncode}: {done.stderr[-500:]}"
    return ""


def main() -> int:
    """Build and check a release."""
    wheel = build()
    content = read_wheel(wheel)
    wrong = [*changes(ROOT), *compare(content, read_tree(ROOT))]
    file = wheel.with_suffix(".manifest.json")
    file.write_text(json.dumps(manifest(wheel, content), indent=1) + "\n", encoding="utf-8")
    version = wheel.name.split("-")[1]
    locked = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    bill = bill_of_materials(wheel.name, version, locked)
    file = wheel.with_suffix(".cdx.json")
    file.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
    if find_spec("twine") is None:
        print("NOT RUN, as twine is not here: twine check")
    elif failure := check_metadata((wheel, *DIST.glob("*.tar.gz"))):
        wrong.append(failure)
    here = [python for python in PYTHONS if is_here(python)]
    for python in here:
        failure = run_installed(wheel, python)
        print(f"{python}: {'failed' if failure else 'installed and run'}", flush=True)
        wrong += [failure] if failure else []
    if missing := [python for python in PYTHONS if python not in here]:
        print(f"NOT RUN, as they are not here: {', '.join(missing)}")
    for path in sorted(DIST.iterdir()):
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT)}")
    for line in wrong:
        print(f"wrong: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
