"""Virtual machines to SSH: ours beside virt-install's and kcli's, on one image, in one run.

All three clone the same golden image, boot its kernel directly, and find the same kind of seed
on a virtio disk; all have one vCPU and 768 MiB. Each figure is from the start of the command to
the last machine's SSH login, the median of the runs; the tools take turns.

    python benchmarks/machines.py [--runs 3] [--counts 1 3]

``virt-install`` is the package virtinst; ``kcli`` is best had in a virtual environment of its
own, named by $KCLI: ``python3 -m venv /tmp/kcli && /tmp/kcli/bin/pip install kcli``. What is not
there is left out.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from rivals import Kcli, Place, VirtInstall, place

from lab._deadline import Deadline
from lab._log import say
from lab.inventory.inventory import STOCK, Inventory
from lab.lifecycle.compilation import compile_scenario
from lab.machines.images.golden import GoldenImage, cache_directory
from lab.machines.images.image_store import ImageStore
from lab.machines.libvirt.host import Host
from lab.machines.libvirt.provider import LibvirtProvider
from lab.providers.provider import LabHandle
from lab.topology.intent import Intent

ENOUGH_SECONDS = 600.0
IMAGE = "debian-12"
MEMORY_MIB, VCPUS, DISK_GIB = 768, 1, 20
MANY_VCPUS = 1024
OURS = "--ours"
TOKEN = "be2c" * 4


def line(subject: str, figure: str, remark: str = "") -> None:
    print(f"{subject:<52} {figure:>14}  {remark}", flush=True)


def stock(*, accelerated: bool) -> Inventory:
    """This machine's libvirt. What is known of its acceleration is not asked again in a run, and
    other labs there do not count against the bench's."""
    known = "kvm" if accelerated else "tcg"
    hypervisor = STOCK.hypervisors["local"].replace(acceleration=known, vcpus=MANY_VCPUS)
    return STOCK.replace(hypervisors={hypervisor.name: hypervisor})


def intent_of(count: int) -> Intent:
    """So many like machines: nodes of a shipped scenario, made as small as the others'."""
    whole = compile_scenario("overlay", only="linux").intent
    nodes = [machine for machine in whole.machines if machine.kind == "node"][:count]
    hardware = replace(
        nodes[0].hardware, image=IMAGE, vcpus=VCPUS, memory_mib=MEMORY_MIB, disk_gib=DISK_GIB
    )
    return replace(whole, machines=tuple(replace(node, hardware=hardware) for node in nodes))


def ours(directory: Path, count: int, *, accelerated: bool) -> None:
    """Everything of 'lab up' that leads to machines one can log in to; a process of its own."""
    lab = LabHandle("bench", directory / "labs" / "bench", TOKEN)
    lab.directory.mkdir(parents=True, exist_ok=True)
    provider = LibvirtProvider(stock(accelerated=accelerated))
    for step in provider.steps(lab, intent_of(count)):
        if step.name != "network":  # pods and their tunnels, which the others do not have
            step.run()


def destroy(directory: Path, *, accelerated: bool) -> None:
    lab = LabHandle("bench", directory / "labs" / "bench", TOKEN)
    LibvirtProvider(stock(accelerated=accelerated)).destroy(lab)
    shutil.rmtree(lab.directory, ignore_errors=True)


def timed_ours(directory: Path, count: int, *, accelerated: bool) -> float:
    command = [sys.executable, __file__, OURS, str(directory), str(count)]
    command += ["--accelerated"] if accelerated else []
    try:
        started = time.perf_counter()
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ENOUGH_SECONDS, check=False
        )
        seconds = time.perf_counter() - started
    finally:
        destroy(directory, accelerated=accelerated)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return seconds


def rounds(
    runs: int, counts: Sequence[int], directory: Path, image: GoldenImage, where: Place
) -> dict[str, list[float]]:
    """Every figure of every run, by name."""
    virt_install, kcli = VirtInstall(where, image), Kcli(where, image)
    figures: dict[str, list[float]] = {}

    def note(name: str, seconds: float) -> None:
        figures.setdefault(name, []).append(seconds)
        say(f"{name}: {seconds:.1f} s")

    for _ in range(runs):
        for count in counts:
            seconds = timed_ours(directory, count, accelerated=where.accelerated)
            note(f"ours, {count}", seconds)
        if virt_install.there:
            note("virt-install, 1", virt_install.timed(Deadline(ENOUGH_SECONDS)))
        if kcli.there:
            note("kcli, 3", kcli.timed(Deadline(ENOUGH_SECONDS)))
    return figures


def told(figures: dict[str, list[float]]) -> None:
    """The medians, and how many times theirs ours are."""
    medians = {name: statistics.median(seconds) for name, seconds in figures.items()}
    for name, seconds in figures.items():
        spread = f"{min(seconds):.1f} to {max(seconds):.1f}"
        line(f"machines to SSH: {name}", f"{medians[name]:.1f} s", spread)
    for ours_is, theirs, target in (
        ("ours, 1", "virt-install, 1", 1.0),
        ("ours, 3", "kcli, 3", 0.8),
    ):
        if {ours_is, theirs} <= medians.keys():
            ratio = medians[ours_is] / medians[theirs]
            line(f"{ours_is} / {theirs}", f"{ratio:.2f}", f"wanted: at most {target:g}")
        else:
            line(f"{ours_is} / {theirs}", "-", "not measured")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--counts", type=int, nargs="+", default=(1, 3), help="of machines at once")
    parser.add_argument(OURS, nargs=2, metavar=("DIRECTORY", "COUNT"), help=argparse.SUPPRESS)
    parser.add_argument("--accelerated", action="store_true", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.ours:
        directory, count = wanted.ours
        ours(Path(directory), int(count), accelerated=wanted.accelerated)
        return
    accelerated = Host(STOCK.hypervisors["local"]).accelerated
    image = ImageStore(cache_directory(STOCK), STOCK).get(IMAGE, say)
    with ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="hybridlab-bench-"))
        )
        where = stack.enter_context(place(image, accelerated=accelerated))
        say("once over, not counted: the image is copied to the hypervisor")
        timed_ours(directory, 1, accelerated=accelerated)
        told(rounds(wanted.runs, wanted.counts, directory, image, where))


if __name__ == "__main__":
    main()
