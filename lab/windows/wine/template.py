"""The template of Wine nodes: a Windows prefix over the image's root file system, made once.

.. code-block:: text

    <cache>/wine/template-0123456789abcdef/tree/wine/     the prefix: drive_c, registry
    <cache>/wine/template-0123456789abcdef/probes.json    what this Wine lacked, by probe

The tree lies over the root file system, and a node's own disk over both. Each stand-in is put in
where its probe shows that the image's Wine lacks it; then every probe must hold.
"""

from __future__ import annotations

import json
import shutil
import time
import zipfile
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from pathlib import Path

from lab._deadline import Deadline
from lab._errors import BrokenError, PreflightError
from lab.machines.bundle.store import damage
from lab.machines.images.golden import PARTIAL, cache_lock
from lab.machines.images.terms import Year
from lab.shells import programs
from lab.state.failure import guarded_files
from lab.windows.wine import pages, registry, standins

FAILED = "probes-failed.json"
"""In the directory of templates: the last one whose probes did not hold, and why."""
PREFIX = "wine"
"""The prefix in the root file system: ``/wine``."""
TREE, PROBES = "tree", "probes.json"
DRIVE = f"{PREFIX}/drive_c"
_PROGRAM = "Program Files/PowerShell/7"
MODULES = Path(__file__).parent / "modules"
"""What stands in for Windows' PowerShell modules, one file each; found by PowerShell itself."""
_FORM = "3"
"""Increment when a template is made differently from the same inputs."""
_POLICY = '{"Microsoft.PowerShell:ExecutionPolicy":"RemoteSigned"}'
"""What Windows Server has."""
_WAIT = 900.0
_MAKE_SECONDS, _PROBE_SECONDS = 300.0, 240.0
_SHORT = 16
ENVIRONMENT: Mapping[str, str] = {
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PATH": "/usr/bin:/bin:/usr/sbin",
    "WINEDEBUG": "-all",
    "WINEPREFIX": f"/{PREFIX}",
    "XDG_RUNTIME_DIR": "/run",
}
"""Of every program on Wine."""
_INSIDE = r"""
root=$1 upper=$2 work=$3 mount=$4; shift 4
mount -t overlay overlay -o "lowerdir=$root,upperdir=$upper,workdir=$work" "$mount"
mount -t proc proc "$mount/proc"
mount -t tmpfs -o mode=1777 tmp "$mount/tmp"
mount -t tmpfs run "$mount/run"
mount -t tmpfs dev "$mount/dev"
for name in null zero full random urandom tty; do
    : >"$mount/dev/$name"
    mount --bind "/dev/$name" "$mount/dev/$name"
done
mkdir "$mount/dev/pts" "$mount/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$mount/dev/pts"
ln -s pts/ptmx "$mount/dev/ptmx"
ln -s /proc/self/fd "$mount/dev/fd"
ip link set lo up
exec chroot "$mount" env --ignore-environment "$@"
"""
"""A command in the template's root; no serial port is there, which Wine would link as COM1."""
_PROBING = r"""
for name in {names}; do
    code=0 # without a terminal, PowerShell's console host ends at once
    script -qec "wine C:\\\\probe.exe $name >/run/words" /dev/null </dev/null >&2 || code=$?
    words=$(tr -d '\r' </run/words | tail -n 1)
    printf '%s\t%s\t%s\n' "$name" "$code" "$words" >>/run/probes
done
wineserver --kill || true
cat /run/probes
"""
_ISOLATED = ("unshare", "--mount", "--uts", "--net", "--ipc", "--pid", "--fork", "--kill-child")


def place(cache: Path, root: Path, year: Year, powershell: Path) -> Path:
    """The path of a template, whether it exists or not.

    ``root``: the image's file system. ``powershell``: PowerShell's release archive, a blob that
    is named by its digest.
    """
    modules = (path.read_text(encoding="utf-8") for path in sorted(MODULES.glob("*.psm1")))
    made_of = (root.parent.name, powershell.name, standins.digest())
    parts = (_FORM, *made_of, registry.settings(year, ()), *modules)
    digest = sha256("\n".join(parts).encode()).hexdigest()[:_SHORT]
    return cache / "wine" / f"template-{digest}"


