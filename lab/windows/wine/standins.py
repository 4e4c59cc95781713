"""The stand-ins: programs and DLLs for what a Wine lacks, compiled from ``standins/``.

A wheel has them compiled (``hatch_build.py``). From a clone they are compiled when they are first
needed, with mingw, into the cache.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from lab._deadline import Deadline
from lab.shells import programs
from lab.state.failure import guarded_files
from lab.state.lock import lab_lock

SOURCES = Path(__file__).parent / "standins"
PACKAGED = Path(__file__).parent / "compiled"
"""Where a wheel has the compiled programs."""
_DIGEST = "digest"
"""File beside packaged programs: :func:`digest` of what they were compiled from."""
COMPILER, RESOURCES = "x86_64-w64-mingw32-gcc", "x86_64-w64-mingw32-windres"
_FLAGS = (
    "-O2",
    "-s",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-cast-function-type",
    "-Wl,--no-insert-timestamp",
)
_CONSOLE, _WIDE = (), ("-municode",)
_DLL = ("-shared", "-Wl,--disable-auto-image-base")
"""Else a DLL's address is made of the path that it is written to."""
_SECONDS, _WAIT_SECONDS = 60.0, 300.0
_PARTIAL = ".partial"
_SHORT = 16
LOADER = "bcryptprimitives.dll"
LIST = "hybridlab-standins.txt"
"""In system32: what :data:`LOADER` loads into every program."""
SYSTEM32 = "windows/system32"
POWERSHELL = f"{SYSTEM32}/WindowsPowerShell/v1.0"


@dataclass(frozen=True, slots=True)
class Compiled:
    """One program or DLL, and what it is made of."""

    name: str
    sources: tuple[str, ...]
    kind: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    resource: str = ""


PROGRAMS = (
    Compiled(LOADER, ("loader.c",), _DLL, ("advapi32",)),
    Compiled("hybridlab-adapters.dll", ("adapters.c", "hooks.c"), _DLL),
    Compiled("hybridlab-pages.dll", ("pages.c",), _DLL),
    Compiled("hybridlab-pipes.dll", ("pipes.c", "hooks.c"), _DLL),
    Compiled("hybridlab-sockets.dll", ("sockets.c", "hooks.c"), _DLL, ("ws2_32",)),
    Compiled("hybridlab-symlinks.dll", ("symlinks.c", "hooks.c"), _DLL),
    Compiled("hybridlab-udp.dll", ("udp.c", "hooks.c"), _DLL, ("ws2_32",)),
    Compiled("hybridlab-services.dll", ("services.c", "hooks.c"), _DLL, ("advapi32",)),
    Compiled("pdh.dll", ("pdh.c",), _DLL),
    Compiled("computenetwork.dll", ("hns.c",), _DLL, ("ws2_32", "ole32")),
    Compiled("vmcompute.dll", ("hns.c",), _DLL, ("ws2_32", "ole32")),
    Compiled("sc.exe", ("sc.c",), _WIDE),
    Compiled("elevated.exe", ("elevated.c",), _WIDE, resource="elevated.rc"),
    Compiled("powershell.exe", ("powershell.c",), _WIDE),
    Compiled("keeper.exe", ("keeper.c",), _WIDE),
    Compiled("shutdown.exe", ("shutdown.c",), _WIDE),
    Compiled("containerd.exe", ("containerd.c",), _WIDE, ("ws2_32",)),
    Compiled("ctr.exe", ("linux.c",), _CONSOLE, ("ws2_32",)),
    Compiled("hybridlab-names.exe", ("names.c",), _WIDE, ("ws2_32",)),
    Compiled("nslookup.exe", ("nslookup.c",), _CONSOLE, ("dnsapi", "iphlpapi", "ws2_32")),
    Compiled("hybridlab-processes.exe", ("processes.c",), _WIDE),
    Compiled("hybridlab-task.exe", ("linux.c",), _CONSOLE, ("ws2_32",)),
    Compiled("probe.exe", ("probe.c",), _CONSOLE, ("ws2_32", "iphlpapi")),
)


@dataclass(frozen=True, slots=True)
class StandIn:
    """What is put into a prefix where a probe shows that this Wine lacks something."""

    files: Mapping[str, str]
    """The place on drive C of each program, by its name."""
    native: tuple[str, ...] = ()
    """Names for which Wine must take the file instead of its own program."""
    injected: str = ""
    """A DLL that the loader loads into every program."""
    kept: tuple[str, str] | None = None
    """A file of Wine's own that the stand-in calls, and its new place."""


def _injected(name: str) -> StandIn:
    return StandIn({name: SYSTEM32}, injected=name)


