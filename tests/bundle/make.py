"""Make the input directory of a bundle from Go modules: a tool for tests, not in the wheel.

``python tests/bundle/make.py --output DIRECTORY [--only PART ...]``; see README.md.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import windows_images
from bundle_cache import UNFINISHED, copy_out, digest, finished_folder, link_files, only_one, say
from bundle_images import bundle_images, calico_images, conformance_images
from bundle_pins import (
    CALICO,
    CONFORMANCE,
    CONFORMANCE_WINDOWS,
    MORE_PARTS,
    PARTS,
    Build,
    Pins,
    read_pins,
)
from go_programs import (
    C_PACKAGES,
    build_key,
    build_pause,
    build_programs,
    module_folder,
    pause_command,
)
from host_programs import (
    CALICO_PACKAGES,
    CLIENT_PACKAGES,
    PACKAGES,
    UNPACKED,
    candidates,
    install,
)
from image_archives import write_image

from lab._deadline import Deadline
from lab._errors import LabError

HERE = Path(__file__).parent
TIMEOUT = 5400.0
"""Total seconds: three times the duration of the first run on two busy cores."""
LINUX, WINDOWS = Path("linux-amd64"), Path("windows-amd64")
_IMAGES = {
    "images": (Path("images"), "images", bundle_images),
    CONFORMANCE: (Path("conformance-images"), "conformance-images", conformance_images),
    CONFORMANCE_WINDOWS: (
        Path("windows-images"),
        "windows-images",
        windows_images.conformance_images,
    ),
    CALICO: (Path("images"), "calico-images", calico_images),
}
"""Part to the target folder of its images, their folder in the cache, and the images."""
POWERSHELL = "powershell"
NOT_A_COMPONENT = (
    *("staging", "calico-module", "calico-api"),
    *("glibc-dns-testing", "distroless-iptables", "busybox", "regression-issue-74839"),
    *("nginx", "nonroot"),
)
"""Names in the pins that are not components of a bundle."""
Finished = list[tuple[Path, Path]]
"""Pairs of a finished folder in the cache and its place in the input directory."""


GO = "/usr/local/go/bin"
"""Where Go's instructions unpack its archive; it may be missing from PATH."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return exit code 0, or that of the error."""
    parser = argparse.ArgumentParser(description="Make a bundle's input directory from Go modules.")
    parser.add_argument("--output", type=Path, help="a new or empty directory; or none")
    parser.add_argument(
        "--only",
        choices=(*PARTS, *MORE_PARTS),
        action="append",
        help="more than once: several; none: {}".format(", ".join(PARTS)),
    )
    parser.add_argument("--cache", type=Path, default=default_cache(), help="%(default)s")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="s for all; %(default)g")
    asked = parser.parse_args(arguments)
    os.environ["PATH"] += f"{os.pathsep}{GO}"
    # on SIGTERM, end as after Ctrl-C: end go, and remove unfinished folders
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        parts = frozenset(asked.only or PARTS)
        made = make_input(parts, asked.cache, Deadline(asked.timeout))
        if asked.output:
            copy_out(made, asked.output)
    except LabError as error:
        print(f"bundle: {error}", file=sys.stderr)
        return error.exit_code
    print(asked.output or made)
    return 0


def default_cache() -> Path:
    """Return the directory of finished programs and images."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hybridlab" / "test-bundle"


def _home(build: Build) -> Path:
    """Folder of the build's programs in the input directory."""
    return Path(f"{build.system}-amd64") / build.folder


def make_input(parts: frozenset[str], cache: Path, deadline: Deadline) -> Path:
    """Return the finished input directory of ``parts`` in ``cache``; build what is missing."""
    pins = read_pins()
    builds = pins.chosen(parts)
    cache.mkdir(parents=True, exist_ok=True)
    with only_one(cache, deadline):
        linux = any(build.system == "linux" for build in builds)
        wanted = (*C_PACKAGES, *PACKAGES, *(CLIENT_PACKAGES if CONFORMANCE in parts else ()))
        wanted += CALICO_PACKAGES if CALICO in parts else ()
        packages = install(tuple(dict.fromkeys(wanted)), deadline) if linux else {}
        finished = [(_home(build), _programs(build, cache, deadline)) for build in builds]
        if "node" in {build.part for build in builds}:
            finished.append((LINUX, _pause(pins, packages, cache, deadline)))
        if "windows" in {build.part for build in builds}:
            finished += _powershell(pins, cache)
        for part, (place, _, _) in _IMAGES.items():
            if part in parts:
                used = packages | (candidates(UNPACKED, deadline) if part == CALICO else {})
                finished.append((place, _images(part, pins, finished, used, cache, deadline)))
        return _assembled(pins, finished, cache)


