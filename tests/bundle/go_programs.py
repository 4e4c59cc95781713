"""Programs from Go modules: one ``go build`` for each build of the pins, cached."""

import functools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bundle_cache import digest
from bundle_pins import Build, Module

from lab._deadline import Deadline
from lab._errors import BrokenError, DeadlineError, PreflightError

LAST_LINES = 15
"""Lines of a failed command's output in a message."""
HERE = Path(__file__).parent
_OURS = {"GOMAXPROCS": "2", "GOWORK": "off"}
_FLAGS = {"GOFLAGS": "-buildvcs=false"}
"""Instead of the user's flags, so that programs and their cache keys are the same for everyone."""
_TEST = ("test", "-c", "-vet=off")
"""Without vetting the tests and their imports, which takes longer than compiling them."""
C_PACKAGES = ("gcc", "libc6-dev", "libseccomp-dev")
"""Debian packages that runc and pause are built with."""


def build_key(build: Build) -> str:
    """Return a hash of the inputs of ``build``, as 12 hex digits.

    Its pins, its module's files, the command that builds it, and the toolchains.
    """
    told = (build, go_command(build, Path("into")), _OURS, toolchain(build.cgo))
    return digest(told, *sorted(build.module.folder.iterdir()))


@functools.cache
def toolchain(cgo: bool) -> str:
    """Return the identity of the Go toolchain and, if ``cgo``, of the C toolchain."""
    asked = ["go", "env", "GOVERSION", "GOFLAGS", "GOEXPERIMENT", "GOAMD64"]
    deadline = Deadline(60.0)
    completed = run("looking for the Go toolchain", asked, deadline, HERE, os.environ | _FLAGS)
    if cgo:
        asked = ["dpkg-query", "--show", *C_PACKAGES]
        completed += run("looking for the C toolchain", asked, deadline, HERE)
    return completed


def build_programs(build: Build, into: Path, deadline: Deadline) -> None:
    """Build the programs of ``build`` into the empty folder ``into``.

    Raises BrokenError when go failed, with its last lines of output; DeadlineError at the deadline:
    what go has done until then stays in its cache.
    """
    text = f"building {build.title}"
    with tempfile.TemporaryDirectory(prefix="hybridlab-go-") as scratch:
        folder = Path(scratch)
        for path in build.module.folder.iterdir():
            shutil.copyfile(path, folder / path.name)
        # go leaves its own temporary folder behind when it is killed
        environment = go_environment(build) | {"GOTMPDIR": scratch}
        if build.module.copies:
            command = ["go", "mod", "download", "-json", build.module.requires[0]]
            told = json.loads(run(text, command, deadline, folder, environment))
            copy_main(build.module, folder, Path(told["Dir"]))
        run(text, go_command(build, into), deadline, folder, environment)
    ending = ".exe" if build.system == "windows" else ""
    for theirs, ours in build.names:
        (into / (theirs + ending)).rename(into / (ours + ending))


def go_command(build: Build, into: Path) -> list[str]:
    """Return the command line of the build."""
    linked = ["-s", "-w"] + [word for one in build.sets for word in ("-X", one)]
    if build.cgo:
        linked += ["-linkmode", "external", "-extldflags", "-static"]
    return [
        *("nice", "go", *(_TEST if build.test else ("build",))),
        *("-p", "2", "-mod=readonly", "-trimpath"),
        f"-tags={build.tags}",
        f"-ldflags={' '.join(linked)}",
        f"-o={into}{os.sep}",
        *build.packages,
    ]


def go_environment(build: Build) -> dict[str, str]:
    """Return the environment of a go command: the caller's, with the build's system."""
    ours = {
        "GOOS": build.system,
        "GOARCH": "amd64",
        "CGO_ENABLED": "1" if build.cgo else "0",
    }
    return os.environ | _OURS | _FLAGS | ours


def copy_main(module: Module, folder: Path, theirs: Path) -> None:
    """Copy main.go of ``theirs`` into a package in ``folder``, less excluded imports."""
    if not module.copies:
        return
    lines = (theirs / "main.go").read_text().splitlines(keepends=True)
    kept = [line for line in lines if not any(f'"{one}"' in line for one in module.without)]
    (folder / module.copies).mkdir()
    (folder / module.copies / "main.go").write_text("".join(kept))


def pause_command(version: str) -> list[str]:
    """Return upstream's command to build ``pause``, 60 lines of C, without the file names."""
    return ["gcc", "-Os", "-Wall", "-Werror", "-static", "-s", f"-DVERSION=v{version}"]


def build_pause(source: Path, into: Path, version: str, deadline: Deadline) -> None:
    """Build ``pause`` from upstream's C source."""
    command = [*pause_command(version), "-o", str(into / "pause"), str(source)]
    run("building pause for linux", command, deadline, into)


def module_folder(module: Module, deadline: Deadline) -> Path:
    """Return the folder of the first requirement of ``module``, downloaded and checked."""
    with tempfile.TemporaryDirectory(prefix="hybridlab-go-") as scratch:
        folder = Path(scratch)
        for name in ("go.mod", "go.sum"):
            shutil.copyfile(module.folder / name, folder / name)
        command = ["go", "mod", "download", "-json", module.requires[0]]
        told = run(f"downloading {module.requires[0]}", command, deadline, folder)
    return Path(json.loads(told)["Dir"])


def run(
    doing: str,
    command: Sequence[str],
    deadline: Deadline,
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run ``command`` in ``folder`` and return its output.

    Raises PreflightError when the program is missing; BrokenError when it failed, with its last
    lines of output; DeadlineError at the deadline. The command and its children have then ended.
    """
    pipe = subprocess.PIPE
    name = next(word for word in command if word != "nice")
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise PreflightError(doing, f"no program {error.filename}", _CURES["program"]) from error
    with process:
        try:
            out, wrote = process.communicate(timeout=deadline.left())
        except subprocess.TimeoutExpired:
            happened = f"{name} had not ended when the {deadline.seconds:g} s for all were over"
            raise DeadlineError(doing, happened, _CURES["deadline"]) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        last = "\n".join(f"    {line}" for line in (wrote or out).splitlines()[-LAST_LINES:])
        happened = f"{name} ended with {process.returncode}; it wrote last:\n{last}"
        raise BrokenError(doing, happened, _cure(wrote))
    return out


_CURES = {
    "program": "apt-get install golang gcc libc6-dev libseccomp-dev (Go as new as the go.mod says)",
    "deadline": "the same again: go goes on where it was; or give more with --timeout SECONDS",
    "network": "look that the module proxy of `go env GOPROXY` answers, then the same again",
    "sum": "python tests/bundle/pin.py, and look at what has changed in go.sum",
    "disk": "make room: the go caches (`go env GOCACHE GOMODCACHE`) want 15 GB",
    "old": "a Go as new as this says",
    "other": "the same `go build` by hand: tests/bundle/README.md says how",
}
_SIGNS = (
    ("no space left", "disk"),
    ("go.mod requires go >=", "old"),
    ("checksum mismatch", "sum"),
    ("missing go.sum entry", "sum"),
    ("dial tcp", "network"),
    ("Forbidden", "network"),
    ("i/o timeout", "network"),
    ("seccomp", "program"),
)


def _cure(wrote: str) -> str:
    """A hint, from the command's output."""
    return _CURES[next((hint for sign, hint in _SIGNS if sign in wrote), "other")]
