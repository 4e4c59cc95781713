"""Parts of the stand-in of Setup, on this machine: media, disk, orders of commands, its shell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import wim_maker
from double.script import Answer, Asked
from stand_in.guest import answer, disk, drives, images, order, shell, state
from stand_in.guest.record import Record
from stand_in.guest.screen import StopError
from stand_in.guest.state import State
from stand_in.orders import GOLDEN, golden

from lab.guests import powershell, reboot
from lab.guests.command_line import started
from lab.imaging.windows import commands
from lab.imaging.windows.answer import answer_file
from lab.imaging.windows.release import Wanted
from lab.imaging.windows.settings import Settings
from lab.imaging.windows.steps import GOLDEN_ORDER, script

TEMPLATES = Path(__file__).parents[2] / "images" / "windows"


def told(firmware: str = "bios", **changes: object) -> answer.Preinstallation:
    wanted = Wanted("2022", "standard", "core")
    settings = Settings(wanted, firmware, "virtio", None, "HYBRIDLAB", "secret")  # type: ignore[arg-type]
    first = answer.read(answer_file(settings)).preinstallation
    assert first is not None
    return replace(first, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def wims(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[images.Image, ...]]:
    folder = tmp_path_factory.mktemp("wims")
    made = {}
    for channel in ("evaluation", "volume"):
        (path,) = wim_maker.make(folder / channel, wim_maker.server_images("2022", channel))
        made[channel] = images.read(path)
    return made


def test_the_image_is_found_by_its_name(wims: Mapping[str, tuple[images.Image, ...]]) -> None:
    found = images.chosen(wims["evaluation"], told())
    assert (found.index, found.build, found.evaluation) == (1, 20348, True)
    assert len(wims["evaluation"]) == 4


@pytest.mark.parametrize(
    ("channel", "changes", "words"),
    [
        ("evaluation", {"image": ("/IMAGE/NAME", "Windows 95")}, "No images are available: .*95"),
        ("evaluation", {"key": "VDYBN-27WPP-V4HQT-9VMD4-VMK7H"}, "No images are .* product key"),
        ("volume", {}, "asks for a product key"),
        ("evaluation", {"language": "de-DE"}, "asks for a language"),
        ("evaluation", {"image": ("/IMAGE/DESCRIPTION", "x")}, "unknown element MetaData/Key"),
    ],
)
def test_what_setup_stops_at_is_stopped_at(
    wims: Mapping[str, tuple[images.Image, ...]],
    channel: str,
    changes: Mapping[str, object],
    words: str,
) -> None:
    with pytest.raises(StopError, match=words):
        images.chosen(wims[channel], told(**changes))


@pytest.fixture
def virtio(tmp_path: Path) -> drives.Drives:
    for release in ("2k19", "2k22"):
        folder = tmp_path / "viostor" / release / "amd64"
        folder.mkdir(parents=True)
        (folder / "viostor.inf").touch()
    return {"E": tmp_path}


def test_a_driver_is_taken_where_a_path_leads_to_the_release_s(
    virtio: drives.Drives, wims: Mapping[str, tuple[images.Image, ...]]
) -> None:
    image = wims["evaluation"][0]

    def found(path: str) -> tuple[str, ...]:
        place = drives.resolve(virtio, path)
        return images.drivers([place] if place else [], image)

    assert found(r"E:\VIOSTOR\2k22\AMD64") == ("viostor",)
    assert found(r"E:\viostor") == ("viostor",)  # Setup looks into folders
    assert found(r"E:\viostor\2k19\amd64") == ()
    assert found(r"F:\viostor\2k22\amd64") == ()
    assert found(r"E:\NetKVM\2k22\amd64") == ()


def test_a_file_in_a_root_is_found_in_any_case_and_in_the_order_of_letters(tmp_path: Path) -> None:
    for name in ("D/AUTOUNATTEND.XML", "E/x/autounattend.xml", "F/autounattend.xml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    letters = {letter: tmp_path / letter for letter in "FED"}
    found = drives.in_roots(letters, "autounattend.xml")
    assert [str(one.relative_to(tmp_path)) for one in found] == [
        "D/AUTOUNATTEND.XML",
        "F/autounattend.xml",
    ]


@pytest.mark.parametrize(
    ("firmware", "said"),
    [
        ("bios", "label: dos\nsize=350MiB, type=7, bootable\ntype=7\n"),
        (
            "uefi",
            (
                "label: gpt\nfirst-lba: 2048\n"
                "size=260MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B\n"
                "size=16MiB, type=E3C9E316-0B5C-4DB8-817D-F92DF00215AE\n"
                "type=EBD0A0A2-B9E5-4433-87C0-68B6B72699C7\n"
            ),
        ),
    ],
)
def test_the_disk_is_laid_out_as_the_answer_file_says(firmware: str, said: str) -> None:
    first = told(firmware)
    layout = disk.check(first.disks, first.target, firmware)
    assert disk.script(layout, firmware) == said


@pytest.mark.parametrize(
    ("firmware", "on", "changes", "words"),
    [
        ("uefi", "bios", {}, "of type EFI on a machine that starts by bios"),
        ("bios", "uefi", {}, "one EFI partition"),
        ("bios", "bios", {"target": answer.Target(1, 2)}, "Windows goes to 1"),
        ("bios", "bios", {"target": answer.Target(0, 9)}, "partition 9, which is not created"),
    ],
)
def test_a_disk_that_windows_cannot_start_from_is_refused(
    firmware: str, on: str, changes: Mapping[str, object], words: str
) -> None:
    first = told(firmware, **changes)
    with pytest.raises(StopError, match=words):
        disk.check(first.disks, first.target, on)


def test_a_disk_without_an_active_partition_is_refused() -> None:
    first = told()
    idle = tuple(replace(one, active=False) for one in first.disks[0].partitions)
    with pytest.raises(StopError, match="one partition that is active"):
        disk.check((replace(first.disks[0], partitions=idle),), first.target, "bios")


# ---- orders


def test_the_golden_order_is_the_product_s() -> None:
    def lines(found: Sequence[commands.Command]) -> list[str]:
        return [one.line for one in found]

    assert golden() == {
        "windowsPE": lines(commands.WINDOWS_PE),
        "specialize": lines(commands.SPECIALIZE),
        "first-logon": lines(commands.first_logon("bootstrap.ps1")),
        "bootstrap steps": steps("bootstrap.ps1"),
        "steps": list(GOLDEN_ORDER),
        "clone specialize": lines(commands.CLONE_SPECIALIZE),
        "clone first-logon": lines(commands.first_logon("clone.ps1")),
        "clone steps": steps("clone.ps1"),
    }, f"if that is meant, write it into {GOLDEN}"


def steps(name: str) -> list[str]:
    module = (TEMPLATES / "hybridlab.psm1").read_text(encoding="utf-8")
    return order.steps((TEMPLATES / name).read_text(encoding="utf-8"), module)


def test_steps_are_read_from_the_script_s_text() -> None:
    found = steps("bootstrap.ps1")
    assert found[0] == "settings"
    assert found[-1] == "listen"
    assert found.index("openssh") < found.index("winrm")


def test_a_script_of_another_shape_is_refused() -> None:
    with pytest.raises(StopError, match="no table of steps"):
        order.steps("Write-Step -Name 'x'", (TEMPLATES / "hybridlab.psm1").read_text())


def test_only_an_echo_to_com1_has_an_effect() -> None:
    said: list[str] = []
    record = Record()
    lines = (
        "cmd /c echo hybridlab: phase specialize> COM1",
        "net user Administrator /active:yes",
        "cmd /c echo no> COM1 & shutdown /s",
        "cmd /c echo no> COM2",
    )
    order.run("specialize", lines, {"specialize": lines}, record, said.append)
    assert said == ["hybridlab: phase specialize"]
    assert [one["run"] for one in record.of("command")] == [True, False, False, False]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("a", "c", "b"), "command 2 is 'c', not 'b'"),
        (("a", "b"), "command 3 is 'nothing', not 'c'"),
        (("a", "b", "c", "d"), "command 4 is 'd', not 'nothing'"),
    ],
)
def test_another_order_is_refused_before_anything_is_said(
    lines: tuple[str, ...], words: str
) -> None:
    with pytest.raises(StopError, match=words):
        order.run("specialize", lines, {"specialize": ("a", "b", "c")}, Record(), pytest.fail)


def test_a_record_goes_on_where_the_disk_s_ends(tmp_path: Path) -> None:
    first = Record()
    first.keep(tmp_path / "stand-in/record.json")
    first.add("start", stage="specialize")
    second = Record()
    second.add("drivers", found=["viostor"])
    second.keep(tmp_path / "stand-in/record.json")
    kept = json.loads((tmp_path / "stand-in/record.json").read_text())
    assert [one["event"] for one in kept] == ["start", "drivers"]


# ---- the shell


@pytest.fixture
def new_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., shell.Shell]:
    monkeypatch.setattr(state, "FOLDER", tmp_path)
    monkeypatch.setattr(state, "FILE", tmp_path / "state.json")

    def make(**changes: object) -> shell.Shell:
        made = State("installed", golden(), (), (), 20348, 587, "ServerStandardEval")
        found = shell.Shell(replace(made, **changes), Record(), tmp_path)  # type: ignore[arg-type]
        found.later = later.append
        return found

    later: list[Callable[[], object]] = []
    make.later = later  # type: ignore[attr-defined]
    return make


def asked(command: Sequence[str]) -> Asked:
    return Asked(started(command).line, skips_cmd=True)


def step(made: shell.Shell, name: str, folder: Path) -> Answer:
    (folder / f"{name}.ps1").write_bytes(script(f"{name}.ps1"))
    (folder / "hybridlab.psm1").write_bytes(script("hybridlab.psm1"))
    (folder / f"{name}.json").write_text("{}")
    path = rf"C:\hybridlab\{name}"
    found = made(asked(powershell.filed(f"{path}.ps1", ("-Settings", f"{path}.json"))))
    assert found is not None
    return found


def test_steps_in_the_golden_order_are_answered_as_a_stand_in_s(
    new_shell: Callable[..., shell.Shell], tmp_path: Path
) -> None:
    made = new_shell()
    answers = {name: step(made, name, tmp_path) for name in GOLDEN_ORDER[:4]}
    said = {name: json.loads(one.stdout) for name, one in answers.items()}
    assert [one["facts"]["stand-in"] for one in said.values()] == [True] * 4
    assert {name: one.code for name, one in answers.items()} == {
        "patch-level": 0,
        "wsman": 0,
        "features": 3010,
        "settings": 3010,
    }
    assert step(made, "features", tmp_path).code == 0  # it has restarted since


def test_a_step_out_of_order_is_refused(
    new_shell: Callable[..., shell.Shell], tmp_path: Path
) -> None:
    found = step(new_shell(), "features", tmp_path)
    assert found.code == 1
    assert "order of steps" in json.loads(found.stdout)["error"]


def test_a_step_whose_files_are_missing_is_refused(
    new_shell: Callable[..., shell.Shell],
) -> None:
    path = r"C:\hybridlab\patch-level"
    found = new_shell()(asked(powershell.filed(f"{path}.ps1", ("-Settings", f"{path}.json"))))
    assert found is not None
    assert found.code == 1
    assert r"there is no C:\\hybridlab\\patch-level.ps1" in found.stdout.decode()


def test_sysprep_has_to_generalize_and_to_remove_the_answers(
    new_shell: Callable[..., shell.Shell], tmp_path: Path
) -> None:
    made = new_shell(steps=GOLDEN_ORDER[:-1])
    (tmp_path / "sysprep.ps1").write_bytes(script("sysprep.ps1").replace(b"/generalize", b"/audit"))
    (tmp_path / "hybridlab.psm1").touch()
    (tmp_path / "sysprep.json").write_text("{}")
    line = powershell.filed(
        r"C:\hybridlab\sysprep.ps1", ("-Settings", r"C:\hybridlab\sysprep.json")
    )
    found = made(asked(line))
    assert found is not None
    assert "sysprep.ps1 has no ['/generalize']" in json.loads(found.stdout)["error"]
    assert new_shell.later == []  # type: ignore[attr-defined]
    assert step(made, "sysprep", tmp_path).code == 0
    assert len(new_shell.later) == 1  # type: ignore[attr-defined]


def test_it_says_when_it_was_started_as_the_product_asks(
    new_shell: Callable[..., shell.Shell],
) -> None:
    made = new_shell()
    question = Asked(started(powershell.encoded(powershell.whole(reboot.QUERY))).line)
    first, second = made(question), made(question)
    assert first is not None
    assert second is not None
    boot = reboot.boot_of(first.stdout.decode(), 1.0)
    assert boot is not None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{7}Z", boot.at)
    assert second.stdout.split()[0] == first.stdout.split()[0]


def test_a_restart_is_one(new_shell: Callable[..., shell.Shell]) -> None:
    assert new_shell()(asked(reboot.RESTART)) == Answer()
    assert new_shell.later == [shell.restart]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "command",
    [
        ("cmd.exe", "/d", "/c", "exit 1"),
        ("whoami",),
        ("powershell.exe", "-File", r"C:\hybridlab\patch-level.ps1"),
        powershell.encoded("Get-Date"),
        powershell.encoded(powershell.whole("Stop-Computer")),
    ],
)
def test_what_is_not_known_is_not_answered(
    command: Sequence[str], new_shell: Callable[..., shell.Shell]
) -> None:
    assert new_shell()(asked(command)) is None


def test_a_command_that_does_nothing_is_known_with_and_without_a_terminal(
    new_shell: Callable[..., shell.Shell],
) -> None:
    nothing = started(("cmd.exe", "/d", "/c", "exit 0"))
    lent = powershell.encoded(powershell.interactive(nothing.program, nothing.arguments))
    assert new_shell()(asked(("cmd.exe", "/d", "/c", "exit 0"))) == Answer()
    assert new_shell()(Asked(" ".join(lent), via="ssh")) == Answer()
