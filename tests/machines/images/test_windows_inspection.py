from dataclasses import replace
from pathlib import Path

import pytest

from lab._errors import PreflightError
from lab.machines.images.medium import Extent
from lab.machines.images.terms import RELEASES, WantedImage
from lab.windows import medium_report as windows_medium
from lab.windows.images.medium import (
    BootEntry,
    Use,
    WindowsImage,
    WindowsMedium,
    channel,
    choose,
    kind_of,
    list_images,
    uses,
)

CASES = Path(__file__).parents[2] / "cases" / "windows" / "media"


def image(index: int, year: str = "2022", evaluation: bool = True, **other) -> WindowsImage:
    edition = "Standard" if index < 3 else "Datacenter"
    core = index % 2 == 1
    word = " Evaluation" if evaluation else ""
    desktop = "" if core else " (Desktop Experience)"
    usual = WindowsImage(
        index=index,
        name=f"Windows Server {year} SERVER{edition.upper()}{'CORE' if core else ''}",
        display_name=f"Windows Server {year} {edition}{word}{desktop}",
        edition=f"Server{edition}{'Eval' if evaluation else ''}",
        installation="Server Core" if core else "Server",
        build={"2019": 17763, "2022": 20348, "2025": 26100}[year],
        revision=3650,
        languages=("en-US",),
        default_language="en-US",
        architecture="x86_64",
        bytes=8_000_000_000 + index,
    )
    return replace(usual, **other)


def medium(*images: WindowsImage, **other) -> WindowsMedium:
    path = Path("/media/windows.iso")
    usual = WindowsMedium(
        path, "SSS_X64FREE", 5 * 10**9, "/sources/install.wim", images, "evaluation", (), None
    )
    return replace(usual, **other)


def server(year: str = "2022", **other) -> WindowsMedium:
    return medium(*(image(index, year, **other) for index in (1, 2, 3, 4)))


CLIENT = medium(
    *(
        image(
            at,
            name=f"Windows 10 {edition}",
            display_name=f"Windows 10 {edition}",
            installation="Client",
            build=19045,
            evaluation=False,
        )
        for at, edition in enumerate(("Pro", "Enterprise"), start=1)
    ),
    channel="retail",
)
PE = medium(image(1, name="Microsoft Windows PE (amd64)", installation="WindowsPE"))


@pytest.mark.parametrize("year", sorted(RELEASES))
@pytest.mark.parametrize(
    ("edition", "surface", "index"),
    [
        ("standard", "core", 1),
        ("standard", "desktop", 2),
        ("datacenter", "core", 3),
        ("datacenter", "desktop", 4),
    ],
)
def test_image_is_chosen_by_edition_and_surface(year, edition, surface, index):
    assert choose(server(year), WantedImage(year, edition, surface)).index == index


def test_name_is_chosen_in_whatever_case_it_is_written():
    written = server(name="windows server 2022 serverStandard")
    assert choose(written, WantedImage("2022", "standard", "desktop")).index == 1


STANDARD = WantedImage("2022", "standard", "core")
OLDER = WantedImage("2019", "standard", "core")


@pytest.mark.parametrize(
    ("found", "wanted", "words"),
    [
        (server("2019"), STANDARD, "it is a medium of Windows Server 2019; it holds"),
        (server("2025"), OLDER, "it is a medium of Windows Server 2025; it holds"),
        (medium(image(3), image(4)), STANDARD, "there is no such image on it; it holds"),
        (medium(), STANDARD, "there is no such image on it; it holds no images"),
        (
            CLIENT,
            STANDARD,
            r"it is a medium of Windows for desktops; it holds\n +1 'Windows 10 Pro'",
        ),
        (PE, STANDARD, "it is a medium without Windows to install"),
        (
            server(architecture="aarch64"),
            STANDARD,
            "the image is for aarch64, but nodes are x86_64",
        ),
        (
            server(build=20349),
            STANDARD,
            r"is build 20349.3650, but Windows Server 2022 is build 203",
        ),
        (server("2019", revision=378), OLDER, r"the image is build 17763.378, too old: VXLAN .* "),
        (server("2019", revision=378), OLDER, r"KB4489899 .*, which 17763.379 has"),
        (server("2019", revision=0), OLDER, "too old"),
    ],
)
def test_medium_without_the_image_is_refused_with_what_it_holds(found, wanted, words):
    with pytest.raises(PreflightError, match=words) as raised:
        choose(found, wanted)
    assert wanted.name in raised.value.doing
    assert "/media/windows.iso" in raised.value.doing
    assert raised.value.hint


