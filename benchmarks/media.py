"""Reading an installation medium of 5 GiB, beside other programs, in one run.

The medium is sparse, with a WIM of 5 GiB and 1,000 files, in Microsoft's layout: a stand-in, not
Windows. Others do part of it: ``wiminfo`` reads a WIM that has been taken out of the medium
before, ``xorriso`` sees the loaders and ISO 9660 but no UDF, ``7z l`` lists names. What is not
there is left out.

    python benchmarks/media.py [--runs 7] [--mib 5120]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "windows"))

import media_maker

from lab.windows.images.medium import overlay, read

ROOT = Path(__file__).resolve().parents[1]
MIB = 5 << 10
FILES = 1000
OURS = "import sys; from pathlib import Path; from lab.windows.images.medium import read; "
OURS += "read(Path(sys.argv[1]))"


def median(runs: int, call: Callable[[], object]) -> float:
    """Seconds; the first time, which fills the caches, does not count."""
    call()
    taken = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def process(*command: str) -> Callable[[], object]:
    def run() -> None:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")

    return run


def made(directory: Path, mib: int) -> tuple[Path, Path]:
    """A medium, and its WIM as a file of its own."""
    (wim,) = media_maker.install_wim(directory / "wim")
    media_maker.grow(wim, mib << 20)
    many = {f"/support/{number:04}.dll": b"x" * 100 for number in range(FILES)}
    medium = media_maker.make(directory, files={"/sources/install.wim": wim, **many})
    return medium, wim


def layered(medium: Path, directory: Path) -> Callable[[], object]:
    contents, out = read(medium), directory / "layer.qcow2"

    def run() -> None:
        overlay(medium, contents, out)
        out.unlink()

    return run


def others(medium: Path, wim: Path) -> dict[str, list[str]]:
    """Programs that do a part of it, as far as they are there."""
    known = {
        "wiminfo, the WIM alone": ["wiminfo", str(wim)],
        "xorriso, loaders and ISO 9660": ["xorriso", "-indev", str(medium), "-pvd_info"],
        "7z l, names": ["7z", "l", str(medium)],
    }
    return {name: command for name, command in known.items() if shutil.which(command[0])}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=7)
    options.add_argument("--mib", type=int, default=MIB, help="of the WIM")
    wanted = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="hybridlab-bench-") as name:
        directory = Path(name)
        medium, wim = made(directory, wanted.mib)
        print(f"a medium of {medium.stat().st_size / 1e9:.2f} GB, {FILES:,} files beside the WIM")
        inspect = [sys.executable, "-m", "lab", "image", "inspect", str(medium)]
        ways: dict[str, Callable[[], object]] = {
            "read, in a process that has read one before": lambda: read(medium),
            "read, a new Python": process(sys.executable, "-c", OURS, str(medium)),
            "a new Python alone": process(sys.executable, "-c", "pass"),
            "lab image inspect": process(*inspect),
        }
        ways |= {name: process(*command) for name, command in others(medium, wim).items()}
        if shutil.which("qemu-io"):
            ways["a layer that asks for no key"] = layered(medium, directory)
        figures = {way: median(wanted.runs, call) for way, call in ways.items()}
    ours = next(iter(figures.values()))
    for way, seconds in figures.items():
        print(f"{way:<52} {seconds * 1e3:>9.1f} ms  {seconds / ours:6.2f} times the first")


if __name__ == "__main__":
    main()