def _powershell(pins: Pins, cache: Path) -> Finished:
    """PowerShell's release archive, which Wine nodes run, if it is in the cache."""
    name = f"PowerShell-{pins.windows_versions[POWERSHELL]}-win-x64.zip"
    archive = cache / name
    if not archive.is_file():
        say(f"without PowerShell: there is no {archive}")
        return []

    def make(into: Path) -> None:
        shutil.copyfile(archive, into / "powershell.zip")

    folder = cache / f"{POWERSHELL}-windows-{digest(name, archive)}"
    return [(WINDOWS, finished_folder(folder, "PowerShell for windows", make))]


def _programs(build: Build, cache: Path, deadline: Deadline) -> Path:
    """Return the finished folder of one build's programs."""
    folder = cache / f"{build.name}-{build.system}-{build_key(build)}"
    return finished_folder(folder, build.title, lambda into: build_programs(build, into, deadline))


def _pause(pins: Pins, packages: dict[str, str], cache: Path, deadline: Deadline) -> Path:
    """Return the finished folder of ``pause``, from the C source in the Kubernetes module."""
    version = pins.versions["pause"]
    module = next(module for module in pins.modules if module.name == "kubernetes")

    def make(into: Path) -> None:
        source = module_folder(module, deadline) / "build/pause/linux/pause.c"
        build_pause(source, into, version, deadline)

    compilers = [packages[name] for name in C_PACKAGES]
    key = digest((pause_command(version), module.requires, compilers))
    return finished_folder(cache / f"pause-linux-{key}", "pause for linux", make)


def _images(  # noqa: PLR0913, PLR0917  all that images are made of
    part: str,
    pins: Pins,
    finished: Finished,
    packages: dict[str, str],
    cache: Path,
    deadline: Deadline,
) -> Path:
    """Return the finished folder of the archives of ``part``'s images."""
    _, name, images = _IMAGES[part]
    system = WINDOWS if part == CONFORMANCE_WINDOWS else LINUX
    used = [(home, folder) for home, folder in finished if home.parts[0] == system.name]

    def make(into: Path) -> None:
        with tempfile.TemporaryDirectory(dir=cache, prefix=UNFINISHED) as scratch:
            programs = Path(scratch)
            for home, folder in used:
                link_files(folder, programs / home.relative_to(system))
            for image in images(pins.versions, programs, deadline):
                write_image(image, into)

    names = {"bundle_images", "windows_images"} if system == WINDOWS else {"bundle_images"}
    sources = [f"{name}.py" for name in sorted(names | {"host_programs", "image_archives"})]
    told = (pins.versions, packages, [folder.name for _, folder in used])
    key = digest(told, *(HERE / name for name in sources))
    return finished_folder(cache / f"{name}-{key}", name, make)


def _assembled(pins: Pins, finished: Finished, cache: Path) -> Path:
    """Return the input directory that links all of ``finished``.

    Calico's programs are only in its images.
    """
    finished = [(home, folder) for home, folder in finished if home.name != CALICO]
    key = digest((pins.versions, [folder.name for _, folder in finished]), Path(__file__))

    def make(into: Path) -> None:
        for home, folder in finished:
            link_files(folder, into / home)
        windows = {folder.name.partition("-windows-")[0] for _, folder in finished}
        versions = pins.versions | {
            name: version for name, version in pins.windows_versions.items() if name in windows
        }
        told = {name: version for name, version in versions.items() if name not in NOT_A_COMPONENT}
        (into / "versions.json").write_text(json.dumps(told, indent=1) + "\n")

    return finished_folder(cache / f"input-{key}", "input directory", make)


if __name__ == "__main__":
    sys.exit(main())