def test_oldest_revision_that_will_do_is_taken():
    assert choose(server("2019", revision=379), OLDER).revision == 379
    assert choose(server("2022", revision=0), STANDARD).revision == 0


def test_medium_without_windows_is_identified_by_its_content():
    for names, words in (
        ((".disk", "casper", "EFI", "boot"), "is a Linux medium"),
        (("images", "images/pxeboot", "EFI", "isolinux"), "is a Linux medium"),
        ((".disk", "dists", "install.amd", "pool"), "is a Linux medium"),
        (("NetKVM", "viostor", "virtio-win_license.txt"), "has drivers (virtio-win)"),
        (("Autounattend.xml", "bootstrap.ps1"), "has answer files for Setup"),
        (("boot", "sources", "sources/boot.wim"), "starts Windows PE and holds no Windows"),
        ((), "holds no 'sources/install.wim', '.esd' or '.swm', but nothing"),
        (("sources", "sources/install.txt"), "but 'sources'"),
        (tuple("abcdefghij"), "but 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h' and 2 more"),
    ):
        told = kind_of("LABEL", names)
        assert told.startswith("the medium 'LABEL' ")
        assert words in told


@pytest.mark.parametrize(
    ("text", "evaluation", "expected"),
    [
        ("[EditionID]\r\n\r\n[Channel]\r\nEval\r\n\r\n[VL]\r\n0\r\n", False, "evaluation"),
        ("[Channel]\nVolume\n[VL]\n1\n", False, "volume"),
        ("[channel]\n\n  retail  \n", False, "retail"),
        ("[Channel]\r\n_Default\r\n", False, "unknown"),
        ("[Channel]", False, "unknown"),
        ("[EditionID]\nServerStandard\n", False, "unknown"),
        ("", False, "unknown"),
        ("", True, "evaluation"),
        # such images take no key, whatever the file says
        ("[Channel]\nVolume\n", True, "evaluation"),
    ],
)
def test_channel_is_identified_by_the_edition_file_and_the_images(text, evaluation, expected):
    assert channel(text, [image(1, evaluation=evaluation)]) == expected


def test_evaluation_is_known_by_edition_or_name():
    table = {
        ("ServerStandardEval", "Standard"): "evaluation",
        ("ServerStandard", "Standard Evaluation"): "evaluation",
        ("ServerStandard", "Evaluations of Standard"): "unknown",
        ("EvalServer", "Standard"): "unknown",
    }
    assert table == {
        (edition, shown): channel("", [image(1, edition=edition, display_name=shown)])
        for edition, shown in table
    }


RECIPES = {"b-2022": STANDARD, "a-2019": OLDER, "c": WantedImage("2022", "datacenter", "desktop")}


def test_every_recipe_is_listed_with_whether_the_medium_fits_it():
    assert uses(medium(image(1)), RECIPES) == (
        Use("a-2019", OLDER.name, "it is a medium of Windows Server 2022"),
        Use("b-2022", STANDARD.name, ""),
        Use("c", "Windows Server 2022 SERVERDATACENTER", "there is no such image on it"),
    )


def test_refused_medium_is_listed_with_both_names_and_build():
    assert list_images(medium(image(2))) == (
        "it holds\n    2 'Windows Server 2022 SERVERSTANDARD' "
        "('Windows Server 2022 Standard Evaluation (Desktop Experience)'), build 20348.3650"
    )


BIOS, UEFI = BootEntry("bios", Extent(2048, 4096)), BootEntry("uefi", Extent(8192, 1_474_560))
SHOWN = {
    "evaluation-2022": replace(server(), boots=(BIOS, UEFI), no_prompt=Extent(1 << 22, 1_474_560)),
    "volume-2019-too-old": replace(
        server("2019", evaluation=False, revision=1),
        channel="volume",
        label="SSS_X64FREV",
        boots=(BIOS, UEFI),
    ),
    "desktops": replace(CLIENT, label="CCCOMA_X64FRE", boots=(BIOS,)),
    "made-anew": medium(
        image(1, languages=("de-DE", "en-US"), bytes=92_200, evaluation=False),
        image(2, revision=1, languages=(), architecture="aarch64", evaluation=False),
        channel="unknown",
        bytes=4_200_000,
        container="/SOURCES/INSTALL.SWM",
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_medium_is_shown_as_the_golden_file_has_it(name):
    told = "\n".join(windows_medium.lines(SHOWN[name], uses(SHOWN[name], RECIPES))) + "\n"
    assert told == (CASES / f"{name}.txt").read_text()
    assert not any(line != line.rstrip() for line in told.splitlines())


def test_every_shown_medium_has_its_golden_file():
    assert {path.stem for path in CASES.glob("*.txt")} == set(SHOWN)