def template(
    cache: Path, root: Path, year: Year, powershell: Path, say: Callable[[str], None]
) -> Path:
    """The template's tree; made if it does not exist. Needs root.

    Parameters as those of :func:`place`.

    Raises PreflightError when a compiler is missing, or PowerShell's archive is damaged. Raises
    BrokenError when Wine fails, or a probe does not hold with its stand-in.
    """
    final = place(cache, root, year, powershell)
    if (final / TREE).is_dir():
        return final / TREE
    with cache_lock(standins.lock(final), "making the template of Wine nodes", wait=_WAIT, say=say):
        if not final.is_dir():
            _make(cache, final, root, year, powershell, say)
    return final / TREE


def _make(  # noqa: PLR0913, PLR0917  each is a part of it
    cache: Path,
    final: Path,
    root: Path,
    year: Year,
    powershell: Path,
    say: Callable[[str], None],
) -> None:
    action = "making the template of Wine nodes"
    if damaged := damage(powershell, powershell.name):
        raise PreflightError(action, damaged, "lab bundle verify")
    compiled = standins.compiled(cache)
    began = time.monotonic()
    draft = final.with_name(f".{final.name}{PARTIAL}")
    with guarded_files(action):
        shutil.rmtree(draft, ignore_errors=True)
        for name in (TREE, "work", "mount"):
            (draft / name).mkdir(parents=True)
        try:
            lacking = _fill(draft, root, year, compiled, powershell, say)
            (draft / PROBES).write_text(json.dumps(lacking, indent=1) + "\n", encoding="utf-8")
            for name in ("work", "mount"):
                shutil.rmtree(draft / name)
            draft.rename(final)
            (final.parent / FAILED).unlink(missing_ok=True)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    say(f"template of Wine nodes made in {time.monotonic() - began:.0f} s")


def _fill(  # noqa: PLR0913, PLR0917  each is a part of it
    draft: Path,
    root: Path,
    year: Year,
    compiled: Path,
    powershell: Path,
    say: Callable[[str], None],
) -> Mapping[str, str]:
    """Make the prefix; returns what this Wine lacks, by probe."""
    tree, drive = draft / TREE, draft / TREE / DRIVE
    (tree / PREFIX).mkdir()
    say("making a Windows prefix, once: 0.9 GB, a minute")
    run_inside(draft, root, "wineboot --update && wineserver --wait", _MAKE_SECONDS)
    shutil.rmtree(drive / "windows/syswow64", ignore_errors=True)
    shutil.copy(compiled / "probe.exe", drive / "probe.exe")
    say("looking at what this Wine lacks")
    lacking = probe(draft, root)
    install(drive, compiled, lacking)
    pages.write(drive / "probe.exe", drive / pages.FOLDER)
    if "stacks" in lacking:
        (tree / pages.NTDLL).parent.mkdir(parents=True)
        (tree / pages.NTDLL).write_bytes(pages.shorten_clearing((root / pages.NTDLL).read_bytes()))
    unpack(powershell, drive / _PROGRAM)
    for module in MODULES.glob("*.psm1"):
        folder = drive / _PROGRAM / "Modules" / module.stem
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(module, folder)
    native = {name for probed in lacking for name in standins.STAND_INS[probed].native}
    if any(standins.STAND_INS[probed].injected for probed in lacking):
        native.add(standins.LOADER.removesuffix(".dll"))
    written = registry.settings(year, sorted(native))
    (drive / "settings.reg").write_text(written, encoding="ascii")
    run_inside(
        draft, root, r"wine regedit /S 'C:\settings.reg' && wineserver --wait", _MAKE_SECONDS
    )
    unmet = probe(draft, root)
    unmet.pop("elevation", None)  # a program's own matter: elevated.exe is for that
    if unmet:
        name, lack = next(iter(unmet.items()))
        record = {"image": root.parent.name, "probe": name, "lack": lack}
        (draft.parent / FAILED).write_text(json.dumps(record) + "\n", encoding="utf-8")
        words = f"with its stand-in, probe '{name}' still says: {lack}"
        raise BrokenError("checking the stand-ins of Wine nodes", words)
    for name in ("probe.exe", "settings.reg"):
        (drive / name).unlink()
    shutil.rmtree(drive / pages.FOLDER)
    for port in (tree / PREFIX / "dosdevices").glob("com*"):
        port.unlink()
    return lacking


