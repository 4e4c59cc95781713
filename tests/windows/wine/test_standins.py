"""The stand-ins: sources that explain themselves, probes, and what is installed when."""

import re
from pathlib import Path

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
