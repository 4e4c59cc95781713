"""What this machine has for Wine nodes, and what it keeps of them that nothing needs."""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from lab.machines.bundle.manifest import POWERSHELL, Manifest, create_command, download_words
from lab.machines.bundle.store import BundleStore
from lab.machines.images.golden import entries
from lab.machines.images.terms import RELEASES
from lab.machines.nspawn import prepared
from lab.providers.provider import Diagnosis
from lab.scenario.versions import SUPPORTED
from lab.shells import programs
from lab.state.lock import holder
from lab.windows.wine import IMAGE, bundle, standins, template

SUBJECT = "Windows nodes on Wine, in system containers"
PROCESSORS = "x86_64"
FOLDER = "wine"
"""Directory in the cache."""


def unfit() -> str:
    """Why this machine can never have Wine nodes; empty if it can."""
    processors = platform.machine()
    if processors == PROCESSORS:
        return ""
    return f"Wine nodes need {PROCESSORS} processors, and this machine's are {processors}"


def examine(cache: Path, has_root: Callable[[str], bool]) -> Iterator[Diagnosis]:
    """What ``lab doctor`` says: one finding for each thing that Wine nodes need."""
    if why := unfit():
        yield _warn("processors", why, "labs of Linux nodes: '--only linux'")
        return
    if os.geteuid() != 0:
        yield _warn("root", "system containers need root, Wine nodes too", "sudo")
        return
    yield _image(has_root)
    yield from _probes(cache)
    yield _powershell(BundleStore(cache).all())
    yield _compiler(cache)


def _image(has_root: Callable[[str], bool]) -> Diagnosis:
    if has_root(IMAGE):
        return _ok("image", f"'{IMAGE}' is made")
    return _warn(
        "image",
        f"there is no root file system of '{IMAGE}' yet",
        "the first 'lab up' with a Windows node makes it: 1.1 GB, a minute",
    )


def _probes(cache: Path) -> Iterator[Diagnosis]:
    try:
        record = json.loads((cache / FOLDER / template.FAILED).read_text(encoding="utf-8"))
        failed = f"probe '{record['probe']}' says: {record['lack']}"
        image = record["image"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    yield _warn(
        "probes",
        f"the Wine of '{image}' does not do what Wine nodes need, with its stand-in: {failed}",
        f"Debian 13's Wine 10.0, the one of '{IMAGE}', passes: 'lab image gc --yes', then "
        "'lab up' makes the image again",
    )


def _powershell(bundles: Collection[Manifest]) -> Diagnosis:
    for manifest in bundles:
        if any(program.name == POWERSHELL for program in manifest.programs):
            return _ok("PowerShell", f"in bundle '{manifest.short}'")
    command = create_command(SUPPORTED[-1], ("linux", "windows"))
    return _warn(
        "PowerShell",
        "no bundle has PowerShell for Windows",
        f"{command}  # {download_words(('linux', 'windows'))}",
    )


def _compiler(cache: Path) -> Diagnosis:
    if standins.is_packaged():
        return _ok("stand-ins", "compiled, of this installation")
    if standins.place(cache).is_dir():
        return _ok("stand-ins", "compiled, in the cache")
    missing = [name for name in (standins.COMPILER, standins.RESOURCES) if not shutil.which(name)]
    if not missing:
        return _ok("stand-ins", f"{standins.COMPILER} compiles them")
    packages = " ".join(dict.fromkeys(programs.PACKAGES[name] for name in missing))
    return _warn(
        "stand-ins",
        f"'{standins.COMPILER}', which compiles them in a clone, not found",
        f"sudo apt-get install {packages}",
    )


def unused(cache: Path, bundles: Collection[Manifest], held: Collection[Path]) -> Iterator[Path]:
    """Templates, stand-ins and prepared bundles that neither labs nor new ones use.

    ``bundles``: those that stay. ``held``: directories that labs use. What a command is making now
    is left alone.
    """
    wanted = {*held, standins.place(cache), *_current(cache, bundles)}
    of_bundles = (
        path
        for path in entries(cache / "containers")
        if path.name.lstrip(".").startswith("wine-") and not prepared.is_in_making(path)
    )
    of_wine = (
        path
        for path in entries(cache / FOLDER)
        if path.name != template.FAILED and holder(standins.lock(path)) is None
    )
    yield from (path for path in (*of_bundles, *of_wine) if path not in wanted)


def _current(cache: Path, bundles: Collection[Manifest]) -> Iterator[Path]:
    """What a new lab would use of what the cache has."""
    store = BundleStore(cache)
    roots = [path for path in entries(cache / "roots") if path.name.startswith(f"{IMAGE}-")]
    for manifest in bundles:
        if bundle.lacks_powershell(manifest):
            continue
        archive = bundle.powershell((store, manifest))
        for root in roots:
            for year in RELEASES:
                made = template.place(cache, root / "root", year, archive)
                yield from (made, bundle.place(cache, manifest, made))


def _ok(check: str, finding: str) -> Diagnosis:
    return Diagnosis(SUBJECT, check, "ok", finding)


def _warn(check: str, finding: str, hint: str) -> Diagnosis:
    return Diagnosis(SUBJECT, check, "warn", finding, hint)