def unpack(archive: Path, folder: Path) -> None:
    """Unpack PowerShell's release archive into a new folder; scripts run as on Windows Server.

    Raises PreflightError when it is no archive with ``pwsh.exe``.
    """
    try:
        with zipfile.ZipFile(archive) as packed:
            packed.getinfo("pwsh.exe")
            packed.extractall(folder)  # names that lead out of the folder stay in it
    except (zipfile.BadZipFile, KeyError) as error:
        raise PreflightError(
            f"unpacking PowerShell's archive '{archive}'",
            f"it is no release archive of PowerShell ({error})",
            "make the bundle again: 'lab bundle create'",
        ) from error
    (folder / "powershell.config.json").write_text(_POLICY, encoding="ascii")
    for path in folder.rglob("*"):
        path.chmod(0o755)  # Wine starts and loads only what may be executed


def install(drive: Path, compiled: Path, lacking: Collection[str]) -> None:
    """Put the stand-ins of some probes on drive C, and the programs of every prefix."""
    chosen = [standins.STAND_INS[name] for name in standins.STAND_INS if name in lacking]
    for stand_in in chosen:
        if stand_in.kept and not (drive / stand_in.kept[1]).exists():
            shutil.move(drive / stand_in.kept[0], drive / stand_in.kept[1])
        for name, folder in stand_in.files.items():
            _put(compiled / name, drive / folder / name)
    system = drive / standins.SYSTEM32
    for name in standins.ALWAYS:
        _put(compiled / name, system / name)
    injected = list(dict.fromkeys(each.injected for each in chosen if each.injected))
    if injected:
        _put(compiled / standins.LOADER, system / standins.LOADER)
        (system / standins.LIST).write_text("\n".join(injected) + "\n", encoding="ascii")


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    shutil.copy(source, target)


def probe(draft: Path, root: Path) -> dict[str, str]:
    """What Wine lacks now, by probe: the probes that do not hold.

    Raises BrokenError when a probe did not run.
    """
    script = _PROBING.format(names=" ".join(standins.STAND_INS))
    output = run_inside(draft, root, script, _PROBE_SECONDS)
    return parse_probes(output)


def parse_probes(output: str) -> dict[str, str]:
    """What each probe that does not hold says, by name. Pure.

    A line has name, exit code, and the last line that the probe printed.
    """
    lacking = {}
    for line in output.splitlines():
        name, _, rest = line.partition("\t")
        code, _, words = rest.partition("\t")
        if code not in {"", "0"}:
            lacking[name] = words.strip() or f"it ended with {code}"
    return lacking


def run_inside(draft: Path, root: Path, script: str, seconds: float) -> str:
    """Run a shell script in the template's root; its standard output.

    Raises BrokenError with the last lines when it fails.
    """
    lines: list[str] = []
    settings = (f"{name}={value}" for name, value in ENVIRONMENT.items())
    paths = (str(root), *(str(draft / name) for name in (TREE, "work", "mount")))
    programs.run(
        "running Wine for the template of Wine nodes",
        [*_ISOLATED, "sh", "-ec", _INSIDE, "sh", *paths, *settings, "sh", "-ec", script],
        Deadline(seconds),
        on_line=lines.append,
    )
    return "\n".join(lines)
