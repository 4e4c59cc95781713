"""Windows' habits against what the product hands to it: hostile where Windows is.

The sources are in :mod:`stand_in.guest.habits`; what has none is marked inferred there.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import answers
import pytest
from lxml import etree
from stand_in.guest import habits

from lab.imaging import recipes
from lab.imaging.windows import answer
from lab.imaging.windows.answer import clone_answer_file
from lab.imaging.windows.settings import CloneSettings
from lab.imaging.windows.steps import Sysprep, WsMan, golden_steps
from lab.providers.libvirt import documents
from lab.providers.libvirt.documents import VirtualMachine

UNATTEND = "{urn:schemas-microsoft-com:unattend}"
PASSES = ("windowsPE", "specialize")
DOCUMENTS = answers.documents()


def commands(document: bytes) -> list[tuple[str, str, str]]:
    """Pass, line and WillReboot of every command that runs in a pass."""
    found = []
    for settings in etree.fromstring(document).iter(f"{UNATTEND}settings"):
        for one in settings.iter(f"{UNATTEND}RunSynchronousCommand"):
            line, reboot = one.findtext(f"{UNATTEND}Path"), one.findtext(f"{UNATTEND}WillReboot")
            found.append((settings.get("pass"), line, reboot or ""))
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_command_of_a_pass_stops_setup_though_it_fails(name: str) -> None:
    """W1, W17."""
    stops = [why for one in commands(DOCUMENTS[name]) if (why := habits.why_it_stops(*one))]
    assert stops == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_nothing_is_said_where_there_is_no_serial_port(name: str) -> None:
    """W1."""
    assert not [line for place, line, _ in commands(DOCUMENTS[name]) if place == "windowsPE"]


def medium(name: str) -> dict[str, bytes]:
    return {name.lower(): DOCUMENTS["2022-core-uefi-evaluation-virtio"]}


def test_an_answer_medium_that_is_in_at_generalize_is_what_every_clone_obeys() -> None:
    """W4, of the habit itself: the cached copy wins over the clone's medium."""
    found = habits.find_answer("generalize", {}, [medium("autounattend.xml")])
    assert found is not None
    kept = {r"Panther\unattend.xml": found[1]}
    clone = {"unattend.xml": DOCUMENTS["clone"]}
    assert habits.find_answer("specialize", kept, [clone]) == (r"Panther\unattend.xml", found[1])
    assert habits.find_answer("specialize", {}, [clone]) == ("unattend.xml", DOCUMENTS["clone"])


def test_a_clone_s_medium_answers_by_either_name() -> None:
    """W16."""
    settings = CloneSettings("win1", "Pass-Word.1", "ssh-ed25519 AAAA x", "192.0.2.1", (), None)
    content = answer.clone_medium(settings, recipes.load("windows-server-2022").templates)
    for name in ("Autounattend.xml", "Unattend.xml"):
        assert name.encode("utf-16-be") in content
    assert b'pass="windowsPE"' not in clone_answer_file(settings)


@pytest.mark.parametrize("hours", [-8, 0, 9])
def test_the_clock_is_right_whatever_zone_the_hypervisor_is_in(hours: int) -> None:
    """W6."""
    now, zone = datetime(2026, 11, 21, 12, tzinfo=UTC), timedelta(hours=hours)
    machine = VirtualMachine("windows", "x", "x", True, 1, 1, "bios", "/d", "/c", ())
    offset = etree.fromstring(documents.domain(machine)).find("clock").get("offset")
    rtc = now if offset == "utc" else now + zone
    for document in (DOCUMENTS["2022-core-uefi-evaluation-virtio"], DOCUMENTS["clone"]):
        lines = [line for place, line, _ in commands(document) if place == "specialize"]
        universal = any("RealTimeIsUniversal /t REG_DWORD /d 1 " in line for line in lines)
        assert habits.guest_utc(rtc, timedelta(0), universal=universal) == now


def test_an_evaluation_s_clock_is_rearmed_when_it_is_generalized() -> None:
    """W7: askcore 2011, SkipRearm must not be left for the last sysprep."""
    (seal,) = [one for one in golden_steps("2022", "") if isinstance(one, Sysprep)]
    assert not seal.skip_rearm
    for document in DOCUMENTS.values():
        assert b"<SkipRearm>1" not in document


@pytest.mark.parametrize("name", [one for one in DOCUMENTS if "virtio" in one])
def test_drivers_are_looked_for_on_letter_c_too(name: str) -> None:
    """W8."""
    paths = [
        one.findtext(f"{UNATTEND}Path")
        for one in etree.fromstring(DOCUMENTS[name]).iter(f"{UNATTEND}PathAndCredentials")
    ]
    assert "C:" in {path[:2] for path in paths}


def test_no_shell_gets_less_memory_than_windows_gives_it() -> None:
    """W15: the default is 2147483647 since 2012 R2."""
    assert not [field for field in WsMan.__dataclass_fields__ if "memory" in field]


def test_every_echo_on_the_serial_port_ends_in_success() -> None:
    """W1: also at the first logon."""
    for document in DOCUMENTS.values():
        for line in re.findall(r"cmd(?:\.exe)? /c [^<]*COM1[^<]*", document.decode()):
            assert "exit /b 0" in line, line