_SC = StandIn(
    {"sc.exe": SYSTEM32}, ("sc.exe",), kept=(f"{SYSTEM32}/sc.exe", f"{SYSTEM32}/scwine.exe")
)
STAND_INS: Mapping[str, StandIn] = {
    "adapters": _injected("hybridlab-adapters.dll"),
    "counters": StandIn({"pdh.dll": SYSTEM32}, ("pdh",)),
    "elevation": StandIn({"elevated.exe": SYSTEM32}),
    "hns": StandIn(
        {"computenetwork.dll": SYSTEM32, "vmcompute.dll": SYSTEM32},
        ("computenetwork", "vmcompute"),
    ),
    "pages": _injected("hybridlab-pages.dll"),
    "pipes": _injected("hybridlab-pipes.dll"),
    "powershell": StandIn({"powershell.exe": POWERSHELL}, ("powershell.exe",)),
    "sc-config": _SC,
    "sc-failure": _SC,
    "service-dependencies": _injected("hybridlab-services.dll"),
    "service-environment": _injected("hybridlab-services.dll"),
    "service-exit": _injected("hybridlab-services.dll"),
    "shutdown": StandIn({"shutdown.exe": SYSTEM32}, ("shutdown.exe",)),
    "sockets": _injected("hybridlab-sockets.dll"),
    "stacks": StandIn({}),  # Wine's own ntdll.dll with one change: pages.shorten_clearing
    "symlinks": _injected("hybridlab-symlinks.dll"),
    "udp": _injected("hybridlab-udp.dll"),
}
"""By the probe that shows the lack: ``probe.exe NAME``."""
ALWAYS = (
    "elevated.exe",
    "keeper.exe",
    "hybridlab-names.exe",
    "hybridlab-processes.exe",
    "hybridlab-task.exe",
    "nslookup.exe",
)
"""Programs of every prefix, in system32."""


def digest() -> str:
    """Hash of all sources and of how they are compiled."""
    parts = [repr((PROGRAMS, _FLAGS)).encode()]
    parts += [path.read_bytes() for path in sorted(SOURCES.iterdir()) if path.is_file()]
    return sha256(b"\0".join(parts)).hexdigest()[:_SHORT]


def place(cache: Path) -> Path:
    """Where the programs of these sources are compiled to, whether they are or not."""
    return cache / "wine" / f"standins-{digest()}"


def compiled(cache: Path) -> Path:
    """The directory with every compiled program: the wheel's, or one in the cache.

    Compiles them into the cache if neither exists.

    Raises PreflightError naming the package when there is no compiler. Raises BrokenError with the
    compiler's last lines when it refuses a source.
    """
    if is_packaged():
        return PACKAGED
    final = place(cache)
    if final.is_dir():
        return final
    draft = final.with_name(f".{final.name}{_PARTIAL}")
    action = "compiling the stand-ins of Wine nodes"
    with guarded_files(action), lab_lock(lock(final), action, wait=_WAIT_SECONDS):
        if not final.is_dir():
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
            compile_into(draft)
            draft.rename(final)
    return final


def lock(final: Path) -> Path:
    """The directory of the lock under which something of Wine's, or its draft, is made."""
    name = final.name.removeprefix(".").removesuffix(_PARTIAL)
    return final.parents[1] / "locks" / name


def is_packaged() -> bool:
    """Whether the wheel's compiled programs are there, and are those of the sources."""
    try:
        return (PACKAGED / _DIGEST).read_text(encoding="ascii").strip() == digest()
    except FileNotFoundError:
        return False


def package(folder: Path) -> None:
    """Compile every program into a wheel's folder. Raises as :func:`compiled`."""
    compile_into(folder)
    (folder / _DIGEST).write_text(f"{digest()}\n", encoding="ascii")


def compile_into(folder: Path) -> None:
    """Compile every program into a folder. Raises as :func:`compiled`."""
    action = "compiling the stand-ins of Wine nodes"
    programs.need(action, COMPILER, RESOURCES)
    for program in PROGRAMS:
        more: list[str] = []
        if program.resource:
            made = folder / f"{program.name}.o"
            words = [RESOURCES, f"--include-dir={SOURCES}", str(SOURCES / program.resource)]
            programs.run(action, [*words, "-O", "coff", "-o", str(made)], Deadline(_SECONDS))
            more.append(str(made))
        sources = (str(SOURCES / source) for source in program.sources)
        libraries = (f"-l{library}" for library in program.libraries)
        command = [COMPILER, *_FLAGS, *program.kind, "-o", str(folder / program.name)]
        programs.run(action, [*command, *sources, *more, *libraries], Deadline(_SECONDS))
    for made in folder.glob("*.o"):
        made.unlink()
