"""The stand-ins: sources that explain themselves, probes, and what is installed when."""

import re
import runpy
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from lab.machines.images.terms import RELEASES, Year
from lab.windows.wine import registry, standins
from lab.windows.wine.template import install, parse_probes

SOURCES = sorted(path for path in standins.SOURCES.glob("*.c") if path.name != "hooks.c")
PROBES = re.findall(
    r'^    \{"([a-z-]+)", [a-z_]+\},$', (standins.SOURCES / "probe.c").read_text(), re.MULTILINE
)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_a_source_begins_with_what_windows_does_and_what_wine_does(source: Path) -> None:
    head = source.read_text(encoding="ascii").partition("*/")[0]
    assert head.startswith("/* ")
    if source.stem != "probe":
        missing = [word for word in ("Windows:", "Wine", "Probe") if word not in head]
        assert not missing, head


def test_every_probe_has_its_stand_in() -> None:
    assert sorted(standins.STAND_INS) == sorted(PROBES)


def test_every_stand_in_is_compiled() -> None:
    compiled = {program.name for program in standins.PROGRAMS}
    for probe, stand_in in standins.STAND_INS.items():
        assert set(stand_in.files) <= compiled, probe
    assert {*standins.ALWAYS, standins.LOADER, "probe.exe"} <= compiled


def test_every_source_is_compiled() -> None:
    used = {source for program in standins.PROGRAMS for source in program.sources}
    assert used == {path.name for path in standins.SOURCES.glob("*.c")}


def test_output_of_probes_is_what_this_wine_lacks() -> None:
    output = "adapters\t1\tGetAdaptersAddresses refuses it (13, 0xd)\nhns\t0\t\ncounters\t5\t\n"
    assert parse_probes(output) == {
        "adapters": "GetAdaptersAddresses refuses it (13, 0xd)",
        "counters": "it ended with 5",
    }


@pytest.mark.skipif(
    not all(map(shutil.which, (standins.COMPILER, standins.RESOURCES))), reason="needs mingw"
)
def test_the_same_sources_are_compiled_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {standins.LOADER, "elevated.exe", "ctr.exe"}  # a DLL, with a resource, and neither
    some = tuple(program for program in standins.PROGRAMS if program.name in kinds)
    monkeypatch.setattr(standins, "PROGRAMS", some)
    made = []
    for name in ("one", "a longer path"):
        folder = tmp_path / name
        folder.mkdir()
        standins.compile_into(folder)
        made.append({path.name: path.read_bytes() for path in folder.iterdir()})
    first, second = made
    assert [name for name in first if first[name] != second[name]] == []
    assert first.keys() == second.keys() == kinds


HOOK = runpy.run_path(str(Path(__file__).parents[3] / "hatch_build.py"))["StandInsHook"]


@pytest.fixture
def without_mingw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has no compiler."""
    monkeypatch.setenv("PATH", str(tmp_path))


def build(version: str) -> dict[str, Any]:
    """Run the build's hook; what it was told to put into the wheel."""
    data: dict[str, Any] = {"force_include": {}}
    hook = HOOK(str(Path(__file__).parents[3]), {}, None, None, "", "wheel")
    hook.initialize(version, data)
    return data["force_include"]


@pytest.mark.usefixtures("without_mingw")
def test_a_complete_wheel_without_a_compiler_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("HYBRIDLAB_COMPLETE", "1")
    with pytest.raises(SystemExit, match="apt-get install gcc-mingw-w64-x86-64-win32"):
        build("standard")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("without_mingw")
def test_who_installs_from_the_source_needs_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("HYBRIDLAB_COMPLETE", raising=False)
    assert build("standard") == {}
    assert not list(tmp_path.iterdir())
    assert "when a lab needs them" in capsys.readouterr().err


@pytest.mark.usefixtures("without_mingw")
def test_an_editable_installation_needs_no_compiler() -> None:
    assert build("editable") == {}


def test_packaged_programs_of_the_same_sources_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standins, "PACKAGED", tmp_path / "packaged")
    monkeypatch.setattr(standins, "compile_into", lambda _: None)
    (tmp_path / "packaged").mkdir()
    standins.package(tmp_path / "packaged")
    assert standins.compiled(tmp_path / "cache") == tmp_path / "packaged"
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("recorded", [None, "of other sources"])
def test_other_packaged_programs_are_not_taken(
    recorded: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standins, "PACKAGED", tmp_path / "packaged")
    monkeypatch.setattr(standins, "compile_into", lambda _: None)
    if recorded:
        (tmp_path / "packaged").mkdir()
        (tmp_path / "packaged/digest").write_text(recorded)
    folder = standins.compiled(tmp_path / "cache")
    assert folder == tmp_path / "cache/wine" / f"standins-{standins.digest()}"


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """Files with the names of the compiled programs."""
    folder = tmp_path / "compiled"
    folder.mkdir()
    for program in standins.PROGRAMS:
        (folder / program.name).write_text(program.name)
    return folder


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    """A drive C with Wine's own sc.exe."""
    system = tmp_path / "drive" / standins.SYSTEM32
    system.mkdir(parents=True)
    (system / "sc.exe").write_text("Wine's")
    return tmp_path / "drive"


def test_a_wine_that_lacks_nothing_gets_no_stand_in(drive: Path, compiled: Path) -> None:
    install(drive, compiled, [])
    system = drive / standins.SYSTEM32
    assert sorted(path.name for path in system.iterdir()) == sorted([*standins.ALWAYS, "sc.exe"])
    assert (system / "sc.exe").read_text() == "Wine's"


def test_only_what_is_lacking_stands_in(drive: Path, compiled: Path) -> None:
    install(drive, compiled, ["sc-config", "symlinks", "service-exit", "service-environment"])
    system = drive / standins.SYSTEM32
    assert (system / "sc.exe").read_text() == "sc.exe"
    assert (system / "scwine.exe").read_text() == "Wine's"
    loaded = (system / standins.LIST).read_text().split()
    assert loaded == ["hybridlab-services.dll", "hybridlab-symlinks.dll"]
    assert (system / standins.LOADER).exists()
    assert not (system / "pdh.dll").exists()


@pytest.mark.parametrize("year", RELEASES)
def test_the_registry_tells_the_release(year: Year) -> None:
    text = registry.settings(year, ["pdh"])
    assert f'"CurrentBuildNumber"="{RELEASES[year].build}"' in text
    assert f'"ProductName"="Windows Server {year} Standard"' in text
    assert f'"UBR"=dword:{registry.REVISIONS[year]:08x}' in text
    assert '"pdh"="native,builtin"' in text
    assert text.startswith("REGEDIT4\r\n")


def test_two_commands_at_once_compile_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the other; the second takes what the first has made."""
    monkeypatch.setattr(standins, "is_packaged", lambda: False)
    both, made = Barrier(2, timeout=30), []

    def compile_into(folder: Path) -> None:
        made.append(folder)
        (folder / "program").write_text("compiled")

    def compile_it() -> Path:
        both.wait()
        return standins.compiled(tmp_path)

    monkeypatch.setattr(standins, "compile_into", compile_into)
    with ThreadPoolExecutor(2) as pool:
        first, second = (job.result(30) for job in [pool.submit(compile_it) for _ in range(2)])
    assert first == second
    assert (first / "program").read_text() == "compiled"
    assert len(made) == 1
